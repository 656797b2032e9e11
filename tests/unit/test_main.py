"""The program ``dyclu`` with and without the packages of its command line."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

import dyclu
from dyclu.__main__ import NEEDED
from dyclu.cli import app
from dyclu.service import commands

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]

WITHOUT = """
import runpy, sys
from importlib.machinery import PathFinder

class Without:
    def find_spec(self, name, path=None, target=None):
        hidden = name.partition(".")[0] in {names!r}
        return None if hidden else PathFinder.find_spec(name, path, target)

sys.meta_path = [Without() if finder is PathFinder else finder for finder in sys.meta_path]
sys.argv = ["dyclu", "demo"]
runpy.run_module("dyclu", run_name="__main__")
"""
"""Runs the program as if packages were not installed."""


def without(*names: str) -> subprocess.CompletedProcess[str]:
    code = WITHOUT.format(names=names)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_the_program_runs_the_command_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dyclu", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"dyclu {dyclu.__version__}\n"


@pytest.mark.parametrize("names", [("typer",), ("rich",), ("rich", "typer")], ids="+".join)
def test_without_packages_of_the_command_line_the_program_says_what_to_install(
    names: tuple[str, ...],
) -> None:
    done = without(*names)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"dyclu: the command line needs {' and '.join(names)}, ")
    assert "pip install 'dyclu[cli]'" in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_library_depends_only_on_numpy_scipy_and_the_kernels_compiler() -> None:
    # What only the command line or the service needs is in extras.
    assert {need.partition(">")[0] for need in PROJECT["dependencies"]} == {
        "numba",
        "numpy",
        "scipy",
    }
    assert {need.partition(">")[0] for need in PROJECT["optional-dependencies"]["cli"]} == {*NEEDED}


def test_the_service_says_that_it_needs_a_posix_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "SYSTEM", "nt")
    result = CliRunner().invoke(app, ["serve", "--dim=2"])
    assert result.exit_code == 2
    assert result.stderr.startswith("dyclu: dyclu serve needs a POSIX system such as Linux")
    assert "'nt'" in result.stderr
