"""scikit-learn: a policy as an estimator, for `clone`, pipelines and searches over its options."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from dyclu.errors import KindError, OptionError
from dyclu.policies import make
from dyclu.policy import Policy
from dyclu.validation import FloatArray, User


class PolicyRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Predicts rewards by a policy that has learnt the rows in their order.

    One column of X is the user; all others are features. ``predict`` returns the reward that the
    policy expects; ``policy_`` is the policy, which decides as usual. Rows must be in order of
    time: cross-validate with `sklearn.model_selection.TimeSeriesSplit`.

    Parameters
    ----------
    policy : str
        A name of `dyclu.policies.names`.
    user : str or int
        The column of users: its name if X is a pandas frame, its number if X is an array.
    **options
        Options of the policy. `get_params` lists those that were given, and `set_params` sets them.

    Examples
    --------
    >>> from sklearn.base import clone
    >>> X = np.array([[1, 1.0, 0.0], [1, 0.0, 1.0], [1, 1.0, 0.0], [1, 0.0, 1.0]])
    >>> model = clone(PolicyRegressor("linucb", alpha=0.3)).fit(X, [1.0, 0.0, 1.0, 0.0])
    >>> model.get_params()
    {'alpha': 0.3, 'policy': 'linucb', 'user': 0}
    >>> model.predict(X[:2]).round(1)
    array([1., 0.])
    """

    policy_: Policy

    def __init__(self, policy: str = "atlas", *, user: str | int = 0, **options: Any) -> None:
        self.policy = policy
        self.user = user
        self._options = sorted(options)
        for name, value in options.items():
            setattr(self, name, value)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return all parameters, those of the policy among them."""
        return {name: getattr(self, name) for name in [*self._options, "policy", "user"]}

    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Learn all rows, with a new policy."""
        _, contexts = self._split(X)
        options = {name: getattr(self, name) for name in self._options}
        self.policy_ = make(self.policy, contexts.shape[1], **options)
        return self.partial_fit(X, y)

    def partial_fit(self, X: Any, y: ArrayLike) -> Self:
        """Learn more rows."""
        users, contexts = self._split(X)
        if "policy_" not in vars(self):
            return self.fit(X, y)
        self.n_features_in_ = contexts.shape[1] + 1
        for user, context, reward in zip(users, contexts, np.asarray(y, float), strict=True):
            self.policy_.learn(user, context, reward)
        return self

    def predict(self, X: Any) -> FloatArray:
        """Return the reward that the policy expects of each row, for its user."""
        check_is_fitted(self)
        users, contexts = self._split(X)
        rows = zip(users, contexts, strict=True)
        return np.array([self.policy_.decide(user, [context]).mean for user, context in rows])

    def _split(self, X: Any) -> tuple[list[User], FloatArray]:
        """Return users and contexts."""
        if isinstance(self.user, str):
            if isinstance(X, np.ndarray):
                raise KindError(
                    f"X is an array, which has no column {self.user!r}; pass a pandas frame, or "
                    "the number of the column as user"
                )
            return X[self.user].tolist(), X.drop(columns=self.user).to_numpy(dtype=np.float64)
        table = np.asarray(X)
        if table.ndim != 2 or not -table.shape[1] <= self.user < table.shape[1]:
            raise OptionError(
                f"user is {self.user}, X has shape {table.shape}; expected the number of a column"
            )
        contexts = np.delete(table, self.user, axis=1).astype(np.float64)
        return [_as_id(value) for value in table[:, self.user].tolist()], contexts


def _as_id(value: Any) -> Any:
    """Return a user of an array; in an array of floats users are whole numbers.

    >>> _as_id(3.0), _as_id("ana")
    (3, 'ana')
    """
    return int(value) if isinstance(value, float) and value.is_integer() else value
