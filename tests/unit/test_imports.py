from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import dyclu

EDGES = (
    "scipy.stats",
    "matplotlib",
    "rich",
    "typer",
    "httpx",
    "msgspec",
    "sqlite3",
    "starlette",
    "uvicorn",
    "dyclu.client",
    "dyclu.service",
    "dyclu.sim",
    "dyclu.cli",
    "dyclu.conformance",
)


def test_importing_dyclu_imports_nothing_from_the_edges() -> None:
    code = f"import sys, dyclu; print([name for name in {EDGES!r} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


SOURCE = Path(dyclu.__file__).parent
CORE = sorted([*SOURCE.glob("[!c]*.py"), *SOURCE.glob("policies/*.py"), *SOURCE.glob("c[!l]*.py")])


def imported(file: Path) -> Iterator[str]:
    """Yield the top-level packages a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]


@pytest.mark.parametrize("file", CORE, ids=lambda file: file.name)
def test_the_core_needs_numpy_and_scipy_only(file: Path) -> None:
    assert set(imported(file)) <= {"dyclu", "numpy", "scipy"} | sys.stdlib_module_names


def test_the_core_is_everything_but_the_edges() -> None:
    edges = {file.name for file in SOURCE.glob("*.py")} - {file.name for file in CORE}
    assert edges == {"cli.py", "client.py"}


def test_public_names_are_there() -> None:
    for name in dyclu.__all__:
        assert getattr(dyclu, name).__doc__
