"""Features by name: from columns of a product's tables to the vectors that policies take, and back.

A raw vector is the block of the arm's columns, the block of the context's, and the products that
``cross`` names. With ``reduce`` it is projected on the directions that a log needs most. An
intercept stays outside of both, as the first feature.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dyclu.data.catalogue import Catalogue
from dyclu.data.fitting import fitted_on
from dyclu.data.tables.cells import Columns
from dyclu.data.tables.table import batches
from dyclu.data.vectors.columns import Column
from dyclu.data.vectors.declaration import Declaration
from dyclu.data.vectors.kinds import kinds_in_files
from dyclu.data.vectors.vectors import INTERCEPT, Vectors
from dyclu.data.vectors.versions import differences
from dyclu.data.vectors.weights import Weight, ranked
from dyclu.display import html_table
from dyclu.errors import ForeignFile, KindError, OptionError
from dyclu.storage import Saved, damaged_on_error, read, write
from dyclu.validation import FloatArray, Ids, as_floats

KIND = "Features"
"""Name of features in files."""


class Features:
    """Declared columns, and the vectors made of them. A value: no method changes it.

    Parameters
    ----------
    arm, context : dict of str to column
        Columns of what can be shown, and of the user and the situation: ``"number"``,
        ``"category"``, ``"text"``, a dict with a ``kind`` and options, or one of the classes
        `Number`, `Category` and `Text`.
    cross : list of pairs of str
        Pairs of a column of the context and a column of the arm; the products of their features
        are features too.
    intercept : bool
        Whether the first feature is the constant 1.
    reduce : int or None
        Project the features, without the intercept, on this many directions, fitted on a log.
    loadings : array of shape (raw width, reduce) or None
        The fitted directions, as columns.

    Examples
    --------
    >>> shop = Features(
    ...     arm={"genre": {"kind": "category", "values": ["jazz", "rock"]},
    ...          "price": {"kind": "number", "mean": 10, "scale": 5}},
    ... )
    >>> shop.names
    ('intercept', 'price', 'genre=jazz', 'genre=rock', 'genre=(other)')
    >>> shop.vectors([{"genre": "rock", "price": 15}, {"genre": "folk", "price": None}])
    array([[1., 1., 0., 1., 0.],
           [1., 0., 0., 0., 1.]])
    >>> shop.explain([0.1, 0.0, 0.5, -0.2, 0.0], top=2)
    (Weight(name='genre=jazz', weight=0.5), Weight(name='genre=rock', weight=-0.2))
    """

    def __init__(
        self,
        *,
        arm: Mapping[str, Any] | None = None,
        context: Mapping[str, Any] | None = None,
        cross: Iterable[Sequence[str]] = (),
        intercept: bool = True,
        reduce: int | None = None,
        loadings: ArrayLike | None = None,
    ) -> None:
        parts = {"arm": arm, "context": context, "intercept": intercept, "reduce": reduce}
        self._declared = Declaration.of(parts | {"cross": tuple(cross)})
        self.loadings = None if loadings is None else as_floats(loadings, "loadings")
        self._vectors: Vectors | None = None
        if self.fitted:
            self._vectors = Vectors(self._declared, self.loadings)

    @classmethod
    def of(cls, declaration: Mapping[str, Any]) -> Features:
        """Return features from a declaration as a TOML or JSON file holds it.

        >>> Features.of({"arm": {"price": "number"}, "intercept": False})
        Features(arm={'price': Number(...)}, context={}, cross=(), intercept=False, reduce=None)
        """
        return cls(**Declaration.of(declaration)._asdict())

    @property
    def declaration(self) -> dict[str, Any]:
        """The declaration as JSON can hold it; `Features.of` reads it."""
        return self._declared.plain()

    @property
    def arm(self) -> Mapping[str, Column]:
        """Columns of what can be shown."""
        return self._declared.arm

    @property
    def context(self) -> Mapping[str, Column]:
        """Columns of the user and the situation."""
        return self._declared.context

    @property
    def reduce(self) -> int | None:
        """Number of directions; None if features are not reduced."""
        return self._declared.reduce

    @property
    def fitted(self) -> bool:
        """Whether vectors can be made: nothing is left to be fitted."""
        return not self._declared.open and (self.reduce is None or self.loadings is not None)

    @property
    def dim(self) -> int:
        """Number of features of a vector."""
        return self._ready().dim

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features of a vector; ``direction 0`` and so on after `reduce`."""
        if self.reduce is None:
            return self.raw_names
        directions = (f"direction {place}" for place in range(self.reduce))
        return (*([INTERCEPT] if self._declared.intercept else []), *directions)

    @property
    def raw_names(self) -> tuple[str, ...]:
        """Names of the features before `reduce`, the intercept first."""
        return self._ready().raw_names

    @property
    def version(self) -> str:
        """A digest of declaration and fitted numbers; other features have another one."""
        text = json.dumps(self.declaration, sort_keys=True).encode()
        arrays = b"" if self.loadings is None else self.loadings.tobytes()
        return sha256(text + b"\n" + arrays).hexdigest()[:12]

    def fit(self, rows: Any, *, items: Any = None) -> Features:
        """Return the same features, with what is left open fitted on a table.

        Parameters
        ----------
        rows : data frame, list of dicts, or path of a CSV or Parquet file
            Rows of a log, with the columns of the context; and of the arms, unless `items` has.
        items : the same, or None
            One row per item, with the columns of the arms.
        """
        return fitted_on(self, rows, items)

    def vectors(
        self, arms: Sequence[Mapping[str, Any]], context: Mapping[str, Any] | None = None
    ) -> FloatArray:
        """Return the arms of one decision as vectors, of shape (arms, dim).

        A value of None is missing. A key that is not there is an error, as it may be misspelt.
        Other keys are ignored.
        """
        if not isinstance(arms, list | tuple):
            raise KindError(
                f"arms are {type(arms).__name__}, expected a list with one dict per arm"
            )
        return self._ready().of_rows(arms, context)

    def catalogue(self, items: Any, *, id: str) -> Catalogue:
        """Return items, whose ids are in the column `id`, so that decisions can name them."""
        return Catalogue(self, items, id=id)

    def matrix(self, table: Any) -> FloatArray:
        """Return the rows of a table, with columns of arm and context, as vectors (rows, dim)."""
        vectors, columns = self._ready(), (*self.arm, *self.context)
        kinds = kinds_in_files(self.arm, self.context)
        parts = [vectors.of_columns(b, b, rows) for rows, b in batches(table, columns, kinds)]
        return np.concatenate(parts) if parts else np.zeros((0, self.dim))

    def encode(self, arms: Columns, count: int) -> FloatArray:
        """Return the arms' own part of vectors, for `offered` and `in_context`."""
        return self._ready().encode(arms, count)

    def offered(self, encoded: FloatArray, which: Ids, context: Columns) -> FloatArray:
        """Return vectors of encoded arms, `which` (rows, K), in the contexts of rows."""
        return self._ready().offered(encoded, which, context)

    def in_context(self, encoded: FloatArray, context: Mapping[str, Any] | None) -> FloatArray:
        """Return vectors of encoded arms in one context."""
        return self._ready().in_context(encoded, context)

    def explain(self, theta: ArrayLike, *, top: int | None = None) -> tuple[Weight, ...]:
        """Return an estimate over vectors as weights of named features, the largest first.

        After `reduce` these are weights of the raw features, with the same expected rewards.
        """
        return ranked(self.raw_names, self._ready().raw_weights(theta), top)

    def reasons(
        self,
        theta: ArrayLike,
        arm: Mapping[str, Any],
        context: Mapping[str, Any] | None = None,
        *,
        others: Sequence[Mapping[str, Any]] = (),
        top: int | None = None,
    ) -> tuple[Weight, ...]:
        """Return what each named feature of one arm adds to its expected reward, largest first.

        With `others`, beyond what it adds to these arms on average: why this arm and not another.

        >>> shop = Features(arm={"price": {"kind": "number", "mean": 10, "scale": 5}})
        >>> shop.reasons([0.1, -0.2], {"price": 20})
        (Weight(name='price', weight=-0.4), Weight(name='intercept', weight=0.1))
        >>> shop.reasons([0.1, -0.2], {"price": 20}, others=[{"price": 10}, {"price": 20}])
        (Weight(name='price', weight=-0.2),)
        """
        vectors = self._ready()
        lead = vectors.raw(arm, context)
        if others:
            lead = lead - np.mean([vectors.raw(other, context) for other in others], axis=0)
        parts = vectors.raw_weights(theta) * lead
        return tuple(one for one in ranked(self.raw_names, parts, None) if one.weight)[:top]

    def differences(self, other: Features) -> tuple[str, ...]:
        """Return, in sentences, how vectors of `other` differ from these; empty if they are alike.

        A policy that learnt with one of them can then go on with the other. What `other` leaves to
        be fitted is not a difference.

        >>> old = Features(arm={"genre": {"kind": "category", "values": ["jazz", "rock"]}})
        >>> old.differences(Features(arm={"genre": {"kind": "category", "values": ["jazz"]}}))
        ("column 'genre' no longer has the value 'rock'",)
        >>> old.differences(Features(arm={"genre": "category"}))
        ()
        """
        found = differences(self.declaration, other.declaration)
        fitted = self.loadings is not None and other.loadings is not None
        if found or not fitted or np.array_equal(self.loadings, other.loadings):  # type: ignore[arg-type]
            return found
        return ("reduce was fitted on another log, so its directions differ",)

    def replaced(self, **options: Any) -> Features:
        """Return the same features with other options."""
        return Features(**(self._declared._asdict() | {"loadings": self.loadings} | options))

    def dump(self) -> Saved:
        """Return what `save` writes."""
        self._ready()
        arrays = {} if self.loadings is None else {"loadings": self.loadings}
        return Saved(KIND, self.declaration, {"version": self.version}, arrays)

    def save(self, path: str | PathLike[str]) -> None:
        """Write declaration and fitted numbers to a file of their own; `Features.load` reads it.

        ``policy.save(path, features=features)`` writes them into one file with a policy.
        """
        write(path, self.dump())

    @classmethod
    def load(cls, path: str | PathLike[str], *, expected: Features | None = None) -> Features:
        """Read features that `save` wrote, or that were saved with a policy.

        With `expected`, raise an `OptionError` that lists the differences if there are any.
        """
        saved = read(path)
        saved = saved if saved.kind == KIND else saved.beside.get("features", saved)
        if saved.kind != KIND:
            raise ForeignFile(
                f"{path} holds a {saved.kind} without features; save it with features=..."
            )
        with damaged_on_error(path):
            features = cls(**saved.options, loadings=saved.arrays.get("loadings"))
        changed = () if expected is None else features.differences(expected)
        if changed:
            raise OptionError(
                f"{path} holds version {features.version} of the features, which is incompatible "
                f"with what was expected: {'; '.join(changed)}; learn anew, or use what was saved"
            )
        return features

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Features) and self.version == other.version

    def __hash__(self) -> int:
        return hash(self.version)

    def __repr__(self) -> str:
        parts = (f"{name}={value!r}" for name, value in self._declared._asdict().items())
        return f"Features({', '.join(parts)})"

    def _repr_html_(self) -> str:
        """Return the features as notebooks show them: one row per column, with its options."""
        sides = {"arm": self.arm, "context": self.context}
        rows: list[tuple[object, ...]] = [("column", "of", "declared as")]
        for side, columns in sides.items():
            rows += [(name, side, column) for name, column in columns.items()]
        rows += [(f"{ours} × {theirs}", "cross", None) for ours, theirs in self._declared.cross]
        note = f"{self.dim} features" if self.fitted else "Not fitted yet: call fit(table)."
        return html_table("Features", rows, note=note)

    def _ready(self) -> Vectors:
        if self._vectors is None:
            open_ = ", ".join(map(repr, self._declared.open))
            raise OptionError(
                f"features are not fitted: {f'columns {open_}' if open_ else 'reduce'}; call "
                "fit(table), or declare mean and scale of numbers and values of categories"
            )
        return self._vectors
