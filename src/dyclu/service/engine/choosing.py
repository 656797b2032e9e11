"""`choose`: the policy's choice, or any arm now and then, and the chance it had."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from dyclu.policy import Policy
from dyclu.service.engine.inspect import propensity_of_best
from dyclu.validation import FloatArray


@dataclass(frozen=True, slots=True)
class Choice:
    """An arm by its index, what the policy expects of it, and the chance it had of being it."""

    arm: int
    mean: float
    width: float
    propensity: float | None


def choose(
    policy: Policy, user: str, arms: FloatArray, *, epsilon: float, coin: Coin | None
) -> Choice:
    """Return the policy's choice, or with probability `epsilon` any arm; no coin, no epsilon."""
    best = policy.decide(user, arms)
    chance = propensity_of_best(policy, len(arms))
    if coin is None or epsilon == 0:
        return Choice(best.arm, best.mean, best.width, chance)
    taken = coin.any_of(len(arms)) if coin.share < epsilon else best.arm
    expected = best if taken == best.arm else policy.decide(user, arms[taken : taken + 1])
    if chance is not None:
        # For a policy that is uniform itself every arm has the same chance.
        exploit = chance if taken == best.arm or chance < 1 else 0.0
        chance = epsilon / len(arms) + (1 - epsilon) * exploit
    return Choice(taken, expected.mean, expected.width, chance)


@dataclass(frozen=True, slots=True)
class Coin:
    """Chance for one decision: a keyed digest of its id.

    No caller can foresee it, asking again throws the same, and no generator has to be kept.

    Examples
    --------
    >>> coin = Coin.of("d-1", secret=b"secret")
    >>> coin == Coin.of("d-1", secret=b"secret"), 0 <= coin.share < 1, coin.any_of(3) in (0, 1, 2)
    (True, True, True)
    """

    share: float
    bits: int

    @classmethod
    def of(cls, id: str, *, secret: bytes) -> Coin:
        """Return the coin of a decision."""
        drawn = hashlib.blake2b(id.encode(), key=secret, digest_size=16).digest()
        return cls(int.from_bytes(drawn[:6], "little") / 2**48, int.from_bytes(drawn[8:], "little"))

    def any_of(self, count: int) -> int:
        """Return one of the numbers below `count`, all alike."""
        return self.bits * count >> 64


def ranking(policy: Policy, user: str, arms: FloatArray) -> Iterator[int]:
    """Yield all arms in the order in which the policy would choose them, a decision for each.

    >>> import numpy as np
    >>> from dyclu import LinUCB
    >>> list(ranking(LinUCB(1, alpha=1.0), "ana", np.array([[0.1], [0.3], [0.2]])))
    [1, 2, 0]
    """
    left = list(range(len(arms)))
    while left:
        yield left.pop(policy.decide(user, arms[left]).arm)
