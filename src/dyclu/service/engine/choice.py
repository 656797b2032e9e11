"""`choose`: the policy's arm, or with probability epsilon a random one, and its propensity."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from dyclu.policy import Policy
from dyclu.validation import FloatArray


@dataclass(frozen=True, slots=True)
class ChosenArm:
    """The index of the chosen arm, the reward the policy expects of it, and its propensity."""

    arm: int
    mean: float
    width: float
    propensity: float | None


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


@dataclass(frozen=True, slots=True)
class Draw:
    """The random numbers of one decision: a digest of its id with a secret key.

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
    def of(cls, id: str, *, secret: bytes) -> Draw:
        """Return the draw of a decision."""
        drawn = hashlib.blake2b(id.encode(), key=secret, digest_size=16).digest()
        return cls(int.from_bytes(drawn[:6], "little") / 2**48, int.from_bytes(drawn[8:], "little"))

    def below(self, count: int) -> int:
        """Return one of 0, …, `count` - 1, each with the same probability."""
        return self.bits * count >> 64


def ranking(policy: Policy, user: str, arms: FloatArray) -> Iterator[int]:
    """Yield all arms in the order in which the policy would choose them; one `decide` for each.

    >>> import numpy as np
    >>> from dyclu import LinUCB
    >>> list(ranking(LinUCB(1, alpha=1.0), "ana", np.array([[0.1], [0.3], [0.2]])))
    [1, 2, 0]
    """
    left = list(range(len(arms)))
    while left:
        yield left.pop(policy.decide(user, arms[left]).arm)
