"""Killed at any moment, nothing acknowledged is lost or learnt twice; `make crashtest` is long."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.service.crash import BROKEN, SPECS, torment, verdict


@pytest.mark.parametrize(
    ("policy", "kills"),
    [("atlas", 3), ("dyclu", 3), pytest.param("atlas", 200, marks=pytest.mark.long)],
)
def test_nothing_acknowledged_is_lost(tmp_path: Path, policy: str, kills: int) -> None:
    spec = SPECS[policy]
    found = verdict(tmp_path, spec, torment(tmp_path, spec, kills=kills, seed=kills))
    assert {what: found[what] for what in BROKEN} == dict.fromkeys(BROKEN, 0)
    # A life lasts for 30 answers on average, two in five of them to rewards.
    assert found["acknowledged rewards"] > 3 * kills
    assert found["repeated requests"] > 0
