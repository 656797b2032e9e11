"""Which arm is shown in each slot, and with which probability: the policy's, or a baseline's."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from dyclu.policy import Policy, fill_slots, position_of
from dyclu.validation import FloatArray


@dataclass(frozen=True, slots=True)
class ChosenArm:
    """The index of the chosen arm, the reward the policy expects of it, and its propensity."""

    arm: int
    mean: float
    width: float
    propensity: float | None


@dataclass(frozen=True, slots=True)
class Place:
    """A slot that is filled: the row of its arm, its context, and how it was chosen."""

    row: int
    x: FloatArray
    chosen: ChosenArm


@dataclass(frozen=True, slots=True)
class CallersChoice:
    """Rows of the arms that a caller chose, one per slot, and their propensities if known."""

    rows: Sequence[int]
    propensities: Sequence[float | None]


Chooser = Callable[[FloatArray], ChosenArm]
"""Chooses one of the arms that are left for a slot; it is asked for one slot after the other."""


def fill(
    chooser: Chooser, arms: FloatArray, slots: int, position: int | None = None
) -> list[Place]:
    """Return the arm of each slot; `position` is the feature that says where an arm is shown."""
    if slots == 1 and position is None:
        # What most requests ask for, without a copy of the arms.
        made = chooser(arms)
        return [Place(made.arm, arms[made.arm], made)]
    return [Place(row, x, made) for row, x, made in fill_slots(chooser, arms, slots, position)]


def by_policy(
    policy: Policy, user: str, *, epsilon: float, floor: float, draws: Iterator[Draw | None]
) -> Chooser:
    """Return a chooser of the policy's arm, or with probability `epsilon` of any arm.

    `floor` is the least probability of each arm: any arm is drawn at least as often as that needs.
    """

    def chooser(arms: FloatArray) -> ChosenArm:
        share = max(epsilon, floor * len(arms))
        return choose(policy, user, arms, epsilon=share, draw=next(draws))

    return chooser


def choose(
    policy: Policy, user: str, arms: FloatArray, *, epsilon: float, draw: Draw | None
) -> ChosenArm:
    """Return the policy's arm, or with probability `epsilon` any arm; never without a draw."""
    best = policy.decide(user, arms)
    chance = best.propensity
    if draw is None or epsilon == 0:
        return ChosenArm(best.arm, best.mean, best.width, chance)
    taken = draw.below(len(arms)) if draw.uniform < epsilon else best.arm
    expected = best if taken == best.arm else policy.decide(user, arms[taken : taken + 1])
    if chance is not None:
        # A policy that itself chooses at random gives every arm the same chance.
        exploit = chance if taken == best.arm or chance < 1 else 0.0
        chance = epsilon / len(arms) + (1 - epsilon) * exploit
    return ChosenArm(taken, expected.mean, expected.width, chance)


def uniform(policy: Policy, user: str, draws: Iterator[Draw]) -> Chooser:
    """Return a chooser of any arm, each with the same probability."""

    def chooser(arms: FloatArray) -> ChosenArm:
        return expected(policy, user, arms, next(draws).below(len(arms)), 1 / len(arms))

    return chooser


def in_order(policy: Policy, user: str) -> Chooser:
    """Return a chooser of the arms in the order in which they are offered."""
    return lambda arms: expected(policy, user, arms, 0, 1.0)


def expected(
    policy: Policy, user: str, arms: FloatArray, row: int, propensity: float | None
) -> ChosenArm:
    """Return an arm that the policy did not choose, with the reward that it expects."""
    made = policy.decide(user, arms[row : row + 1])
    return ChosenArm(row, made.mean, made.width, propensity)


def given(
    policy: Policy, user: str, arms: FloatArray, chosen: CallersChoice, position: int | None
) -> list[Place]:
    """Return the arms that the caller chose, with the rewards that the policy expects."""
    places = []
    for slot, (row, chance) in enumerate(zip(chosen.rows, chosen.propensities, strict=True), 1):
        x = arms[row].copy()
        if position is not None:
            x[position] = position_of(slot)
        made = expected(policy, user, x[None, :].copy(), 0, chance)
        places.append(Place(row, x, replace(made, arm=row)))
    return places


@dataclass(frozen=True, slots=True)
class Draw:
    """The random numbers of one decision, or one of its slots: a digest of its id with a secret.

    Callers cannot predict it, a repeated request gets the same numbers, and there is no generator
    whose state would have to be saved.

    Examples
    --------
    >>> draw = Draw.of("d-1", secret=b"secret")
    >>> draw == Draw.of("d-1", secret=b"secret"), 0 <= draw.uniform < 1, draw.below(3) in (0, 1, 2)
    (True, True, True)
    """

    uniform: float
    bits: int

    @classmethod
    def of(cls, id: str, *, secret: bytes, purpose: bytes = b"") -> Draw:
        """Return the draw of a decision; another `purpose` gives other numbers."""
        drawn = hashlib.blake2b(id.encode(), key=secret, digest_size=16, person=purpose).digest()
        return cls(int.from_bytes(drawn[:6], "little") / 2**48, int.from_bytes(drawn[8:], "little"))

    @classmethod
    def per_slot(cls, id: str, *, secret: bytes) -> Iterator[Draw]:
        """Yield the draws of a decision's slots, without end."""
        slot = 1
        yield cls.of(id, secret=secret)
        while True:
            slot += 1
            yield cls.of(id, secret=secret, purpose=b"slot %d" % slot)

    def below(self, count: int) -> int:
        """Return one of 0, …, `count` - 1, each with the same probability."""
        return self.bits * count >> 64


def in_control(user: str, share: float, *, secret: bytes) -> bool:
    """Return whether a user belongs to the control group.

    A user stays in it as long as the share does not become less. Nobody without the secret can
    choose names that belong to it.

    >>> sum(in_control(f"u{i}", 0.1, secret=b"secret") for i in range(1000))
    102
    """
    return share > 0 and Draw.of(user, secret=secret, purpose=b"control").uniform < share


def ranking(policy: Policy, user: str, arms: FloatArray) -> Iterator[int]:
    """Yield all arms in the order in which the policy would choose them; one `decide` for each.

    >>> import numpy as np
    >>> from dyclu import LinUCB
    >>> list(ranking(LinUCB(1, alpha=1.0), "ana", np.array([[0.1], [0.3], [0.2]])))
    [1, 2, 0]
    """
    filled = fill_slots(lambda left: policy.decide(user, left), arms, len(arms))
    return (row for row, _, _ in filled)
