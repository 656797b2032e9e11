"""What holds for all tests.

Examples in docstrings and documents may write files: each runs in a folder of its own. Properties
have no deadline: the first call of a kernel compiles it.

A process that runs tests holds about a million objects of the modules that it imported. Each full
garbage collection would look at all of them again: half of the CPU time of the benchmarks' tests.
"""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("dyclu", deadline=None)
settings.load_profile("dyclu")


def pytest_collection_finish() -> None:
    """Leave out of garbage collections what was imported until now."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Let the interpreter end as usual."""
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _elsewhere(request: pytest.FixtureRequest) -> None:
    if isinstance(request.node, pytest.DoctestItem):
        folder: Path = request.getfixturevalue("tmp_path")
        request.getfixturevalue("monkeypatch").chdir(folder)
