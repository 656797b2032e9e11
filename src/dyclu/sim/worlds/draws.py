"""Random draws without replacement, for many rows at once."""

from __future__ import annotations

import numpy as np

from dyclu.validation import Ids


def distinct(rng: np.random.Generator, room: Ids, count: int) -> Ids:
    """Return, for each row, `count` distinct numbers below its `room`, in random order.

    Floyd's algorithm: the i-th number is drawn from the first ``room − count + i + 1``; if the row
    has it already, the last of these is taken, which the row cannot have. The cost does not depend
    on the room.
    """
    last = room[:, None] - count + np.arange(count)
    drawn = rng.integers(last + 1)
    for i in range(1, count):
        taken = (drawn[:, :i] == drawn[:, i : i + 1]).any(axis=1)
        drawn[taken, i] = last[taken, i]
    return rng.permuted(drawn, axis=1)
