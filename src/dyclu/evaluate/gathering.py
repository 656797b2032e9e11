"""One pass over a log: the sums of all policies, per group of users."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from dyclu.data import Chunk, Log
from dyclu.errors import OptionError
from dyclu.evaluate.estimators import Sums, Terms
from dyclu.evaluate.groups import GroupSums, UserGroups
from dyclu.evaluate.intervals import Ratios
from dyclu.evaluate.propensities import ChoiceModel
from dyclu.evaluate.reward_model import RewardModel, Rewards, given_rewards
from dyclu.evaluate.targets import Target, probabilities
from dyclu.validation import FloatArray, Ids

LOGGED, ESTIMATED = "logged", "estimated"

Propensity = Callable[[Chunk], FloatArray]
"""Probability of the arm that was shown, for each row of a chunk."""


@dataclass(slots=True)
class Gathered:
    """Sums over a log.

    Attributes
    ----------
    groups : UserGroups
        Groups of users.
    rewards : GroupSums
        Number of rows, and their rewards.
    sums : dict of str to Sums
        By policy.
    low, high : float
        Smallest and largest reward.
    clicks : bool
        Whether all rewards are 0 or 1.
    """

    groups: UserGroups
    sums: dict[str, Sums]
    low: float
    high: float
    clicks: bool = True
    rewards: GroupSums = field(default_factory=lambda: GroupSums("rows", "reward"))

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest reward: those of the log, and 0 and 1 for clicks."""
        return (0.0, 1.0) if self.clicks else (self.low, self.high)

    @property
    def logged(self) -> Ratios:
        """The mean reward of the log."""
        return Ratios.single(self.rewards["reward"], self.rewards["rows"])


def gathered(
    log: Log, policies: Mapping[str, Target], propensity: Propensity, model: Rewards | None
) -> Gathered:
    """Return the sums of all policies, after two passes over the log."""
    groups = UserGroups()
    own = RewardModel.fitted(log, groups)
    found = Gathered(groups, {name: Sums() for name in policies}, own.low, own.high)
    for chunk in log.chunks():
        members = groups.of(chunk.user)
        expected = own.rewards(chunk, members) if model is None else _given(model, chunk, own)
        found.rewards.add(members, rows=np.ones(len(chunk)), reward=chunk.reward)
        found.clicks &= bool(np.isin(chunk.reward, (0.0, 1.0)).all())
        _add(found.sums, policies, chunk, members, expected, propensity(chunk))
    return found


def _given(model: Rewards, chunk: Chunk, own: RewardModel) -> FloatArray:
    return np.clip(given_rewards(model, chunk), own.low, own.high)


def _add(
    sums: Mapping[str, Sums],
    policies: Mapping[str, Target],
    chunk: Chunk,
    members: Ids,
    expected: FloatArray,
    propensity: FloatArray,
) -> None:
    """Add the rows of a chunk to the sums of every policy."""
    rows = np.arange(len(chunk))
    for name, target in policies.items():
        chances = probabilities(target, chunk, name)
        terms = Terms(
            weight=chances[rows, chunk.chosen] / propensity,
            reward=chunk.reward,
            expected=expected[rows, chunk.chosen],
            value=(chances * expected).sum(axis=1),
        )
        sums[name].add(members, terms)


def logging_policy(log: Log, wanted: str | None) -> tuple[str, Propensity]:
    """Return "logged" or "estimated", and the propensities of a chunk."""
    if wanted not in (None, LOGGED, ESTIMATED):
        raise OptionError(
            f"propensities is {wanted!r}, expected {LOGGED!r}, {ESTIMATED!r} or None: those of the "
            "log if it has them"
        )
    first = next(log.chunks(), None)
    if first is None or not len(first):
        raise OptionError("the log is empty, expected at least one row; check its filter or file")
    _check_choice(log)
    if wanted != ESTIMATED and first.propensity is not None:
        return LOGGED, _logged
    if wanted == LOGGED:
        raise OptionError(
            "the log has no propensities; pass propensities='estimated', or log the probability "
            "with which each shown arm was chosen"
        )
    return ESTIMATED, ChoiceModel.fitted(log).propensity


def _check_choice(log: Log) -> None:
    """Refuse a log without any choice; reads up to the first row that has one."""
    if all((chunk.counts == 1).all() for chunk in log.chunks()):
        raise OptionError(
            "every row of the log offers one arm: only the shown arm is known, expected all arms "
            "that could have been shown; add the column of what was offered (offered=...)"
        )


def _logged(chunk: Chunk) -> FloatArray:
    if chunk.propensity is None:
        raise OptionError(
            "part of the log has no propensities; evaluate the part that has them, or pass "
            "propensities='estimated'"
        )
    return chunk.propensity
