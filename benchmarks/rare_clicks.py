"""``python -m benchmarks.rare_clicks``: two arms that are clicked rarely, users who are all alike.

200 users are served in turn, 100 times each; the arms are ``eye(2)``. Of equal arms a policy takes
the first, so the better arm is the first one with even seeds and the second one with odd seeds.
"""

from __future__ import annotations

import math

import numpy as np

from benchmarks.judging import Asked, Record, Report, main, spread, tell, values
from dyclu import Atlas, DyClu
from dyclu.policy import Policy
from dyclu.sim.reports.document import Table
from dyclu.sim.runs.stream.contestants import contestant

POLICIES = ("atlas", "linucb-0.3", "shared-linucb-0.3", "dyclu", "dyclu-0.3")
SEEDS = 20
USERS, PULLS, QUICK_PULLS = 200, 20_000, 1_000
CHANCES = {".05/.02": (0.05, 0.02), ".02/.01": (0.02, 0.01)}
"""Click chances of the better and of the worse arm."""

NOTE = (
    "Mean ± standard error over seeds. Noise: the estimate divided by √(p(1 − p)), p the click "
    "rate of what was shown. False change: users of whom a change was reported; nobody changes. "
    "At the end: users for whom `decide` names the better arm after the last pull. Wanted of "
    "atlas: noise from 0.9 to 1.1, false changes at most 2 %, at the end at least 95 %."
)


def run(asked: Asked) -> Report:
    """Let every policy play with both pairs of chances."""
    pulls = QUICK_PULLS if asked.quick else PULLS
    worlds = asked.picked(CHANCES)
    records = tuple(
        tell({"world": world, "policy": name, "seed": seed, **_judged(name, chances, pulls, seed)})
        for world, chances in worlds.items()
        for name in asked.policies
        for seed in asked.seeds
    )
    rows = tuple(_row(records, world, name) for world in worlds for name in asked.policies)
    header = (
        "chances", "policy", "noise / √(p(1 − p))", "users with a false change, %",
        "better arm at the end, %", "the same, worst seed", "better arm pulled, %",
    )  # fmt: skip
    return Report(tables=(Table(header=header, rows=rows, note=NOTE),), records=records)


def play(policy: Policy, chances: tuple[float, float], pulls: int, seed: int) -> Record:
    """Let a policy serve the users, and return what the table shows of one run.

    The luck of a pull does not depend on the policy.
    """
    arms, better = np.eye(2), seed % 2
    luck = np.random.default_rng(seed).random(pulls)
    chance = np.array(chances if better == 0 else chances[::-1])
    clicks = hits = 0
    for pull in range(pulls):
        user = pull % USERS
        arm = policy.decide(user, arms).arm
        click = bool(luck[pull] < chance[arm])
        policy.learn(user, arms[arm], float(click))
        clicks, hits = clicks + click, hits + (arm == better)
    rate = clicks / pulls
    at_end = [policy.decide(user, arms).arm == better for user in range(USERS)]
    return {
        "noise": _noise(policy, rate),
        "false_changes": len({change.user for change in policy.changes}) / USERS,
        "changes": len(policy.changes),
        "better_at_end": sum(at_end) / USERS,
        "better_pulled": hits / pulls,
        "click_rate": rate,
        "models": len(policy.models),
    }


def _judged(name: str, chances: tuple[float, float], pulls: int, seed: int) -> Record:
    return play(contestant(name, 2, seed=seed), chances, pulls, seed)


def _noise(policy: Policy, rate: float) -> float | None:
    """Return the estimated noise divided by the true one; None if there is no such estimate."""
    if not isinstance(policy, Atlas | DyClu) or not 0 < rate < 1:
        return None
    return policy.noise / math.sqrt(rate * (1 - rate))


def _row(records: tuple[Record, ...], world: str, name: str) -> tuple[str, ...]:
    def of(measure: str) -> list[float]:
        return values(records, measure, world=world, policy=name)

    return (
        world,
        name,
        spread(of("noise"), 2),
        spread(of("false_changes"), 1, 100),
        spread(of("better_at_end"), 1, 100),
        f"{100 * min(of('better_at_end')):.0f}",
        spread(of("better_pulled"), 1, 100),
    )


if __name__ == "__main__":
    main(run, about=__doc__, policies=POLICIES, seeds=SEEDS)
