"""Killed at any moment, nothing acknowledged is lost or learnt twice; `make crashtest` is long."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.service.crash import BROKEN, Ordeal


@pytest.mark.parametrize(
    ("policy", "kills"),
    [
        ("atlas", 4),
        pytest.param("dyclu", 3, marks=pytest.mark.long),
        pytest.param("atlas", 200, marks=pytest.mark.long),
    ],
)
def test_nothing_acknowledged_is_lost(tmp_path: Path, policy: str, kills: int) -> None:
    found = Ordeal(tmp_path, policy, seed=kills).suffer(kills)
    assert {what: found[what] for what in BROKEN} == dict.fromkeys(BROKEN, 0)
    # A life lasts for 40 answers on average, a third of them to rewards.
    assert found["reward"] + found["reward in a batch"] > 3 * kills
    assert found["repeated requests"] > 0
