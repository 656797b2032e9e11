"""`RandomSource`: a random generator for each decision, without changing any state.

`decide` must not change the policy, so it cannot draw from a generator that the policy stores.
Instead each call makes a new generator from the seed, the number of rewards learnt so far and the
arms. If one of these differs, the random numbers are independent; otherwise they are the same.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from dyclu.errors import KindError, OptionError
from dyclu.validation import FloatArray

Seed = int | np.random.SeedSequence | np.random.Generator


@dataclass(frozen=True, slots=True)
class RandomSource:
    """A source of independent random generators, one per decision.

    Attributes
    ----------
    key : int
        128 random bits that were computed from the seed.

    Examples
    --------
    >>> source, arms = RandomSource.of(7), np.eye(2)
    >>> bool(source.generator(0, arms).random() == source.generator(0, arms).random())
    True
    """

    key: int

    @classmethod
    def of(cls, seed: Seed) -> RandomSource:
        """Return the source for a seed. A seed that is a Generator is advanced by 16 bytes."""
        if isinstance(seed, np.random.Generator):
            return cls(int.from_bytes(seed.bytes(16), "little"))
        words = _sequence(seed).generate_state(2, np.uint64)
        return cls(int(words[0]) | int(words[1]) << 64)

    def generator(self, clock: int, arms: FloatArray) -> np.random.Generator:
        """Return the generator for a decision about `arms` after `clock` rewards."""
        hashed = hashlib.blake2b(digest_size=16, key=self.key.to_bytes(16, "little"))
        hashed.update(clock.to_bytes(16, "little"))
        # -0.0 and 0.0 are equal but have different bytes; adding 0 turns both into 0.0.
        hashed.update((arms + 0.0).tobytes())
        return np.random.Generator(np.random.Philox(key=int.from_bytes(hashed.digest(), "little")))


def _sequence(seed: Any) -> np.random.SeedSequence:
    if isinstance(seed, np.random.SeedSequence):
        return seed
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise KindError(
            f"seed is {seed!r} ({type(seed).__name__}), "
            "expected an int, a numpy SeedSequence or a numpy Generator"
        )
    if seed < 0:
        raise OptionError(f"seed is {seed}, expected an int ≥ 0")
    return np.random.SeedSequence(int(seed))
