"""``python -m benchmarks.unseen``: worlds of sizes for which no policy was tuned.

The grid: d = 4, 8, 20, 40 features; n = 20, 200, 1,000 users; m = 1, 3, 30, n tastes; rewards
Gaussian with σ = 0.1 or 0.45, or clicks (about 30 %). Of the 144 combinations 24 are played, chosen
by a rule like a Latin square (`grid`): every value occurs equally often, and every two values of
different options occur together. A run has at most 40,000 rounds. Users change after a third to
five sixths of their rounds, but at most after 100 to 250.

Results of all policies but the first are stored in ``.bench-cache/unseen`` and not computed again;
delete that folder after a change of one of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import inf
from statistics import fmean, geometric_mean

from benchmarks.command import CACHE
from benchmarks.judging import Asked, Record, Report, main, tell, values
from dyclu.sim.reports.document import NOTHING, Table
from dyclu.sim.runs.store import Store
from dyclu.sim.runs.wild import CEILINGS, WildJob
from dyclu.sim.studies.wild import shortened
from dyclu.sim.worlds.named import WORLDS
from dyclu.sim.worlds.wild import Wild

POLICIES = (
    "atlas", "uniform", "oracle", "told", "linucb-0.3", "shared-linucb-0.3",
    "discounted-linucb-0.3", "dyclu", "dyclu-0.3",
)  # fmt: skip
SEEDS = 2

DIMS, USERS = (4, 8, 20, 40), (20, 200, 1_000)
TASTES = (1, 3, 30, None)
"""Numbers of tastes; None gives as many as there are users."""

LAWS = {"σ .1": WORLDS["quiet"], "σ .45": WORLDS["faint"], "clicks": WORLDS["clicks"]}
"""Worlds from which the law of rewards is taken."""

ROUNDS, LONGEST_RUN = 40_000, 600
"""Most rounds of all users, and of one."""

QUICK_WORLDS = 2

NOTE = (
    "Mean regret over seeds. Best other: the least regret of all policies that are told nothing. "
    "Ceilings: oracle (told who has which taste) plus told (told the tastes). Shared tastes: more "
    "than one, and at least two users for each. Wanted of atlas: at most 1.00 × the best other in "
    "every world with more than one taste, and at most 3 with one; by the ceilings' sum, where "
    "tastes are shared, a geometric mean of at most 1.15 and none above 1.5."
)


def grid() -> dict[str, Wild]:
    """Return the chosen worlds by name.

    >>> len(grid()), next(iter(grid()))
    (24, 'd 4, n 20, m 1, σ .1')
    """
    found = {}
    laws = list(LAWS)
    for i, j, k in product(range(len(DIMS)), range(len(USERS)), range(2)):
        users = USERS[j]
        tastes = TASTES[(i + j + 2 * k) % len(TASTES)] or users
        law = laws[(i + 2 * j + k) % len(laws)]
        name = f"d {DIMS[i]}, n {users}, m {tastes}, {law}"
        found[name] = _world(LAWS[law], DIMS[i], users, tastes)
    return found


def run(asked: Asked) -> Report:
    """Let every policy play in every world."""
    worlds = asked.picked(grid())
    if asked.quick:
        worlds = {name: shortened(worlds[name]) for name in list(worlds)[:QUICK_WORLDS]}
    judged = asked.policies[0]
    store = None if asked.quick else Store(CACHE / "unseen")
    records = tuple(
        tell(_record(world, WildJob(setting=setting, policy=name, seed=seed), kept))
        for world, setting in worlds.items()
        for name in asked.policies
        for seed in asked.seeds
        for kept in [store if name != judged else None]
    )
    rows = {world: _means(records, world, asked.policies) for world in worlds}
    return Report(tables=(_table(rows, worlds, asked.policies),), records=records)


def _world(like: Wild, dim: int, users: int, tastes: int) -> Wild:
    rounds = min(ROUNDS // users, LONGEST_RUN)
    return like.with_options(
        {
            "dim": dim,
            "users": users,
            "parameters": tastes,
            "rounds": rounds,
            "shortest": min(rounds // 3, like.shortest),
            "longest": min(rounds * 5 // 6, like.longest),
        }
    )


def _record(world: str, job: WildJob, store: Store | None) -> Record:
    result = store.get(job.key) if store else None
    if result is None:
        result = job.run()
        if store:
            store.put(job.key, job, result)
    return {
        "world": world,
        "policy": job.policy,
        "seed": job.seed,
        "regret": result.regret,
        "seconds": result.timing.seconds,
    }


def _means(records: Sequence[Record], world: str, policies: Sequence[str]) -> dict[str, float]:
    return {name: fmean(values(records, "regret", world=world, policy=name)) for name in policies}


def by_best_other(row: Mapping[str, float], judged: str) -> float | None:
    """Return the regret divided by the least one of the others that are told nothing.

    >>> by_best_other({"atlas": 3.0, "linucb": 4.0, "dyclu": 6.0, "told": 1.0}, "atlas")
    0.75
    """
    others = [regret for name, regret in row.items() if name not in (judged, *CEILINGS)]
    best = min(others, default=inf)
    return row[judged] / best if 0 < best < inf else None


def by_ceilings(row: Mapping[str, float], judged: str) -> float | None:
    """Return the regret divided by the sum of the ceilings'; None if a ceiling did not play.

    >>> by_ceilings({"atlas": 3.0, "oracle": 1.0, "told": 1.0}, "atlas")
    1.5
    """
    total = sum(row.get(name, inf) for name in CEILINGS)
    return row[judged] / total if 0 < total < inf else None


def _table(
    rows: Mapping[str, Mapping[str, float]], worlds: Mapping[str, Wild], policies: Sequence[str]
) -> Table:
    judged = policies[0]
    best = {world: by_best_other(row, judged) for world, row in rows.items()}
    ceiling = {world: by_ceilings(row, judged) for world, row in rows.items()}
    several = [world for world, setting in worlds.items() if setting.parameters != 1]
    shared = [world for world in several if _shared(worlds[world])]
    alike = [world for world in worlds if world not in several]
    lines = [
        (world, *(f"{row[name]:,.0f}" for name in policies), _ratio(best[world]),
         _ratio(ceiling[world]))
        for world, row in rows.items()
    ]  # fmt: skip
    blank = ("",) * len(policies)
    for title, chosen in (("several tastes", several), ("shared", shared), ("one taste", alike)):
        both = (_middle([ratios[world] for world in chosen]) for ratios in (best, ceiling))
        lines.append((f"geometric mean, {title} ({len(chosen)})", *blank, *both))
    header = ("world", *policies, f"{judged} / best other", f"{judged} / ceilings")
    return Table(header=header, rows=tuple(lines), note=NOTE)


def _shared(setting: Wild) -> bool:
    return setting.parameters is not None and 2 * setting.parameters <= setting.users


def _middle(ratios: Sequence[float | None]) -> str:
    known = [ratio for ratio in ratios if ratio]
    return _ratio(geometric_mean(known)) if known else NOTHING


def _ratio(ratio: float | None) -> str:
    return NOTHING if ratio is None else f"{ratio:.2f}"


if __name__ == "__main__":
    main(run, about=__doc__, policies=POLICIES, seeds=SEEDS)
