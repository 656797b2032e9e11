"""``python -m benchmarks.sharing``: what shards lose by being apart, and how much they must send.

Four parts:

- ``linear``: shards of ``LinUCB(shared=True)`` in the setting of FedLinUCB (He et al. 2022): 15
  shards, 15 features, 25 arms, noise 0.3 and 30,000 rounds. Published: regret 60.0 with 480,000
  messages if every reward is shared; 92.2 with 400 messages if the determinant must double.
- ``atlas``: Atlas on rows of Table 1 with 1, 2, 4 and 8 shards, isolated and sharing; it is told
  the noise, as the policies of Table 1 are.
- ``wild``: Atlas in the wild worlds, told nothing; not in those with late rewards, since
  `play_shards` pays rewards at once.
- ``protocol``: how many contributions a thousand shards publish; no policies, only the rule.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

import numpy as np

from dyclu import Atlas, LinUCB, kernels
from dyclu.sim.reports.document import NOTHING, Table
from dyclu.sim.reports.terminal import print_table
from dyclu.sim.runs.shards import Network, Shared, mean_and_error, play_shards
from dyclu.sim.worlds import paper
from dyclu.sim.worlds.named import WORLDS
from dyclu.sim.worlds.population import Population
from dyclu.sim.worlds.wild import Wild

PROMPT = tuple(name for name, setting in WORLDS.items() if not setting.delay)
"""Wild worlds whose rewards come at once."""

PUBLISHED = {"every reward": (60.0, 480_000), "α = 1": (92.2, 400)}
"""Regret and messages that FedLinUCB reports."""

FEDERATED = Population(
    users=15, parameters=1, dim=15, arms=1000, offered=25, rounds=2000, shortest=10**9,
    longest=10**9, noise=0.3,
)  # fmt: skip

EVERY = 4
"""Rewards of a shard of Atlas between two times that it asks whether it has news."""

RIDGE, ALPHA = 1.0, 0.3
"""Options of LinUCB in this setting."""


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of run: a number of shards and a threshold; none if the shards are isolated."""

    shards: int
    threshold: float | None

    @property
    def network(self) -> Network:
        if self.threshold is None:
            return Network(silent=True)
        return Network(threshold=self.threshold)


def main(arguments: Sequence[str]) -> None:
    """Run the part that was asked for, and print its table and one line of JSON per case."""
    asked = _parser().parse_args(arguments)
    if asked.part == "protocol":
        _protocol(asked.shards or [10, 100, 1000], asked.rewards, asked.thresholds or [1.0, 20.0])
        return
    counts = asked.shards or ([15] if asked.part == "linear" else [2, 4, 8])
    thresholds = asked.thresholds or ([0.0, 1.0] if asked.part == "linear" else [20.0])
    cases = [Case(1, None)]
    for count in counts:
        cases += [Case(count, None), *(Case(count, value) for value in thresholds)]
    rows: list[tuple[str, ...]] = []
    for name, play in _worlds(asked):
        rows += _rows(name, play, cases, range(asked.seeds))
    print_table(Table(header=_HEADER, rows=tuple(rows)))
    if asked.part == "linear":
        for way, (regret, messages) in PUBLISHED.items():
            print(f"FedLinUCB, as published, {way}: regret {regret}, {messages:,} messages")


Play = Callable[[Case, int], Shared]


def _worlds(asked: argparse.Namespace) -> Iterator[tuple[str, Play]]:
    if asked.part == "wild":
        for name in asked.worlds or PROMPT:
            yield name, partial(_play_atlas, WORLDS[name], None)
        return
    setting = FEDERATED if asked.part == "linear" else paper.SETTINGS[asked.row]
    setting = replace(setting, rounds=asked.rounds or setting.rounds)
    if asked.part == "linear":
        yield "FedLinUCB", partial(_play_linear, setting)
    else:
        yield asked.row, partial(_play_atlas, setting, setting.noise)


_HEADER = ("world", "shards", "α", "regret", "× one", "published", "messages", "share", "MB")


def _rows(
    name: str, play: Play, cases: Sequence[Case], seeds: Sequence[int]
) -> Iterator[tuple[str, ...]]:
    single = math.nan
    for case in cases:
        runs = [play(case, seed) for seed in seeds]
        regret, error = mean_and_error([run.regret for run in runs])
        single = regret if case.shards == 1 else single
        line = {"world": name} | asdict(case) | {"runs": [asdict(run) for run in runs]}
        print(json.dumps(line), flush=True)
        sent = [sum(getattr(run, name) for run in runs) / len(runs) for name in _SENT]
        told = [
            f"{sent[0]:,.0f}",
            f"{sent[1]:,.0f}",
            f"{100 * sent[2]:.2f} %",
            f"{sent[3] / 1e6:.1f}",
        ]
        yield (
            name, str(case.shards), NOTHING if case.threshold is None else f"{case.threshold:g}",
            f"{regret:.1f}" + ("" if math.isnan(error) else f" ± {error:.1f}"),
            f"{regret / single:.2f}",
            *(told if sent[0] else [NOTHING] * 4),
        )  # fmt: skip


_SENT = ("published", "messages", "share", "bytes")


def _play_linear(setting: Population, case: Case, seed: int) -> Shared:
    shards = [
        LinUCB(setting.dim, ridge=RIDGE, alpha=ALPHA, shared=True) for _ in range(case.shards)
    ]
    return play_shards(shards, setting.world(seed), case.network)


def _play_atlas(setting: Population | Wild, noise: float | None, case: Case, seed: int) -> Shared:
    shards = [Atlas(setting.dim, noise=noise) for _ in range(case.shards)]
    return play_shards(shards, setting.world(seed), replace(case.network, every=EVERY))


def count_published(
    shards: int, rewards: int, threshold: float, *, dim: int = 26, tastes: int = 10, seed: int = 0
) -> list[tuple[int, int]]:
    """Return how much shards have published after so many rewards, at each doubling.

    Each reward is of a random shard and taste, with a context of unit norm and the noise variance
    0.01; the prior has the precision ``dim``. A shard publishes by the rule of docs/theory.md
    §11.3; what it publishes arrives at once.
    """
    rng = np.random.default_rng(seed)
    prior, known = dim * np.eye(dim), np.zeros((tastes, dim, dim))
    unsent = np.zeros((shards, tastes, dim, dim))
    published, found, mark = 0, [], 1000
    for number in range(1, rewards + 1):
        shard, taste = int(rng.integers(shards)), int(rng.integers(tastes))
        z = rng.standard_normal(dim)
        z /= np.linalg.norm(z)
        part = unsent[shard, taste]
        kernels.linalg.add_outer(part, z, 100.0)
        growth = kernels.tastes.log_growth(known[taste] + part, prior, part)
        if growth >= math.log1p(threshold):
            known[taste] += part
            part[:] = 0.0
            published += 1
        if number in (mark, rewards):
            found.append((number, published))
            mark *= 2
    return found


def _protocol(counts: Sequence[int], rewards: int, thresholds: Sequence[float]) -> None:
    rows = []
    for shards in counts:
        for threshold in thresholds:
            found = count_published(shards, rewards, threshold)
            print(json.dumps({"shards": shards, "threshold": threshold, "published": found}))
            half, last = found[-2], found[-1]
            rows.append(
                (f"{shards:,}", f"{threshold:g}", f"{half[0]:,}", f"{half[1]:,}", f"{last[0]:,}",
                 f"{last[1]:,}", f"{100 * last[1] / last[0]:.2f} %")
            )  # fmt: skip
    header = ("shards", "α", "rewards", "published", "rewards ", "published ", "per reward")
    print_table(Table(header=header, rows=tuple(rows)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sharing", description=__doc__)
    parser.add_argument("part", choices=["linear", "atlas", "wild", "protocol"])
    parser.add_argument("--row", default="row1", choices=sorted(paper.SETTINGS))
    parser.add_argument("--rounds", type=int, help="per user; default: all of them")
    parser.add_argument("--worlds", nargs="+", choices=PROMPT, help="of wild; default: all of them")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--shards", type=int, nargs="+")
    parser.add_argument("--thresholds", type=float, nargs="+")
    parser.add_argument("--rewards", type=int, default=200_000, help="of the protocol")
    return parser


if __name__ == "__main__":
    main(sys.argv[1:])
