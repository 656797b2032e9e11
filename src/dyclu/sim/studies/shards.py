"""`dyclu simulate --shards`: one process, isolated shards and shards that share, side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from dyclu.errors import CannotShare
from dyclu.policy import Policy
from dyclu.sim.reports.document import NOTHING, Table
from dyclu.sim.runs.contestants import contestant
from dyclu.sim.runs.shards import Network, Shared, mean_and_error, play_shards
from dyclu.sim.worlds.population import Population, World
from dyclu.validation import as_whole

NOTE = (
    "A message is a contribution that is published, or that is sent to one other shard. "
    "Share: by the messages that publishing every reward needs."
)


def compare_shards(
    setting: Population,
    policies: Sequence[str],
    seeds: Sequence[int],
    *,
    shards: int,
    network: Network,
    step: Callable[[], object] = lambda: None,
) -> dict[str, dict[str, list[Shared]]]:
    """Return runs by policy and by way of sharing, one per seed; `step` is called after each run.

    All of them play in the same worlds.
    """
    shards = as_whole(shards, "shards", least=2)
    check_shards(policies, setting)
    found: dict[str, dict[str, list[Shared]]] = {name: {} for name in policies}
    ways = {
        "one process": (1, replace(network, silent=True)),
        f"{shards} isolated shards": (shards, replace(network, silent=True)),
        f"{shards} shards that share": (shards, network),
    }
    for name in policies:
        for way, (count, told) in ways.items():
            found[name][way] = []
            for seed in seeds:
                world = setting.world(seed)
                made = [_made(name, world) for _ in range(count)]
                found[name][way].append(play_shards(made, world, replace(told, seed=seed)))
                step()
    return found


def check_shards(policies: Sequence[str], setting: Population) -> None:
    """Refuse policies that cannot share."""
    world = replace(setting, users=1, rounds=1).world(0)
    for name in policies:
        if not _made(name, world).shares:
            raise CannotShare(
                f"{name} cannot share what it learns with other shards, expected atlas or "
                "shared-linucb; pass --policies atlas"
            )


def table_of(found: Mapping[str, Mapping[str, Sequence[Shared]]]) -> Table:
    """Return the comparison as a table: means over seeds, with standard errors of the regret."""
    rows = []
    for name, ways in found.items():
        single = _mean(next(iter(ways.values())), "regret")
        for way, runs in ways.items():
            regret, error = mean_and_error([run.regret for run in runs])
            after = "" if math.isnan(error) else f" ± {error:.1f}"
            sent = [f"{_mean(runs, field):,.0f}" for field in ("messages", "bytes")]
            share = f"{100 * _mean(runs, 'share'):.2f} %"
            told = [*sent, share] if runs[0].messages else [NOTHING] * 3
            rows.append((f"{name}, {way}", f"{regret:.1f}{after}", f"{regret / single:.2f}", *told))
    return Table(
        header=("", "regret", "× one process", "messages", "bytes", "share"),
        rows=tuple(rows),
        note=NOTE,
    )


def numbers_of(found: Mapping[str, Mapping[str, Sequence[Shared]]]) -> dict[str, Any]:
    """Return the comparison as JSON has it, one entry per run."""
    return {
        name: {
            way: [asdict(run) | {"share": run.share} for run in runs] for way, runs in ways.items()
        }
        for name, ways in found.items()
    }


def _mean(runs: Sequence[Shared], field: str) -> float:
    return float(sum(getattr(run, field) for run in runs)) / len(runs)


def _made(name: str, world: World) -> Policy:
    return contestant(name, world)
