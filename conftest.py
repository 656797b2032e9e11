"""What holds for all tests.

Examples in docstrings and documents may write files: each runs in a folder of its own. Properties
have no deadline: the first call of a kernel compiles it.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("dyclu", deadline=None)
settings.load_profile("dyclu")


@pytest.fixture(autouse=True)
def _elsewhere(request: pytest.FixtureRequest) -> None:
    if isinstance(request.node, pytest.DoctestItem):
        folder: Path = request.getfixturevalue("tmp_path")
        request.getfixturevalue("monkeypatch").chdir(folder)
