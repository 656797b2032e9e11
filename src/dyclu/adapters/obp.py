"""Open Bandit Pipeline: its `bandit_feedback` as a `dyclu.Log`. It does not import obp."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from dyclu.data import Log
from dyclu.errors import OptionError, ShapeError
from dyclu.validation import FloatArray

NEEDED = ("n_actions", "action", "reward", "action_context")


def log_of(feedback: Mapping[str, Any], *, user: Sequence[Hashable] | None = None) -> Log:
    """Return a log of bandit feedback, in its order.

    The vector of an action is its `action_context`. `pscore` are the propensities; where a page has
    several slots, they are those given the slot, and each row is a decision of its own.

    Parameters
    ----------
    feedback : dict
        As `obtain_batch_bandit_feedback` of obp's datasets returns it: `n_actions`, `action`,
        `reward`, `action_context`, and perhaps `pscore`.
    user : sequence of str or int, or None
        One per row. Open Bandit's data have no users: None takes all rows for those of one user,
        so that intervals over users cannot be had; pass a group of the context, such as a segment.

    Examples
    --------
    >>> feedback = {"n_actions": 2, "action": [0, 1], "reward": [1, 0], "pscore": [0.5, 0.5],
    ...             "action_context": [[1.0, 0.0], [0.0, 1.0]]}
    >>> log = log_of(feedback, user=["ana", "ben"])
    >>> log.rows, log.dim
    (2, 2)
    """
    missing = [name for name in NEEDED if feedback.get(name) is None]
    if missing:
        raise OptionError(
            f"the feedback has no {', '.join(missing)}, expected the dict that obp's "
            "obtain_batch_bandit_feedback returns"
        )
    action = np.asarray(feedback["action"])
    vectors: FloatArray = np.asarray(feedback["action_context"], dtype=np.float64)
    if vectors.ndim != 2 or len(vectors) != feedback["n_actions"]:
        raise ShapeError(
            f"action_context has shape {vectors.shape}, expected one row for each of the "
            f"{feedback['n_actions']} actions"
        )
    return Log.of_arrays(
        user=["all"] * len(action) if user is None else user,
        arms=np.broadcast_to(vectors, (len(action), *vectors.shape)),
        chosen=action,
        reward=np.asarray(feedback["reward"], dtype=np.float64),
        propensity=feedback.get("pscore"),
    )
