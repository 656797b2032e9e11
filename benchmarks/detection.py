"""``python -m benchmarks.detection``: how soon changes of users are reported, and how many falsely.

60 users with 8 tastes and 15 features, 300 rounds each; a user changes after 100 to 249 rounds, or
never ("steady"). Rewards are Gaussian with σ = 0.1 or 0.45, or clicks (about 30 %). ``told`` is
told the tastes, the hazard and the law of rewards, and filters who has which taste: no policy can
expect to be much faster at the same rate of false changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isinf

import numpy as np

from benchmarks.judging import Asked, Record, Report, main, tell
from dyclu.sim.reports.document import NOTHING, Table
from dyclu.sim.runs.measures import delays
from dyclu.sim.runs.play import Run, play
from dyclu.sim.runs.wild import Present
from dyclu.sim.studies.wild import shortened
from dyclu.sim.worlds.named import WORLDS
from dyclu.sim.worlds.wild import Wild
from dyclu.validation import Ids

POLICIES = ("atlas", "dyclu", "told")
SEEDS = 5

SIZE = {"users": 60, "parameters": 8, "dim": 15, "rounds": 300}
CHANGING = {"shortest": 100, "longest": 249}
STEADY = {"shortest": 10**9, "longest": 10**9}
LAWS = {"gauss .1": "quiet", "gauss .45": "faint", "clicks 30 %": "clicks"}
"""Names of the worlds from which the laws of rewards are taken."""

SETTINGS: dict[str, Wild] = {
    f"{name}{ending}": WORLDS[law].with_options(SIZE | periods)
    for name, law in LAWS.items()
    for ending, periods in (("", CHANGING), (", steady", STEADY))
}

NOTE = (
    "All seeds together. Delay: rewards of the user between a change and the first report of it, "
    "0 if the first reward after the change raised it; over all changes, and a change that is not "
    "found before the next one counts as never (-). Changes after which a user has fewer rewards "
    "than the shortest period are left out. False: every report but the first one after a change, "
    "per 1,000 rewards."
)


def run(asked: Asked) -> Report:
    """Let every policy play in every world."""
    worlds = asked.picked(SETTINGS)
    if asked.quick:
        worlds = {name: shortened(setting) for name, setting in worlds.items()}
    records = tuple(
        tell({"world": world, "policy": name, "seed": seed, **_judged(name, setting, seed)})
        for world, setting in worlds.items()
        for name in asked.policies
        for seed in asked.seeds
    )
    rows = tuple(_row(records, world, name) for world in worlds for name in asked.policies)
    header = (
        "world", "policy", "changes", "found, %", "delay, median", "delay, 90 %", "false",
    )  # fmt: skip
    return Report(tables=(Table(header=header, rows=rows, note=NOTE),), records=records)


def reports(run: Run, shortest: int) -> Record:
    """Return the delays of a run's changes, the number of missed ones and of false reports."""
    rounds, served = run.world.setting.rounds, run.world.served
    found: list[int] = []
    missed = false = 0
    for user in range(run.world.setting.users):
        alarms = np.flatnonzero(run.changed[served == user])
        changes = run.world.changes(user)
        false += len(alarms) - len(delays(alarms, changes))
        counted, end = _counted(changes, rounds, shortest)
        own = delays(alarms[alarms < end], counted)
        missed += len(counted) - len(own)
        found += own
    return {"delays": found, "missed": missed, "false": false, "rewards": len(run)}


def _counted(changes: Ids, rounds: int, shortest: int) -> tuple[Ids, int]:
    """Return the changes with enough rewards after them, and where the next one ends their time.

    >>> _counted(np.array([3, 7]), rounds=10, shortest=5)
    (array([3]), 7)
    """
    is_counted = changes + shortest <= rounds
    later = changes[~is_counted]
    return changes[is_counted], int(later[0]) if len(later) else rounds


def _judged(name: str, setting: Wild, seed: int) -> Record:
    world = setting.world(seed)
    present = Present(world)
    policy = present.contestant(name, seed=seed)
    played = play(policy, world, look=setting.rounds, tell=present.tell)
    return {**reports(played, setting.shortest), "regret": float(played.regret.sum())}


def _row(records: Sequence[Record], world: str, name: str) -> tuple[str, ...]:
    own = [each for each in records if each["world"] == world and each["policy"] == name]
    found = [delay for record in own for delay in record["delays"]]
    missed = sum(record["missed"] for record in own)
    false = sum(record["false"] for record in own) / sum(record["rewards"] for record in own)
    changes = len(found) + missed
    waits = [*found, *[inf] * missed]
    share = f"{100 * len(found) / changes:.0f}" if changes else NOTHING
    times = (_quantile(waits, at) for at in (0.5, 0.9))
    return world, name, str(changes), share, *times, f"{1000 * false:.2f}"


def _quantile(waits: Sequence[float], at: float) -> str:
    """Return a quantile as text, without interpolation, which infinite waits do not allow.

    >>> _quantile([3, 5, inf], 0.5), _quantile([3, 5, inf], 0.9)
    ('5', '-')
    """
    if not waits:
        return NOTHING
    found = float(np.quantile(np.array(waits, dtype=float), at, method="inverted_cdf"))
    return NOTHING if isinf(found) else f"{found:.0f}"


if __name__ == "__main__":
    main(run, about=__doc__, policies=POLICIES, seeds=SEEDS)
