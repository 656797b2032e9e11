"""Evidence under a prior: do two sets of observations share a parameter, also with few data?

With ``θ ~ N(μ, τ²I)`` and rewards ``xᵀθ + N(0, σ²)``, the evidence of a set of rewards is their
probability, averaged over θ. It depends on the sums ``(A, b)`` only, except for a factor that
cancels in comparisons. With ``λ₀ = σ²/τ²`` and ``b̃ = b − Aμ``::

    log Z(A, b) = b̃ᵀ(A + λ₀I)⁻¹b̃ / 2σ² − ½ log det((A + λ₀I)/λ₀)

Two sets resemble each other if one parameter explains them better than two: if ``log Z(S₁+S₂) −
log Z(S₁) − log Z(S₂) > 0``. Without the determinants, and as τ grows, that difference becomes
``−s/2``, where `s` is the statistic of Eq. (1). The determinants add a term for every direction
that both sets have observed. If they have no direction in common, the difference is exactly 0.
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
    """The normal prior of a user's parameter, and the variance of the noise.

    Attributes
    ----------
    mean : array of shape (dim,)
        ``μ``: the mean of the users' parameters.
    variance : float
        ``τ²``: variance of each coordinate of a parameter around the mean.
    noise_variance : float
        ``σ²``: variance of the rewards' noise.
    """

    mean: FloatArray
    variance: float
    noise_variance: float

    @property
    def ridge(self) -> float:
        """``λ₀ = σ²/τ²``: with this ridge, the ridge estimate is the posterior mean."""
        return self.noise_variance / self.variance

    def log_evidence(self, gram: FloatArray, moment: FloatArray) -> float:
        """Return ``log Z`` of the sums ``(A, b)``."""
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
        """Return ``log Z`` of ``(grams[row] + gram, moments[row] + moment)`` for all `rows`."""
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
    Orthogonal contexts cannot be compared. Equal rewards are evidence for one parameter, opposite
    rewards are evidence for two:

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
