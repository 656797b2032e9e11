"""coba: logged interactions of a coba environment as a `dyclu.Log`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

import numpy as np
from coba.primitives import Interaction
from numpy.typing import ArrayLike

from dyclu.data import Log
from dyclu.errors import OptionError, ShapeError


def log_of(
    interactions: Iterable[Interaction],
    *,
    vector: Callable[[Any, Any], ArrayLike],
    user: Callable[[Any], Hashable],
) -> Log:
    """Return the log of a coba environment, in its order.

    Parameters
    ----------
    interactions : iterable of logged interactions
        Such as ``coba.Environments.from_...(...).logged(learner)[0].read()``: each has context,
        action, reward, and, for evaluation, the actions that were possible and the probability.
    vector : callable
        ``vector(context, action)`` are the features of an action in a context.
    user : callable
        ``user(context)`` is the user; ``lambda context: "all"`` if there are none.

    Examples
    --------
    >>> from coba.primitives import LoggedInteraction
    >>> row = LoggedInteraction(("ana", 0.5), "b", 1.0, 0.5, actions=["a", "b"])
    >>> one_hot = {"a": [1.0, 0.0], "b": [0.0, 1.0]}
    >>> log = log_of([row], vector=lambda context, action: one_hot[action], user=lambda c: c[0])
    >>> log.rows, log.dim
    (1, 2)
    """
    tables, users, chosen, rewards, chances = [], [], [], [], []
    for number, row in enumerate(interactions):
        if "action" not in row or "reward" not in row:
            raise OptionError(
                f"interaction {number} has {', '.join(row)}, expected an action and its reward; "
                "simulated interactions are logged by coba.Environments.logged(learner)"
            )
        context, action = row["context"], row["action"]
        actions = list(row.get("actions") or [action])
        if action not in actions:
            raise OptionError(
                f"interaction {number} has the action {action!r}, which is not among its actions"
            )
        tables.append(np.array([vector(context, one) for one in actions], dtype=np.float64))
        users.append(user(context))
        chosen.append(actions.index(action))
        rewards.append(row["reward"])
        chances.append(row.get("probability"))
    return Log.of_arrays(
        user=users,
        arms=_stacked(tables),
        counts=np.array([len(table) for table in tables]),
        chosen=np.array(chosen),
        reward=np.array(rewards, dtype=np.float64),
        propensity=None if None in chances else np.array(chances, dtype=np.float64),
    )


def _stacked(tables: list[Any]) -> Any:
    """Return tables of arms as one array, padded with zeros to equal length."""
    if not tables:
        raise OptionError("there are no interactions; pass an environment that has some")
    shapes = {table.shape[1:] for table in tables}
    if len(shapes) > 1 or len(next(iter(shapes))) != 1:
        raise ShapeError(
            f"vectors have shapes {sorted(map(str, shapes))}, expected the same number of "
            "features for every action; change vector"
        )
    stacked = np.zeros((len(tables), max(map(len, tables)), *next(iter(shapes))))
    for row, table in zip(stacked, tables, strict=True):
        row[: len(table)] = table
    return stacked
