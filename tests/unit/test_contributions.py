"""Contributions: their bytes, the registry, and which policies have any."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dyclu import Atlas, Contribution, DyClu, DycluError, LinUCB, Registry
from dyclu.contributions import _MAGIC, _digest
from dyclu.errors import CannotShare, KindError, NumberError, OptionError, ShapeError, SharingError
from dyclu.policies.common.plain import WithoutUsers

SUMS = np.array([[2.0, 1.0], [1.0, 3.0]])


def contribution(
    shard: str = "a", model: int = 0, epoch: int = 0, count: float = 5.0
) -> Contribution:
    return Contribution(shard, model, epoch, "atlas-real", SUMS, np.ones(2), 0.0, count)


contributions = st.builds(
    contribution,
    st.sampled_from("abc"),
    st.integers(0, 2),
    st.integers(0, 2),
    st.integers(0, 3).map(float),
)


@given(st.lists(contributions), st.data())
def test_a_registry_depends_on_what_was_added_and_not_on_order_or_repetition(
    some: list[Contribution], data: st.DataObject
) -> None:
    arrived = some and data.draw(st.lists(st.sampled_from(some)))
    other = Registry([*arrived, *data.draw(st.permutations(some))])
    assert list(other) == list(Registry(some))


def test_a_newer_epoch_replaces_a_larger_count() -> None:
    assert next(iter(Registry([contribution(epoch=1, count=2), contribution(count=9)]))).epoch == 1


@pytest.mark.parametrize("p", [1, 2, 26])
def test_bytes_hold_the_contribution_bit_for_bit(p: int) -> None:
    half = np.random.default_rng(p).normal(size=(p, p))
    one = Contribution("a.b-1", 7, 3, "linucb", half @ half.T, half[:, 0], 1 + 1e-15, 1 / 3)
    back = Contribution.from_bytes(one.to_bytes())
    assert back == one
    assert back.gram.tobytes() == one.gram.tobytes()


@given(st.binary())
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(SharingError):
        Contribution.from_bytes(_MAGIC + data)


@given(st.data())
def test_altered_bytes_are_refused_also_with_a_valid_digest(data: st.DataObject) -> None:
    """No byte string makes anything but a valid contribution or a `DycluError`."""
    whole = contribution().to_bytes()
    body = bytearray(whole[:-8])
    where = data.draw(st.integers(0, len(body) - 1))
    body[where] ^= data.draw(st.integers(1, 255))
    with pytest.raises(SharingError):
        Contribution.from_bytes(bytes(body) + whole[-8:])
    try:
        got = Contribution.from_bytes(bytes(body) + _digest(bytes(body)))
    except DycluError:
        return
    assert np.isfinite(got.gram).all()
    assert got.count >= 0.0


def test_a_header_that_promises_more_than_there_is_is_refused() -> None:
    whole = bytearray(contribution().to_bytes()[:-8])
    struct.pack_into("<I", whole, len(_MAGIC) + 18, 2**31)
    with pytest.raises(SharingError, match="features"):
        Contribution.from_bytes(bytes(whole) + _digest(bytes(whole)))


@pytest.mark.parametrize(
    ("error", "options"),
    [
        (OptionError, {"shard": ""}),
        (OptionError, {"shard": "a b"}),
        (OptionError, {"kind": "pickle"}),
        (OptionError, {"model": -1}),
        (KindError, {"epoch": 0.5}),
        (NumberError, {"count": float("nan")}),
        (NumberError, {"count": -1.0}),
        (NumberError, {"gram": np.diag([1.0, -1.0])}),
        (NumberError, {"gram": np.array([[1.0, 2.0], [2.0, 1.0]])}),
        (NumberError, {"gram": np.array([[1.0, 0.5], [0.0, 1.0]])}),
        (NumberError, {"moment": np.array([np.inf, 0.0])}),
        (NumberError, {"gram": np.zeros((2, 2)), "moment": np.array([1e30, 0.0])}),
        (NumberError, {"gram": np.diag([1.0, 0.0])}),
        (NumberError, {"gram": np.diag([1.0, 0.0]), "moment": np.array([0.0, 1e39])}),
        (NumberError, {"kind": "linucb", "energy": 0.5}),
        (ShapeError, {"moment": np.ones(3)}),
    ],
)
def test_sums_that_no_shard_can_have_are_refused(
    error: type[DycluError], options: dict[str, object]
) -> None:
    with pytest.raises(error):
        replace(contribution(), **options)  # type: ignore[arg-type]


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 12),
    st.integers(1, 6),
    st.floats(-9, 9),
    st.booleans(),
)
def test_sums_that_a_shard_can_have_are_accepted(
    seed: int, rows: int, p: int, size: float, exact: bool
) -> None:
    """Few rows, equal rows, columns of very different size, rewards with and without noise."""
    rng = np.random.default_rng(seed)
    scale, weights = 10.0 ** rng.uniform(-3, 0, p), 10.0 ** rng.uniform(-1, 1, rows)
    Z = rng.normal(size=(rows, p))[rng.integers(0, rows, rows)] * scale
    y = 10.0**size * (Z @ rng.normal(size=p) if exact else rng.normal(size=rows))
    gram, moment = (Z.T * weights) @ Z, Z.T @ (weights * y)
    gram = 0.5 * (gram + gram.T)
    energy = float(weights @ y**2)
    Contribution("a", 0, 0, "linucb", gram, moment, energy, rows)
    if exact or size <= 0.0:  # in units of the noise, as Atlas keeps them
        Contribution("a", 0, 0, "atlas-real", gram, moment, 0.0, rows)


@pytest.mark.parametrize(
    ("error", "wrong"),
    [
        (KindError, b"bytes"),
        (SharingError, Contribution("b", 0, 0, "linucb", SUMS, np.ones(2), 1.0, 1.0)),
        (ShapeError, Contribution("b", 0, 0, "atlas-real", [[1.0]], [1.0], 0.0, 1.0)),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_contribution_is_refused_and_none_of_its_batch_is_absorbed(
    error: type[DycluError], wrong: Contribution
) -> None:
    policy = Atlas(1)
    with pytest.raises(error):
        policy.absorb([contribution("b"), wrong], shard="a")
    assert policy.absorb([contribution("b")], shard="a") == 1


def test_own_contributions_are_ignored() -> None:
    assert Atlas(1).absorb([contribution("a")], shard="a") == 0


@pytest.mark.parametrize(
    "policy", [DyClu(2), LinUCB(2), WithoutUsers()], ids=lambda p: type(p).__name__
)
def test_policies_that_cannot_share_say_so(policy: DyClu) -> None:
    assert not policy.shares
    with pytest.raises(CannotShare, match="Atlas"):
        policy.contributions("a")
    with pytest.raises(CannotShare, match="shared=True"):
        policy.absorb([], shard="a")
