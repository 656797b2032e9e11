"""`Contribution`: what one shard has learnt of one model, for other shards to learn from.

A *shard* is a policy that learns from some of the users. It publishes contributions, and absorbs
those of other shards (`docs/theory.md`, section 11). A contribution is cumulative: it replaces what
the same shard has said of the same model before. So contributions may arrive late, out of order or
twice, and may be lost if a newer one of the same model arrives. The newest of each model must
arrive in the end: if the news that a model is gone is lost, its observations are counted twice,
there and in the model that holds them now. A `Registry` keeps the newest contribution of every
model. Where messages can be lost, a shard sends all of the registry of what it has published again,
from time to time.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from dyclu.errors import KindError, NumberError, OptionError, ShapeError, SharingError
from dyclu.validation import ID, LARGEST, LONGEST_ID, FloatArray, as_floats, as_number, as_whole

Kind = Literal["atlas-real", "atlas-binary", "linucb"]
"""What the sums are: natural forms of tastes of real rewards or of clicks, or sums of rewards."""

Arrays = dict[str, NDArray[Any]]

Key = tuple[str, int]
"""Shard and model."""

MOST_COUNTED = 2**53
"""Largest model, epoch and count; larger whole numbers are not exact as floats."""

MOST_FEATURES = 10_000
"""Most rows of a gram."""

NEGATIVE = 1e-6
"""Share of its largest diagonal entry by which a gram may be indefinite, by rounding."""

OUTSIDE = 0.9
"""Share of what a moment explains that may lie where the gram has no more than rounding."""

SLACK = 1e-6
"""Share by which rewards that are explained may exceed all rewards, by rounding."""

_MAGIC = b"dyclu-contribution 1\n"
_HEAD = struct.Struct("<BBqqIdd")
_DIGEST = 8


@dataclass(frozen=True, slots=True, eq=False)
class Contribution:
    """All that a shard has learnt of one model from its own users.

    Attributes
    ----------
    shard : str
        Name of the shard.
    model : int
        Id of the model in this shard.
    epoch : int
        How often the shard has published less than before. It begins with 0.
    kind : str
        What the sums are, one of `Kind`. Sums of different kinds do not add up.
    gram, moment : arrays of shape (p, p) and (p,)
        ``Σ w zzᵀ`` and ``Σ w zy`` over the shard's own observations.
    energy : float
        ``Σ w y²``; 0 if the policy does not need it.
    count : float
        Number of observations. A contribution without any says that the model is gone.

    Examples
    --------
    >>> one = Contribution("berlin", 3, 0, "linucb", [[2.0]], [1.0], 0.5, 2)
    >>> Contribution.from_bytes(one.to_bytes()) == one
    True
    """

    shard: str
    model: int
    epoch: int
    kind: Kind
    gram: FloatArray
    moment: FloatArray
    energy: float
    count: float

    def __post_init__(self) -> None:
        as_shard(self.shard)
        for name in ("model", "epoch"):
            _set(self, name, as_whole(getattr(self, name), name, least=0, most=MOST_COUNTED))
        if self.kind not in get_args(Kind):
            raise OptionError(
                f"kind is {self.kind!r}, expected one of {', '.join(get_args(Kind))}; "
                "pass a contribution that policy.contributions(...) returned"
            )
        for name in ("energy", "count"):
            _set(self, name, _as_amount(getattr(self, name), name))
        for name in ("gram", "moment"):
            own = as_floats(getattr(self, name), name)
            own.flags.writeable = False
            _set(self, name, own)
        _check_sums(self)

    @classmethod
    def gone(cls, last: Contribution) -> Contribution:
        """Return what replaces the last contribution of a model that is gone."""
        zero, none = np.zeros_like(last.gram), np.zeros_like(last.moment)
        return cls(last.shard, last.model, last.epoch + 1, last.kind, zero, none, 0.0, 0.0)

    @property
    def key(self) -> Key:
        """Shard and model: a newer contribution with the same key replaces this one."""
        return self.shard, self.model

    @property
    def age(self) -> tuple[int, float]:
        """Epoch and count; of two contributions with the same key, the larger one is newer."""
        return self.epoch, self.count

    def replaces(self, other: Contribution) -> bool:
        """Return whether this one is newer; equal ages, which no shard publishes, have an order."""
        if self.age != other.age:
            return self.age > other.age
        return self.to_bytes() > other.to_bytes()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Contribution):
            return NotImplemented
        return self.to_bytes() == other.to_bytes()

    def __hash__(self) -> int:
        return hash((self.key, self.age))

    def to_bytes(self) -> bytes:
        """Return the contribution as bytes, without code (no pickle)."""
        p, shard = len(self.moment), self.shard.encode()
        kind = get_args(Kind).index(self.kind)
        head = _HEAD.pack(kind, len(shard), self.model, self.epoch, p, self.count, self.energy)
        sums = np.concatenate([self.moment, self.gram[np.triu_indices(p)]]).astype("<f8")
        body = b"".join((_MAGIC, head, shard, sums.tobytes()))
        return body + _digest(body)

    @classmethod
    def from_bytes(cls, data: bytes) -> Contribution:
        """Return the contribution that `to_bytes` has written; anything else is refused."""
        if not isinstance(data, bytes | bytearray | memoryview):
            raise KindError(
                f"a contribution is {type(data).__name__}, expected bytes; "
                "pass what contribution.to_bytes() returned"
            )
        body, digest = bytes(data[:-_DIGEST]), bytes(data[-_DIGEST:])
        if not body.startswith(_MAGIC) or _digest(body) != digest:
            raise _refused("are not a contribution of this version, or were altered")
        rest = body[len(_MAGIC) :]
        if len(rest) < _HEAD.size:
            raise _refused("are too short")
        kind, length, model, epoch, p, count, energy = _HEAD.unpack_from(rest)
        sums = rest[_HEAD.size + length :]
        if kind >= len(get_args(Kind)) or not 0 < p <= MOST_FEATURES:
            raise _refused("have an unknown kind, or too many features")
        if len(sums) != 8 * (p + p * (p + 1) // 2):
            raise _refused("have a wrong length")
        try:
            shard = rest[_HEAD.size : _HEAD.size + length].decode()
        except UnicodeDecodeError:
            raise _refused("have a name that is not UTF-8") from None
        numbers = np.frombuffer(sums, "<f8").astype(np.float64)
        gram = np.zeros((p, p))
        gram[np.triu_indices(p)] = numbers[p:]
        gram += np.triu(gram, 1).T
        return cls(shard, model, epoch, get_args(Kind)[kind], gram, numbers[:p], energy, count)


class Registry:
    """The newest contribution of every model of every shard.

    Adding is commutative, associative and idempotent: the contents depend only on which
    contributions were added, and not on their order.

    Examples
    --------
    >>> old = Contribution("berlin", 3, 0, "linucb", [[2.0]], [1.0], 0.5, 2)
    >>> new = Contribution("berlin", 3, 0, "linucb", [[3.0]], [1.0], 0.5, 3)
    >>> registry = Registry([new, old])
    >>> registry.add(new), len(registry), registry.get("berlin", 3) == new
    (False, 1, True)
    """

    def __init__(self, contributions: Iterable[Contribution] = ()) -> None:
        self._newest: dict[Key, Contribution] = {}
        for one in contributions:
            self.add(one)

    def add(self, contribution: Contribution) -> bool:
        """Add a contribution; return whether it is newer than what was known."""
        last = self._newest.get(contribution.key)
        if last is not None and not contribution.replaces(last):
            return False
        self._newest[contribution.key] = contribution
        return True

    def get(self, shard: str, model: int) -> Contribution | None:
        """Return the newest contribution of a model; None if there is none."""
        return self._newest.get((shard, model))

    def of(self, shard: str) -> dict[int, Contribution]:
        """Return the newest contributions of a shard, by model."""
        return {model: one for (name, model), one in self._newest.items() if name == shard}

    def __len__(self) -> int:
        return len(self._newest)

    def __iter__(self) -> Iterator[Contribution]:
        """Yield the contributions, in the order of shards and models."""
        return iter([self._newest[key] for key in sorted(self._newest)])


def dump(contributions: Sequence[Contribution], size: int) -> tuple[list[Any], Arrays]:
    """Return contributions to sums of `size` features: what JSON can hold, and arrays."""
    names = [[c.shard, c.model, c.epoch, c.kind, c.energy, c.count] for c in contributions]
    return names, {
        "gram": np.array([c.gram for c in contributions]).reshape(-1, size, size),
        "moment": np.array([c.moment for c in contributions]).reshape(-1, size),
    }


def filled(names: list[Any], arrays: Arrays) -> list[Contribution]:
    """Return what `dump` was given."""
    return [
        Contribution(shard, model, epoch, kind, gram, moment, energy, count)
        for (shard, model, epoch, kind, energy, count), gram, moment in zip(
            names, arrays["gram"], arrays["moment"], strict=True
        )
    ]


def checked(
    contributions: Iterable[Contribution], shard: str, kinds: tuple[Kind, ...], size: int
) -> list[Contribution]:
    """Return the contributions of other shards, if all can be added to sums of `size` features."""
    as_shard(shard)
    kept = []
    for one in contributions:
        if not isinstance(one, Contribution):
            raise KindError(
                f"a contribution is {type(one).__name__}, expected a dyclu.Contribution; "
                "use Contribution.from_bytes for bytes"
            )
        if one.kind not in kinds:
            raise SharingError(
                f"the contribution of shard {one.shard!r} is of the kind {one.kind!r}, expected "
                f"{' or '.join(kinds)}; all shards must run the same policy"
            )
        if len(one.moment) != size:
            raise ShapeError(
                f"the contribution of shard {one.shard!r} has {len(one.moment)} entries, expected "
                f"{size}; all shards must have the same features"
            )
        if one.shard != shard:
            kept.append(one)
    return kept


def as_registry(since: Registry | Iterable[Contribution]) -> Registry:
    """Return contributions as a registry."""
    return since if isinstance(since, Registry) else Registry(since)


def is_sum(gram: FloatArray, moment: FloatArray, count: float, energy: float | None = None) -> bool:
    """Return whether there can be observations with these sums, up to rounding.

    The gram must be a sum of squares, and the moment in its range. If the `energy` is known, what
    the gram and the moment explain, ``momentᵀ gram⁺ moment``, must not exceed it. If not, the sums
    are in units of the noise, and the energy is about `count` at least.
    """
    top = float(gram.diagonal().max(initial=0.0))
    if top <= 0.0:
        return not (gram.any() or moment.any())
    try:
        factor = np.linalg.cholesky(gram / top + NEGATIVE * np.eye(len(gram)))
    except np.linalg.LinAlgError:
        return False
    half = np.linalg.solve(factor, moment)
    explained = float(half @ half)
    if energy is not None:
        return explained <= top * energy * (1.0 + SLACK)
    # All of the moment where there are no observations, next to nothing of it elsewhere.
    rest = NEGATIVE * np.linalg.solve(factor.T, half)
    return float(rest @ rest) <= NEGATIVE * (OUTSIDE * explained + top * count)


def as_shard(shard: Any) -> str:
    """Return the name of a shard."""
    if not isinstance(shard, str) or len(shard) > LONGEST_ID or not re.match(ID, shard):
        raise OptionError(
            f"shard is {shard!r}, expected a name of at most {LONGEST_ID} letters, digits and "
            "_.:@+=~- ; name each shard, and never give two shards the same name"
        )
    return shard


def _as_amount(value: Any, name: str) -> float:
    number = as_number(value, name, "a number ≥ 0")
    if not 0.0 <= number <= LARGEST:
        raise NumberError(
            f"{name} of a contribution is {value}, expected a number from 0 to {LARGEST:g}; "
            "drop the contribution"
        )
    return number


def _check_sums(one: Contribution) -> None:
    gram, moment, p = one.gram, one.moment, one.moment.size
    if moment.ndim != 1 or gram.shape != (p, p) or not 0 < p <= MOST_FEATURES:
        raise ShapeError(
            f"gram and moment have shapes {gram.shape} and {moment.shape}, expected (p, p) and "
            "(p,); pass the sums of one model"
        )
    energy = one.energy if one.kind == "linucb" else None
    if not np.array_equal(gram, gram.T) or not is_sum(gram, moment, one.count, energy):
        raise NumberError(
            "gram, moment and energy are not those of any observations, expected Σ w zzᵀ, Σ w zy "
            "and Σ w y²; drop the contribution"
        )


def _set(owner: Contribution, name: str, value: Any) -> None:
    object.__setattr__(owner, name, value)


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=_DIGEST).digest()


def _refused(why: str) -> SharingError:
    return SharingError(f"the bytes {why}; pass what contribution.to_bytes() returned")
