"""Evidence with a prior: Eq. (1)'s question, answered also by data that span nothing.

With ``θ ~ N(μ, τ²I)`` and rewards ``xᵀθ + N(0, σ²)``, the chance of a set of rewards, θ averaged
over, depends on their sums ``(A, b)`` alone, up to a factor that the same rewards always bring.
With ``λ₀ = σ²/τ²`` and ``b̃ = b − Aμ`` it is::

    log Z(A, b) = b̃ᵀ(A + λ₀I)⁻¹b̃ / 2σ² − ½ log det((A + λ₀I)/λ₀)

Two sets resemble each other if together they are more likely than apart: if ``log Z(S₁+S₂) −
log Z(S₁) − log Z(S₂) > 0``. Without its determinants, and as τ grows, that difference is ``−s/2``,
`s` being the statistic of Eq. (1). The determinants are what every direction that both have seen
must be paid with; two users who have seen none in common get exactly 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dyclu import kernels
from dyclu.core.ridge import solve
from dyclu.core.stats import Stats
from dyclu.errors import ShapeError
from dyclu.validation import FloatArray, Ids, as_positive


@dataclass(frozen=True, slots=True, eq=False)
class Prior:
    """What is expected of a parameter nobody has seen yet, and how loud the noise is.

    Attributes
    ----------
    mean : array of shape (dim,)
        ``μ``: what people like on the whole.
    variance : float
        ``τ²``: variance of each coordinate of a parameter around it.
    noise_variance : float
        ``σ²``: variance of the rewards' noise.
    """

    mean: FloatArray
    variance: float
    noise_variance: float

    @property
    def ridge(self) -> float:
        """``λ₀ = σ²/τ²``: the ridge for which the ridge estimate is the posterior mean."""
        return self.noise_variance / self.variance

    def log_evidence(self, gram: FloatArray, moment: FloatArray) -> float:
        """Return ``log Z`` of the sums of some observations."""
        return float(
            kernels.evidence.log_evidence(gram, moment, self.mean, self.ridge, self.noise_variance)
        )

    def log_evidences(
        self,
        grams: FloatArray,
        moments: FloatArray,
        rows: Ids,
        gram: FloatArray,
        moment: FloatArray,
    ) -> FloatArray:
        """Return ``log Z`` of each of the models `rows` of a stack with some observations added."""
        out = np.empty(len(rows))
        kernels.evidence.log_evidences(
            grams, moments, rows, gram, moment, self.mean, self.ridge, self.noise_variance, out
        )
        return out

    def posterior(self, gram: FloatArray, moment: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return mean and covariance (in units of σ²) of θ: ``A_λ⁻¹(b + λ₀μ)`` and ``A_λ⁻¹``."""
        theta, inverse = np.empty(len(moment)), np.empty(gram.shape)
        if kernels.evidence.posterior(gram, moment, self.mean, self.ridge, theta, inverse):
            return theta, inverse
        inverse = solve(gram, np.eye(len(moment)), ridge=self.ridge)
        return self.mean + inverse @ (moment - gram @ self.mean), inverse


def resemblance(a: Stats, b: Stats, *, noise: float, spread: float) -> float:
    """Return the log Bayes factor of *one parameter* against *two*, with ``θ ~ N(0, τ²I)``.

    Parameters
    ----------
    a, b : Stats
        Two sets of observations.
    noise : float
        Standard deviation σ of the rewards.
    spread : float
        Standard deviation τ of a parameter's coordinates.

    Examples
    --------
    Contexts at right angles tell nothing of each other; the same reward twice speaks for one
    parameter, opposite rewards against:

    >>> a = Stats.of([1.0, 0.0], 1.0)
    >>> abs(resemblance(a, Stats.of([0.0, 1.0], 1.0), noise=0.1, spread=1.0)) < 1e-9
    True
    >>> round(resemblance(a, a, noise=0.1, spread=1.0), 1)
    2.5
    >>> round(resemblance(a, Stats.of([1.0, 0.0], -1.0), noise=0.1, spread=1.0), 1)
    -97.0
    """
    if a.dim != b.dim:
        raise ShapeError(
            f"cannot compare statistics of {a.dim} and {b.dim} features; "
            "both must be made from contexts of the same length"
        )
    prior = Prior(
        np.zeros(a.dim), as_positive(spread, "spread") ** 2, as_positive(noise, "noise") ** 2
    )
    together, first, second = (
        prior.log_evidence(s.gram.copy(), s.moment.copy()) for s in (a + b, a, b)
    )
    return together - first - second
