"""Estimators of the value of a policy: each is a ratio of two sums over the rows of a log.

The terms of a row come from four numbers: the weight ``w = π(a) / p`` of the shown arm (its
probability under the policy by its propensity), its reward r, its expected reward q(a), and the
policy's expected reward ``v = Σ_b π(b) q(b)``. Derivations: docs/evaluation.md, section 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dyclu.evaluate.groups import GroupSums
from dyclu.evaluate.intervals import Ratios
from dyclu.validation import FloatArray, Ids

THRESHOLDS = (2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
"""Weights from which SWITCH may trust the model of rewards; it takes one of them, or none."""

METHODS = {
    "dm": "direct method",
    "ips": "inverse propensity scoring",
    "snips": "self-normalised IPS",
    "dr": "doubly robust",
    "switch": "SWITCH",
}
"""The estimators, by their short names."""

_TAILS = tuple(f"tail{i}" for i in range(len(THRESHOLDS)))


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """What a policy's estimators need of each row; arrays of shape (rows,).

    Attributes
    ----------
    weight : array
        ``w = π(a) / p``.
    reward, expected : array
        r and q(a) of the arm that was shown.
    value : array
        ``v = Σ_b π(b) q(b)``.
    """

    weight: FloatArray
    reward: FloatArray
    expected: FloatArray
    value: FloatArray


class Sums:
    """Sums of the terms of one policy, per group of users.

    Examples
    --------
    Two arms, shown with probability 1/2 each; the policy always shows the second one.

    >>> sums = Sums()
    >>> sums.add(
    ...     np.array([0, 1]),
    ...     Terms(np.array([0.0, 2.0]), np.array([1.0, 3.0]), np.zeros(2), np.zeros(2)),
    ... )
    >>> sums.ratios("ips").value, sums.ratios("snips").value
    (3.0, 3.0)
    """

    def __init__(self) -> None:
        self._sums = GroupSums("rows", "weight", "weighted", "value", "correction", *_TAILS)
        self.largest = 0.0
        self.squares = 0.0
        self.unused = 0
        self._heavy = np.zeros(len(THRESHOLDS))

    def add(self, groups: Ids, terms: Terms) -> None:
        """Add rows."""
        weight = terms.weight
        correction = weight * (terms.reward - terms.expected)
        heavy = [weight > threshold for threshold in THRESHOLDS]
        self._sums.add(
            groups,
            rows=np.ones(len(groups)),
            weight=weight,
            weighted=weight * terms.reward,
            value=terms.value,
            correction=correction,
            **{name: correction * above for name, above in zip(_TAILS, heavy, strict=True)},
        )
        self._heavy += [float(weight[above].sum()) for above in heavy]
        self.largest = max(self.largest, float(weight.max(initial=0.0)))
        self.squares += float(weight @ weight)
        self.unused += int(np.count_nonzero(weight == 0))

    @property
    def rows(self) -> FloatArray:
        """Number of rows per group."""
        return self._sums["rows"]

    @property
    def weight(self) -> FloatArray:
        """Sum of the weights per group."""
        return self._sums["weight"]

    def numerator(self, method: str, threshold: float = math.inf) -> FloatArray:
        """Return the sums of a method's terms per group, Eq. (E2) to (E6)."""
        sums = self._sums
        match method:
            case "dm":
                return sums["value"]
            case "ips" | "snips":
                return sums["weighted"]
            case "dr":
                return sums["value"] + sums["correction"]
            case "switch":
                return sums["value"] + sums["correction"] - self._tail(threshold)
        raise ValueError(f"no estimator is called {method!r}; choose from {', '.join(METHODS)}")

    def ratios(self, method: str, threshold: float = math.inf) -> Ratios:
        """Return the estimator as a ratio of sums per group."""
        below = self.weight if method == "snips" else self.rows
        return Ratios.single(self.numerator(method, threshold), below)

    def threshold(self, span: float) -> float:
        """Return the threshold of SWITCH with the smallest bound of the squared error, Eq. (E7).

        `span` is the largest reward minus the smallest one; infinity means: trust all weights.
        """
        # Infinity is first: of equal candidates it is taken.
        biases = np.append(0.0, self._heavy) / self.rows.sum() * span
        candidates = (math.inf, *THRESHOLDS)
        errors = np.array([self.ratios("switch", one).error for one in candidates])
        return candidates[int(np.argmin(errors**2 + biases**2))]

    def _tail(self, threshold: float) -> FloatArray:
        if math.isinf(threshold):
            return np.zeros(len(self.rows))
        return self._sums[_TAILS[THRESHOLDS.index(threshold)]]
