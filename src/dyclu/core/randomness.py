"""`Chance`: randomness that asking does not use up.

`decide` must change nothing, so it cannot draw from a generator that moves on. Instead every
question gets a generator of its own, determined by the seed, the number of rewards learnt so far
and the arms offered: the same question at the same time has the same answer, another question or a
later time an independent one.
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
class Chance:
    """A source of independent generators, one per question.

    Attributes
    ----------
    key : int
        128 random bits that stand for the seed.

    Examples
    --------
    >>> chance, arms = Chance.of(7), np.eye(2)
    >>> bool(chance.generator(0, arms).random() == chance.generator(0, arms).random())
    True
    """

    key: int

    @classmethod
    def of(cls, seed: Seed) -> Chance:
        """Return the source for a seed; a Generator given as one is advanced by this."""
        if isinstance(seed, np.random.Generator):
            return cls(int.from_bytes(seed.bytes(16), "little"))
        words = _sequence(seed).generate_state(2, np.uint64)
        return cls(int(words[0]) | int(words[1]) << 64)

    def generator(self, clock: int, arms: FloatArray) -> np.random.Generator:
        """Return the generator for the question about `arms` after `clock` rewards."""
        asked = hashlib.blake2b(digest_size=16, key=self.key.to_bytes(16, "little"))
        asked.update(clock.to_bytes(16, "little"))
        # Adding 0 makes -0.0 and 0.0, which are the same number, the same bytes.
        asked.update((arms + 0.0).tobytes())
        return np.random.Generator(np.random.Philox(key=int.from_bytes(asked.digest(), "little")))


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
