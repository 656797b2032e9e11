"""Killed at any moment, nothing acknowledged is lost or learnt twice; `make crashtest` is long."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.service.crash import BROKEN, torment, verdict


@pytest.mark.parametrize(
    "kills", [4, pytest.param(200, marks=pytest.mark.long)], ids=["short", "long"]
)
def test_nothing_acknowledged_is_lost(tmp_path: Path, kills: int) -> None:
    found = verdict(tmp_path, torment(tmp_path, kills=kills, seed=kills))
    assert {what: found[what] for what in BROKEN} == dict.fromkeys(BROKEN, 0)
    # A life lasts for 30 answers on average, two in five of them to rewards.
    assert found["acknowledged rewards"] > 3 * kills
    assert found["repeated requests"] > 0
