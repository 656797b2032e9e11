"""`dyclu plan`: the numbers of `dyclu.core.planning`, as people and as machines read them."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import dyclu
from dyclu.cli import app
from dyclu.core.planning import Plan

OPTIONS = ["--dim=5", "--noise=0.2", "--gap=1.1", "--window=30"]
PLAN = Plan(dim=5, noise=0.2, separation=1.1, window=30)


def plan(*options: str, columns: int = 80) -> Any:
    return CliRunner().invoke(app, ["plan", *options], env={"COLUMNS": str(columns)})


def test_json_is_the_plan_in_numbers() -> None:
    result = plan(*OPTIONS, "--json", "--no-picture")
    assert (result.exit_code, result.stderr) == (0, "")
    document = json.loads(result.stdout)
    assert document["version"] == dyclu.__version__
    assert document["plan"]["separation"] == 1.1
    for name in ("surprise", "surprises_needed", "delay", "false_alarm", "window_wanted"):
        assert document[name] == getattr(PLAN, name)
    assert document["comparable_after"] == PLAN.comparable_after
    for row in document["observations"]:
        assert row["each"] == PLAN.observations_for(row["power"])
        assert row["against_group"] == PLAN.observations_for(row["power"], partner=math.inf)
    for row in document["power"]:
        assert row["each"] == PLAN.power(row["observations"])
        assert row["against_group"] == PLAN.power(row["observations"], partner=math.inf)


def test_a_delay_that_never_ends_is_null() -> None:
    document = json.loads(plan("--window=1", "--json", "--no-picture").stdout)
    assert document["delay"] is None


@pytest.mark.parametrize("columns", [100, 80, 50])
def test_the_tables_fit_the_terminal(columns: int) -> None:
    result = plan(*OPTIONS, "--no-picture", columns=columns)
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= columns
    assert "99%" in result.stdout
    assert str(PLAN.observations_for(0.99)) in result.stdout


def test_a_plan_has_a_picture(tmp_path: Path) -> None:
    result = plan(*OPTIONS, f"--out={tmp_path / 'out'}")
    file = tmp_path / "out" / "plan.png"
    assert file.read_bytes().startswith(b"\x89PNG")
    assert result.stdout.endswith(f"written: {file}\n")


def test_without_matplotlib_there_are_numbers_and_no_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = plan("--json", f"--out={tmp_path}")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["files"] == []
    assert result.stderr.count("\n") == 1
    assert "pip install 'dyclu[plots]'" in result.stderr


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--dim=0", "dim is 0"),
        ("--noise=-1", "noise is -1"),
        ("--gap=0", "separation is 0"),
        ("--change-level=1", "change_level is 1"),
        ("--window=0", "window is 0"),
    ],
)
def test_a_refusal_is_one_line_and_status_2(option: str, message: str, tmp_path: Path) -> None:
    result = plan(option, f"--out={tmp_path / 'out'}")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"dyclu: {message}")
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_options_are_those_of_a_plan() -> None:
    group: Any = typer.main.get_command(app)
    names = {option.name for option in group.commands["plan"].params}
    assert {*Plan.__dataclass_fields__} - {"separation"} <= names
