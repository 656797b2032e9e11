"""What `import dyclu` loads, and which packages the files below the edges may import."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import dyclu

SOURCE = Path(dyclu.__file__).parent

EDGES = {"adapters", "cli", "client", "data", "plots", "service", "sim"}
"""Files and folders that may import packages beside numpy and scipy."""

FILES = sorted(
    file for file in SOURCE.rglob("*.py") if file.relative_to(SOURCE).parts[0] not in EDGES
)
"""All other files: the top level, `core`, `kernels` and `policies`, with their sub-folders."""

NOT_LOADED = (
    "sqlite3",
    "dyclu.adapters",
    "dyclu.client",
    "dyclu.data",
    "dyclu.evaluate",
    "dyclu.plots",
    "dyclu.service",
    "dyclu.sim",
    "dyclu.cli",
    "dyclu.conformance",
)
"""Modules beside those of other packages that are not always needed."""

NEW_MODULES = """
import sys, numpy, scipy
before = set(sys.modules)
import dyclu
print(*(set(sys.modules) - before))
"""


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    """Return the modules that `import dyclu` loads beyond those of ``import numpy, scipy``."""
    done = subprocess.run(
        [sys.executable, "-c", NEW_MODULES], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_importing_dyclu_loads_no_module_that_is_only_sometimes_needed(loaded: set[str]) -> None:
    assert "dyclu.policies.atlas" in loaded
    assert not loaded & {*NOT_LOADED}


def test_importing_dyclu_loads_no_other_package_and_no_module_of_scipy(loaded: set[str]) -> None:
    # scipy's modules and numba take longer to import than all of dyclu.
    others = {name for name in loaded if name.partition(".")[0] not in {"dyclu", "numpy"}}
    assert not {name for name in others if name.partition(".")[0] not in sys.stdlib_module_names}


def test_names_of_the_room_of_data_are_imported_at_their_first_use() -> None:
    code = (
        "import sys, dyclu; assert 'dyclu.data' not in sys.modules; dyclu.data.Valid; dyclu.Log; "
        "dyclu.Features; print([name for name in ('narwhals', 'pandas') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
    with pytest.raises(AttributeError, match="no attribute 'Feature'"):
        dyclu.Feature  # noqa: B018


def imported(file: Path) -> Iterator[str]:
    """Yield the top-level packages that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_files_below_the_edges_import_only_numpy_scipy_and_the_standard_library(file: Path) -> None:
    # numba is imported by name, through importlib, so that the library also runs without it.
    assert set(imported(file)) <= {"dyclu", "numpy", "scipy"} | sys.stdlib_module_names


def test_the_folders_below_the_edges_are_covered() -> None:
    assert {file.relative_to(SOURCE).parts[0] for file in FILES} >= {"core", "kernels", "policies"}
    assert {entry.name for entry in SOURCE.iterdir()} >= EDGES


def test_public_names_exist_and_have_docstrings() -> None:
    for name in dyclu.__all__:
        assert getattr(dyclu, name).__doc__
