"""What each part of Atlas gains: regret without it, on the same streams.

``python -m benchmarks.ablations`` prints a table of ``docs/results/atlas.md``. A variant changes
named constants of the library; nothing else differs. ``random effects`` is the registered policy:
one taste per user, no changes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from statistics import fmean
from types import ModuleType
from typing import Any
from unittest.mock import patch

from dyclu.policies.atlas import inference, upkeep
from dyclu.policies.common import population, rates, scales
from dyclu.sim.runs.wild import WildJob
from dyclu.sim.worlds.named import named

WORLDS = (
    "quiet", "faint", "clicks", "clicks-steady", "constant-feature", "all-alike", "many-tastes",
    "loud-and-quiet",
)  # fmt: skip
"""Names of worlds."""

VARIANTS: dict[str, tuple[tuple[ModuleType, dict[str, Any]], ...]] = {
    "Atlas": (),
    "memory of 4 rewards": ((population, {"MOST_SPAN": 4}),),
    "memory of 128 rewards": ((population, {"LEAST_SPAN": 128, "MOST_BYTES": 10**6}),),
    "prior and noise not rescaled by evidence": ((scales, {"DIRECTIONS": ()}),),
    "a new taste as likely as a known one": (
        (rates, {"FIRST_NEWNESS_WEIGHT": 1e12}),
        (population, {"TELLING": inf}),
    ),
    "tastes not counted by pairs": ((population, {"TELLING": inf}),),
    "all users have the same noise": ((rates, {"RATIO_USERS": 10**9}),),
    "no grouping": ((upkeep, {"GROUPED": 0}),),
    "no placing anew": ((upkeep, {"SWEEP": 0}),),
    "places cost nothing": ((upkeep, {"PRUDENCE": 0.0}),),
    "places cost all": ((upkeep, {"PRUDENCE": 1.0}),),
    "located at 0.9": ((inference, {"CERTAIN": 0.9}),),
    "nobody is ever located": ((inference, {"CERTAIN": 2.0}),),
    "no changes": ((inference, {"UNCHANGED": -1.0}),),
}


@contextmanager
def changed(settings: tuple[tuple[ModuleType, dict[str, Any]], ...]) -> Iterator[None]:
    """Change constants of modules for a while."""
    if not settings:
        yield
        return
    (module, values), *others = settings
    with patch.multiple(module, **values), changed(tuple(others)):
        yield


def regret(variant: str, world: str, seed: int) -> float:
    """Return the regret of a variant, or of the registered policy ``random effects``."""
    policy = "random-effects" if variant == "random effects" else "atlas"
    with changed(VARIANTS.get(variant, ())):
        return float(WildJob(setting=named(world), policy=policy, seed=seed).run().regret)


def main() -> None:
    """Print the mean regret of every variant in every world."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--worlds", nargs="+", default=list(WORLDS))
    names = (*VARIANTS, "random effects")
    parser.add_argument("--variants", nargs="+", choices=names, default=list(names))
    chosen = parser.parse_args()
    print("| |", " | ".join(chosen.worlds), "|")
    print("|---" * (len(chosen.worlds) + 1) + "|")
    for name in chosen.variants:
        cells = (
            fmean(regret(name, world, seed) for seed in range(chosen.seeds))
            for world in chosen.worlds
        )
        print(f"| {name} |", " | ".join(f"{cell:,.0f}" for cell in cells), "|", flush=True)


if __name__ == "__main__":
    main()
