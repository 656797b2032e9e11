"""`dyclu simulate --shards`: output and refusals."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from dyclu.cli import app

SMALL = ["--users=6", "--rounds=20", "--dim=3", "--parameters=1", "--arms=20", "--seeds=2"]
LINEAR = [*SMALL, "--policies=shared-linucb"]


def simulate(*options: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["simulate", *options], env={"COLUMNS": "120"})
    return result.exit_code, result.stdout, result.stderr


def test_shards_are_printed_beside_one_process_and_isolated_shards() -> None:
    status, out, err = simulate(*LINEAR, "--shards=3", "--threshold=1", "--delay=4", "--twice=0.1")
    assert (status, err) == (0, "")
    for way in ("one process", "3 isolated shards", "3 shards that share"):
        assert f"shared-linucb, {way}" in out


def test_json_has_every_run_and_the_network() -> None:
    status, out, _ = simulate(*LINEAR, "--shards=3", "--lost=0.5", "--json")
    found = json.loads(out)
    assert status == 0
    assert found["network"]["lost"] == 0.5
    runs = found["shared-linucb"]["3 shards that share"]
    assert len(runs) == 2
    assert all(run["regret"] > 0 and run["bytes"] > 0 for run in runs)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--shards=1"], "shards is 1"),
        (["--shards=2", "--policies=dyclu"], "dyclu cannot share"),
        (["--shards=2", "--lost=2"], "lost is 2"),
        (["--shards=2", "--world=clicks"], "--shards is not for --world"),
        (["--delay=3"], "are for --shards"),
        (["--json"], "are for --shards"),
    ],
)
def test_impossible_options_are_refused(options: list[str], said: str) -> None:
    given = options if "--world=clicks" in options else [*SMALL, *options]
    status, out, err = simulate(*given)
    assert (status, out) == (2, "")
    assert said in err
