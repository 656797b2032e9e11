"""What each part of Atlas gains: regret without it, on the same streams.

``python -m benchmarks.ablations`` prints the table of ``docs/results/atlas.md``. The settings are
the tastes and the noise of rows of Table 1, with row 4's periods, so that short runs have many
changes. Every variant also plays in ``dyclu reproduce table1 --policies
atlas,benchmarks.ablations:HardSwitch`` (there only ``atlas`` is told the noise).
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import replace
from statistics import fmean

import numpy as np

from dyclu import Atlas, Stats, homogeneity
from dyclu.policies.atlas.tastes import NEW
from dyclu.policies.atlas.tracker import Tracker
from dyclu.policies.atlas.users import NONE
from dyclu.sim import play
from dyclu.sim.worlds.paper import SETTINGS
from dyclu.validation import FloatArray

ROWS, USERS, ROUNDS, COLD = ("row1", "row3", "row9"), 50, 400, 40
"""Settings for tastes and noise; users; rounds per user; how many of them are the cold start."""

LEVEL = 0.01
"""Level of the plain test, as in DyClu."""


class PlainTracker(Tracker):
    """Assigns a segment to the model most similar by Eq. (1), to none if the test cannot tell."""

    def _chances(self, row: int) -> FloatArray:
        users, models = self.users, self.models
        segment, noise = users.segment(row), math.sqrt(models.prior.noise_variance)
        mine = _stats(segment.gram, segment.moment, segment.size)
        chances = np.zeros(models.rows)
        chances[NEW] = LEVEL
        for model in models.live[1:]:
            part = 1.0 if users.placed[row] and model == users.model[row] else 0.0
            held = _stats(
                models.gram[model] - part * segment.gram,
                models.moment[model] - part * segment.moment,
                models.count[model] - part * segment.size,
            )
            if held.count:
                answer = homogeneity(mine, held, noise=noise)
                chances[model] = answer.p_value if answer.df else 0.0
        best = np.zeros(models.rows)
        best[chances.argmax()] = 1.0
        return best


class HardTracker(Tracker):
    """Uses only the most likely model; a suspected user changes to it at once."""

    def view(self, row: int) -> tuple[FloatArray, FloatArray, float]:
        models, users = self.models, self.users
        if row != NONE and users.seat[row] == NONE:
            home = users.model[row]
            return models.theta[home].copy(), models.inverse[home], self.untried
        return super().view(row)

    def _probation_view(self, row: int, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
        return super()._probation_view(row, (weight == weight.max()).astype(float))

    def _place(self, row: int) -> bool:
        if self.users.home[row] == NONE:
            return super()._place(row)
        chances = self._chances(row)
        return self._settle(row, int(chances.argmax()), float(chances.max()))


class PlainTest(Atlas):
    """Atlas with Eq. (1) instead of the evidence with a prior."""

    def __init__(self, dim: int, *, noise: float | None = None) -> None:
        super().__init__(dim, noise=noise)
        self._tracker = _tracker(PlainTracker, self)


class HardSwitch(Atlas):
    """Atlas without belief."""

    def __init__(self, dim: int, *, noise: float | None = None) -> None:
        super().__init__(dim, noise=noise)
        self._tracker = _tracker(HardTracker, self)


VARIANTS: dict[str, Callable[..., Atlas]] = {
    "Atlas (lag 4)": Atlas,
    "hard switch": HardSwitch,
    "lag 0": lambda dim, noise: Atlas(dim, noise=noise, lag=0),
    "lag 8": lambda dim, noise: Atlas(dim, noise=noise, lag=8),
    "plain test": PlainTest,
}


def _tracker(kind: type[Tracker], policy: Atlas) -> Tracker:
    told = None if policy._known is None else policy._known.variance
    return kind(policy.dim, told=told, certainty=policy.certainty, lag=policy.lag)


def _stats(gram: FloatArray, moment: FloatArray, count: float) -> Stats:
    """Return sums for the test, which does not use the energy if the noise is known."""
    return Stats(gram, moment, 0.0, max(round(count), 0))


def regret(make: Callable[..., Atlas], row: str, seed: int, users: int) -> tuple[float, float]:
    """Return the regret of the cold start and of the whole run."""
    setting = replace(SETTINGS[row], users=users, rounds=ROUNDS, shortest=200, longest=400)
    run = play(make(setting.dim, noise=setting.noise), setting.world(seed), look=ROUNDS)
    return float(run.regret[: COLD * setting.users].sum()), float(run.regret.sum())


def main() -> None:
    """Print the regret (cold start, whole run) of every variant in every setting."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--users", type=int, default=USERS)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    chosen = parser.parse_args()
    seeds = range(chosen.seeds)
    print("| cold start, whole run |", " | ".join(ROWS), "|")
    print("|---" * (len(ROWS) + 1) + "|")
    for name in chosen.variants:
        cells = []
        for row in ROWS:
            found = [regret(VARIANTS[name], row, seed, chosen.users) for seed in seeds]
            cold, whole = zip(*found, strict=True)
            cells.append(f"{fmean(cold):,.0f}, {fmean(whole):,.0f}")
        print(f"| {name} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
