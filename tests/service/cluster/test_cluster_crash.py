"""Whatever is killed, nothing acknowledged is lost; `make crashtest-cluster` is long."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.service.cluster_crash import BROKEN, ClusterOrdeal
from tests.service.postgres import Postgres


@pytest.mark.parametrize(
    ("policy", "kills", "database_kills", "stops"),
    [
        ("pooled", 1, 1, 1),
        pytest.param("atlas", 20, 5, 5, marks=pytest.mark.long),
    ],
)
def test_nothing_acknowledged_is_lost(
    tmp_path: Path, server: Postgres, policy: str, kills: int, database_kills: int, stops: int
) -> None:
    ordeal = ClusterOrdeal(tmp_path, server, server.fresh(), policy, seed=kills)
    found = ordeal.suffer(kills=kills, database_kills=database_kills, stops=stops)
    assert {what: found[what] for what in BROKEN} == dict.fromkeys(BROKEN, 0), ordeal.witness.wrong
    assert found["slots rewarded"] > 0
    assert found["take-overs"] > 0
    assert found["absorbed lines"] > 0
