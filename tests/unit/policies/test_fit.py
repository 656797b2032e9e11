"""`fit`: every policy starts from a log, all of it or nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dyclu
from dyclu import policies
from dyclu.data import Log
from dyclu.errors import KindError, NumberError, ShapeError
from dyclu.validation import FloatArray

DIM = 3


def observations(rows: int = 60) -> dict[str, Any]:
    rng = np.random.default_rng(4)
    return {
        "user": [f"u{i}" for i in rng.integers(5, size=rows)],
        "arms": rng.normal(size=(rows, 4, DIM)),
        "chosen": rng.integers(4, size=rows),
        "reward": rng.normal(size=rows),
    }


def contents(policy: Any, path: Path) -> bytes:
    policy.save(path)
    return path.read_bytes()


class Interrupted:
    """A log that ends with an error after some rows."""

    dim = DIM

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def observations(self) -> Iterator[tuple[list[Any], FloatArray, FloatArray]]:
        yield from Log.of_arrays(**observations()).observations()
        raise self._error


@pytest.mark.parametrize("name", policies.names())
def test_fitting_is_learning_row_by_row(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dyclu.data.log.CHUNK_NUMBERS", 200)
    log = Log.of_arrays(**observations())
    fitted: Any = policies.make(name, DIM)
    single: Any = policies.make(name, DIM)
    assert fitted.fit(log) is fitted
    for chunk in log.chunks():
        for user, x, reward in zip(chunk.user, chunk.contexts, chunk.reward, strict=True):
            single.learn(user, x, reward)
    assert contents(fitted, tmp_path / "a") == contents(single, tmp_path / "b")


@pytest.mark.parametrize("error", [NumberError("row 60"), KeyboardInterrupt()])
@pytest.mark.parametrize("name", policies.names())
def test_an_error_while_fitting_changes_nothing(
    name: str, error: BaseException, tmp_path: Path
) -> None:
    policy: Any = policies.make(name, DIM)
    twin: Any = policies.make(name, DIM)
    for one in (policy, twin):
        one.fit(Log.of_arrays(**observations(20)))
    before = contents(policy, tmp_path / "before")
    with pytest.raises(type(error)):
        policy.fit(Interrupted(error))
    assert contents(policy, tmp_path / "after") == before
    # It also goes on as if nothing had happened.
    log = Log.of_arrays(**observations())
    assert contents(policy.fit(log), tmp_path / "a") == contents(twin.fit(log), tmp_path / "b")


def test_a_log_of_another_dim_is_refused() -> None:
    with pytest.raises(ShapeError, match="the log has 3 features, this policy was built for 2"):
        dyclu.LinUCB(2).fit(Log.of_arrays(**observations()))


def test_what_is_no_log_is_refused() -> None:
    rows: Any = [("ana", [1.0, 0.0, 0.0], 1.0)]
    with pytest.raises(KindError, match=r"the log is list, expected a dyclu\.Log"):
        dyclu.LinUCB(DIM).fit(rows)


def test_policies_that_are_told_the_truth_can_be_fitted() -> None:
    def truth(user: object, time: int) -> int:
        return time % 2

    policy = policies.Oracle(DIM, truth=truth)
    policy.fit(Log.of_arrays(**observations(20)))
    arms = np.eye(DIM)
    expected = policy.decide("u1", arms)
    with pytest.raises(NumberError):
        policy.fit(Interrupted(NumberError("row 60")))
    assert policy.decide("u1", arms) == expected
