"""A log of decisions: who was offered what, what was shown, and what it earned.

A `Log` is read in chunks, in order of time, as often as wanted. Reading changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

from numpy.typing import ArrayLike

from dyclu.data.arms import Arms
from dyclu.data.arrays import chunk_of
from dyclu.data.chunk import CHUNK_NUMBERS, Chunk
from dyclu.data.features import Features
from dyclu.data.offers import Valid
from dyclu.data.reading import Encoder, Reader, Vectoriser
from dyclu.display import html_table
from dyclu.errors import KindError
from dyclu.validation import FloatArray

__all__ = ["Chunk", "Log"]


class Log:
    """Logged decisions in order of time; made by `read`, `read_arms` or `of_arrays`.

    Attributes
    ----------
    dim : int
        Number of features of an arm.
    rows : int or None
        Number of decisions; None where it is known only after reading.
    features : Features, or what stands in their place, or None
        What made the vectors, fitted; None for a log of vectors.
    names : tuple of str or None
        Names of the features of a vector; None if nothing names them.

    Examples
    --------
    >>> arms = [[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [1.0, 1.0]]]
    >>> log = Log.of_arrays(user=["ana", "ben"], arms=arms, chosen=[0, 1], reward=[1.0, 0.0])
    >>> log.rows, log.dim
    (2, 2)
    >>> for chunk in log.chunks():
    ...     print(chunk.user, chunk.contexts)
    ['ana' 'ben'] [[1. 0.]
     [1. 1.]]
    """

    def __init__(
        self,
        chunks: Callable[[], Iterator[Chunk]],
        *,
        dim: int,
        rows: int | None,
        features: Any = None,
        names: tuple[str, ...] | None = None,
    ) -> None:
        self.dim = dim
        self.rows = rows
        self.features = features
        self.names = names
        self._chunks = chunks

    @classmethod
    def read(
        cls,
        table: Any,
        *,
        features: Vectoriser,
        user: str,
        reward: str,
        arm: str | None = None,
        time: str | None = None,
        propensity: str | None = None,
        decision: str | None = None,
        items: Any = None,
        offered: str | Valid | None = None,
        separator: str = "|",
    ) -> Log:
        """Return a log of a table with one row per decision.

        Nothing is read before it is needed, except what features are fitted on.

        Parameters
        ----------
        table : data frame, DuckDB relation, list of dicts, or path of a CSV or Parquet file
            The rows, in order of time.
        features : Features
            How vectors are made. If they are not fitted, they are fitted on this log: columns of
            the context on its rows, columns of arms on `items`, or on the rows without it.
        user, reward, arm, time, propensity, decision : str
            Names of columns: the user; the reward of what was shown; the id of what was shown, if
            there are `items`; the time, in seconds or as a date; the probability with which it was
            shown; the id of the decision.
        items : as `table`, or None
            One row per item, with its id in a column named as `arm`. Without it, columns of arms
            are those of the rows, and only the shown arm is known.
        offered : str, Valid or None
            A column that lists the ids of the offered items; or `Valid`, for all items that were
            valid at the row's time. None: only the shown arm is known, which is enough to learn
            from, and not enough to evaluate another policy.
        separator : str
            What stands between ids that are written as one text.

        Examples
        --------
        >>> from dyclu import Features
        >>> log = Log.read(
        ...     [{"who": "ana", "clicked": 1, "shown": "b", "candidates": ["a", "b"]}],
        ...     user="who", reward="clicked", arm="shown", offered="candidates",
        ...     items=[{"shown": "a", "price": 2.0}, {"shown": "b", "price": 4.0}],
        ...     features=Features(arm={"price": "number"}),
        ... )
        >>> [chunk.arms.tolist() for chunk in log.chunks()]
        [[[[1.0, -1.0], [1.0, 1.0]]]]
        """
        if not isinstance(features, Encoder):
            raise KindError(
                f"features are {features!r}, expected dyclu.Features, or what stands in their place"
            )
        roles = {"user": user, "reward": reward, "arm": arm, "time": time}
        roles |= {"propensity": propensity, "decision": decision}
        named = {role: column for role, column in roles.items() if column is not None}
        reader = Reader(table, named, items, offered, separator, features).fitted()
        fitted = reader.features
        names = fitted.names if isinstance(fitted, Features) else None
        rows = reader.table.rows
        return cls(reader.chunks, dim=fitted.dim, rows=rows, features=fitted, names=names)

    @classmethod
    def read_arms(
        cls,
        table: Any,
        *,
        decision: str = "decision",
        user: str = "user",
        shown: str = "shown",
        reward: str = "reward",
        propensity: str | None = "propensity",
        time: str | None = None,
    ) -> Log:
        """Return a log of a table with one row per offered arm: `dyclu export --arms` writes it.

        Rows of one decision stand together; one of them was shown. Columns that are not named here,
        other than ``slot``, ``group``, ``arm`` and ``time``, are the arm's vector, in their order.

        Parameters
        ----------
        table : data frame, DuckDB relation, list of dicts, or path of a CSV or Parquet file
            The rows, in order of time.
        decision, user, shown, reward, propensity, time : str
            Names of columns: the id of the decision; its user; 1 in the row of the arm that was
            shown, else 0; and in this row its reward, the probability with which it was shown, and
            the time, in seconds or as a date. A column ``slot`` tells choices for one page apart.

        Examples
        --------
        >>> log = Log.read_arms([
        ...     {"decision": "d1", "user": "ana", "shown": 0, "propensity": None, "reward": None,
        ...      "price": 2.0},
        ...     {"decision": "d1", "user": "ana", "shown": 1, "propensity": 0.5, "reward": 1.0,
        ...      "price": 4.0},
        ... ])
        >>> [(chunk.arms.tolist(), chunk.chosen.tolist()) for chunk in log.chunks()]
        [([[[2.0], [4.0]]], [1])]
        """
        roles = {"decision": decision, "user": user, "shown": shown, "reward": reward}
        optional = {"propensity": propensity, "time": time}
        roles |= {role: column for role, column in optional.items() if column is not None}
        arms = Arms(table, roles)
        return cls(arms.chunks, dim=len(arms.names), rows=None, names=arms.names)

    @classmethod
    def of_arrays(
        cls,
        *,
        user: Iterable[Hashable],
        arms: ArrayLike,
        chosen: ArrayLike,
        reward: ArrayLike,
        propensity: ArrayLike | None = None,
        time: ArrayLike | None = None,
        counts: ArrayLike | None = None,
        decision: Iterable[Hashable] | None = None,
    ) -> Log:
        """Return a log of arrays with one entry per row; see `Chunk` for their meaning."""
        whole = chunk_of(
            user=user,
            arms=arms,
            chosen=chosen,
            reward=reward,
            propensity=propensity,
            time=time,
            counts=counts,
            decision=decision,
        )
        rows, most, dim = whole.arms.shape
        size = max(1, CHUNK_NUMBERS // (most * dim))

        def chunks() -> Iterator[Chunk]:
            for start in range(0, rows, size):
                yield whole.part(start, start + size)

        return cls(chunks, dim=dim, rows=rows)

    def _repr_html_(self) -> str:
        """Return the log as notebooks show it; nothing is read for it."""
        rows = "known after reading" if self.rows is None else self.rows
        names = None if self.names is None else ", ".join(self.names)
        return html_table("Log", [("decisions", rows), ("features", self.dim), ("names", names)])

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows in order of time, some thousands at a time."""
        return self._chunks()

    def observations(self) -> Iterator[tuple[list[Any], FloatArray, FloatArray]]:
        """Yield users, contexts (n, dim) and rewards (n,) of what was shown, for `policy.fit`."""
        for chunk in self.chunks():
            yield chunk.user.tolist(), chunk.contexts, chunk.reward
