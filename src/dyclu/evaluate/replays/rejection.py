"""`replay`: what a policy that learns would have earned, by rejection sampling.

A row is accepted if the policy chooses the arm that was shown, and then with probability ``c / p``,
p its propensity. A visit is therefore accepted with probability c, whatever the policy chooses: the
accepted rows are distributed as if the policy had served a share c of all visits and learnt from
them alone (docs/evaluation.md, section 6; Li et al. 2011, Dudík et al. 2012).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from dyclu.data import Chunk, Log
from dyclu.display import html_table
from dyclu.errors import OptionError
from dyclu.evaluate.gathering import Propensity, logging_policy
from dyclu.evaluate.groups import GroupSums, UserGroups
from dyclu.evaluate.intervals import (
    REPLICATES,
    Interval,
    Ratios,
    checked_replicates,
    interval_text,
    of_weights,
)
from dyclu.evaluate.replays.halves import LEAST_SPLITS, SPLITS, Halves
from dyclu.evaluate.results import Estimate
from dyclu.evaluate.verdict import LEAST_EFFECTIVE, LEAST_USERS, weight_problems
from dyclu.policy import Policy
from dyclu.validation import FloatArray, as_probability, as_whole

MOST_CAPPED = 0.01
"""Share of rows that may have a propensity below the acceptance constant, so that c / p > 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What a learning policy would have earned over the rounds that were accepted.

    Attributes
    ----------
    rows, accepted : int
        Rows of the log, and rounds of the policy.
    users : int
        Users of the accepted rounds.
    acceptance : float
        The constant c: the share of visits that the policy is taken to have served.
    capped : float
        Share of rows whose propensity is below c. They are accepted less often than they should be.
    estimate : Estimate
        Mean reward of the accepted rounds.
    weighted : Estimate
        The same from all rows on which policy and log agree, weighted by ``1 / p`` and normalised
        (Dudík et al.); usually closer.
    mean_weight : Estimate
        Mean of ``1 / p`` where both agree, else 0. It is 1 if propensities are right and the log
        shows all that the policy chooses.
    propensities : str
        "logged" or "estimated".
    splits : int
        Splits of the users that show how much runs of the policy differ; 0 if the intervals are
        about this run only.
    verdict : str
        The answer in words.
    """

    rows: int
    users: int
    accepted: int
    acceptance: float
    capped: float
    estimate: Estimate
    weighted: Estimate
    mean_weight: Estimate
    propensities: str
    splits: int
    verdict: str

    def _repr_html_(self) -> str:
        """Return the replay as notebooks show it: estimates, rounds and the verdict."""
        values = {"accepted rounds": self.estimate, "all rows, weighted": self.weighted}
        rows: list[tuple[str, float, str]]
        rows = [(name, one.value, interval_text(one.interval)) for name, one in values.items()]
        rows.append(("rounds", self.accepted, f"of {self.rows} rows"))
        return html_table("Reward per decision, while learning", rows, note=self.verdict)


def replay(
    log: Log,
    policy: Policy,
    *,
    fresh: Callable[[], Policy] | None = None,
    splits: int = SPLITS,
    acceptance: float | None = None,
    propensities: str | None = None,
    level: float = 0.95,
    replicates: int = REPLICATES,
    seed: int = 0,
) -> Replayed:
    """Let a policy learn from the rows of a log that it would have produced itself.

    The policy is changed: it learns the accepted rows, in order. Pass a new one, or a copy.

    Parameters
    ----------
    log : Log
        The decisions that were made, in order of time.
    policy : Policy
        The policy, as it was before the first row.
    fresh : callable, optional
        Returns the same policy as it was before the first row. Then intervals also hold for other
        runs of the policy, which would have learnt something else; without it, they are about this
        run. Two policies per split go through the log, each with half of the users.
    splits : int
        Number of splits, if there is `fresh`; they take as long as so many replays.
    acceptance : float, optional
        The constant c; by default the smallest propensity of the log. A larger one accepts more
        rows, with a bias if many propensities are below it.
    propensities : "logged", "estimated" or None
        None takes those of the log, and estimates them if it has none.
    level, replicates, seed
        Level of the intervals, resamples of users, and seed of all draws.

    Examples
    --------
    >>> from dyclu import LinUCB
    >>> log = Log.of_arrays(
    ...     user=range(4000), arms=np.tile(np.eye(2), (4000, 1, 1)),
    ...     chosen=np.arange(4000) % 2, reward=(np.arange(4000) % 4 == 1).astype(float),
    ...     propensity=np.full(4000, 0.5),
    ... )
    >>> found = replay(log, LinUCB(2, alpha=0.3, shared=True))
    >>> found.acceptance, 0.45 < found.estimate.value < 0.55    # clicks: arm 0 never, arm 1 half
    (0.5, True)
    """
    level, seed = as_probability(level, "level"), as_whole(seed, "seed", least=0)
    replicates = checked_replicates(level, as_whole(replicates, "replicates", least=100))
    kind, propensity = logging_policy(log, propensities)
    constant = _acceptance(log, propensity, acceptance)
    run = _Run(policy, constant, np.random.default_rng(seed))
    halves = Halves(
        lambda coins: _Run(fresh(), constant, coins),  # type: ignore[misc]
        splits=0 if fresh is None else as_whole(splits, "splits", least=LEAST_SPLITS),
        seed=seed,
    )
    for chunk in log.chunks():
        weights = propensity(chunk)
        run.add(chunk, weights)
        halves.add(chunk, weights)
    bootstrap = partial(Ratios.bootstrap, level=level, replicates=replicates, seed=seed)
    return run.result(kind, bootstrap, halves, level)


def _acceptance(log: Log, propensity: Propensity, given: float | None) -> float:
    if given is None:
        return float(min(propensity(chunk).min() for chunk in log.chunks()))
    return 1.0 if given == 1 else as_probability(given, "acceptance")


class _Run:
    """A replay on its way."""

    def __init__(self, policy: Policy, acceptance: float, rng: np.random.Generator) -> None:
        self._policy, self._acceptance, self._rng = policy, acceptance, rng
        self._groups = UserGroups()
        self._sums = GroupSums("rows", "accepted", "reward", "weight", "weighted")
        self._rows = self._capped = 0
        self._clicks = True

    def add(self, chunk: Chunk, propensity: FloatArray) -> None:
        """Play the rows of a chunk, one after the other: each may change the policy."""
        if not len(chunk):
            return
        agrees, accepted = np.zeros(len(chunk)), np.zeros(len(chunk))
        limits = self._acceptance / propensity
        lucky = self._rng.random(len(chunk)) < limits
        rows = zip(chunk.user, chunk.arms, chunk.counts, chunk.chosen, chunk.reward, strict=True)
        for i, (user, arms, count, chosen, reward) in enumerate(rows):
            if self._policy.decide(user, arms[:count]).arm == chosen:
                agrees[i] = 1.0
                if lucky[i]:
                    accepted[i] = 1.0
                    self._policy.learn(user, arms[chosen], float(reward))
        self._count(chunk, accepted, agrees / propensity)
        self._capped += int(np.count_nonzero(limits > 1 + 1e-9))

    def _count(self, chunk: Chunk, accepted: FloatArray, weight: FloatArray) -> None:
        self._rows += len(chunk)
        self._clicks &= bool(np.isin(chunk.reward, (0.0, 1.0)).all())
        self._sums.add(
            self._groups.of(chunk.user),
            rows=np.ones(len(chunk)),
            accepted=accepted,
            reward=accepted * chunk.reward,
            weight=weight,
            weighted=weight * chunk.reward,
        )

    def ratio(self, num: str, den: str) -> Ratios:
        """Return the ratio of two columns of sums."""
        return Ratios.single(self._sums[num], self._sums[den])

    def result(
        self, kind: str, bootstrap: Callable[[Ratios], Interval], halves: Halves, level: float
    ) -> Replayed:
        """Return the estimates."""
        sums, accepted = self._sums, int(self._sums.total("accepted"))
        if not accepted:
            raise OptionError(
                f"none of {self._rows:,} rows was accepted, with the acceptance constant "
                f"{self._acceptance:.3g}; the policy never chooses what was shown, or the log is "
                "too short"
            )

        def estimate(num: str, den: str) -> Estimate:
            ratios = self.ratio(num, den)
            found = halves.widened(bootstrap(ratios), ratios.value, (num, den), level)
            return Estimate(value=ratios.value, interval=found)

        mean, uncut = self.ratio("weight", "rows"), estimate("reward", "accepted")
        found = Replayed(
            rows=self._rows,
            users=int(np.count_nonzero(sums["accepted"])),
            accepted=accepted,
            acceptance=self._acceptance,
            capped=self._capped / self._rows,
            estimate=uncut.cut(self._clicks),
            weighted=estimate("weighted", "weight").cut(self._clicks),
            mean_weight=Estimate(value=mean.value, interval=of_weights(mean, bootstrap)),
            propensities=kind,
            splits=halves.splits,
            verdict="",
        )
        return replace(found, verdict=_verdict(found, bounded=uncut.interval.bounded))


def _verdict(found: Replayed, *, bounded: bool) -> str:
    """Return the answer; `bounded` is that of the interval before clicks bound it by 0 and 1."""
    rounds = (
        f"{found.accepted:,} rounds with {found.users:,} users, a share of {found.acceptance:.3g} "
        "of the visits"
    )
    enough = found.accepted >= LEAST_EFFECTIVE and found.users >= LEAST_USERS
    reasons = [*weight_problems(found.mean_weight)]
    if not enough:
        reasons.append(f"only {rounds}")
    elif not bounded:
        reasons.append(f"too few different rewards in {rounds}")
    if found.capped > MOST_CAPPED:
        reasons.append(
            f"{found.capped:.0%} of rows have a propensity below the acceptance constant"
        )
    if reasons:
        return f"The log cannot say what this policy would have earned: {'; '.join(reasons)}."
    about = "" if found.splits else " in this run"
    return (
        f"Learning over {rounds}, it would have earned {found.estimate.value:.4g} per decision"
        f"{about} ({interval_text(found.estimate.interval)})."
    )
