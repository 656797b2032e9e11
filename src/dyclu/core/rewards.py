"""Laws of rewards: from the score ``xᵀθ`` of an arm to its expected reward and its density.

Worlds draw rewards from a `Law`. A policy that is told the law computes with the same formulas.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import scipy

from dyclu.errors import OptionError
from dyclu.validation import FloatArray, as_positive, as_within

Kind = Literal["gaussian", "student", "logistic", "linear"]

LARGEST = 1e6
"""Largest size of an offset or a slope."""

RAREST = 1e-3
"""Least probability of either value of a 0/1 reward whose chance is linear in the score."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """The distribution of a reward, given the score ``s = xᵀθ`` of the chosen arm.

    With ``z = offset + slope · s``:

    =========  =========================  ================================================
    kind       expected reward            distribution
    =========  =========================  ================================================
    gaussian   z                          normal, of standard deviation `noise`
    student    z                          Student's t, of standard deviation `noise`
    logistic   1 / (1 + exp(−z))          0 or 1
    linear     z, within 0.001 and 0.999  0 or 1
    =========  =========================  ================================================

    Attributes
    ----------
    kind : str
        A name from the table.
    offset, slope : float
        Coefficients of ``z``.
    noise : float
        Standard deviation of a reward that is not 0 or 1.
    freedom : float
        Degrees of freedom of ``student``, above 2; less of them make heavier tails.

    Examples
    --------
    >>> clicks = Law(kind="linear", offset=0.5, slope=0.5)
    >>> clicks.mean(np.array([-1.0, 0.0, 0.6]))
    array([0.001, 0.5  , 0.8  ])
    >>> np.exp(clicks.log_density(1.0, np.array([0.6]))).round(9)
    array([0.8])
    """

    kind: Kind = "gaussian"
    offset: float = 0.0
    slope: float = 1.0
    noise: float = 0.1
    freedom: float = 3.0

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise OptionError(
                f"kind is {self.kind!r}, expected a law of rewards; "
                f"choose one of {', '.join(get_args(Kind))}"
            )
        for name in ("offset", "slope"):
            object.__setattr__(self, name, as_within(getattr(self, name), name, -LARGEST, LARGEST))
        for name in ("noise", "freedom"):
            object.__setattr__(self, name, as_positive(getattr(self, name), name))
        if self.freedom <= 2:
            raise OptionError(
                f"freedom is {self.freedom}, expected more than 2; "
                "with fewer degrees of freedom the variance is infinite"
            )

    @property
    def binary(self) -> bool:
        """Whether rewards are 0 or 1."""
        return self.kind in ("logistic", "linear")

    def mean(self, scores: FloatArray) -> FloatArray:
        """Return the expected rewards of arms with these scores."""
        z = self._argument(scores)
        if self.kind == "logistic":
            return np.asarray(scipy.special.expit(z))
        return np.clip(z, RAREST, 1 - RAREST) if self.kind == "linear" else z

    def draw(self, rng: np.random.Generator, count: int) -> FloatArray:
        """Return the random parts of rewards: errors, or uniform numbers if rewards are 0 or 1.

        The reward is the mean plus the error; or 1 if the uniform number is below the mean.
        """
        if self.binary:
            return rng.random(count)
        if self.kind == "student":
            return self._scale * rng.standard_t(self.freedom, count)
        return self.noise * rng.standard_normal(count)

    def log_density(self, reward: float, scores: FloatArray) -> FloatArray:
        """Return the log density of a reward for each score; of 0 and 1, the log probability."""
        if self.kind == "logistic":
            sign = 1 if reward > 0 else -1
            return np.asarray(scipy.special.log_expit(sign * self._argument(scores)))
        mean = self.mean(scores)
        if self.kind == "linear":
            return np.log(mean if reward > 0 else 1 - mean)
        if self.kind == "gaussian":
            error: FloatArray = (reward - mean) / self.noise
            return -0.5 * error**2 - math.log(self.noise * math.sqrt(2 * math.pi))
        return self._log_student(reward - mean)

    def _argument(self, scores: FloatArray) -> FloatArray:
        return self.offset + self.slope * scores

    @property
    def _scale(self) -> float:
        """Factor of a standard t variable, whose variance is ``ν / (ν − 2)``."""
        return self.noise * math.sqrt((self.freedom - 2) / self.freedom)

    def _log_student(self, errors: FloatArray) -> FloatArray:
        half, scale = self.freedom / 2, self._scale
        constant = math.lgamma(half + 0.5) - math.lgamma(half)
        constant -= math.log(scale * math.sqrt(math.pi * self.freedom))
        return constant - (half + 0.5) * np.log1p((errors / scale) ** 2 / self.freedom)
