"""`dyclu.kernels.compiling`: stored machine code is reused exactly as long as no kernel changes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import dyclu

pytest.importorskip("numba")

CALL = """
import sys; sys.path.insert(0, sys.argv[1])
import numpy as np
from dyclu.kernels import ridge
print(ridge.best_arm(np.array([0.0, 1.0, 1.5]), np.zeros(3), 1e-9)[0], end=" ")
print(sum(ridge.best_arm.stats.cache_hits.values()))
"""
"""`best_arm` of one file calls `first_best`; here that is moved to another file."""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package in which `first_best` lies in the file `linalg`."""
    source = Path(dyclu.__file__).parent
    copy = shutil.copytree(source, tmp_path / "dyclu", ignore=shutil.ignore_patterns("__pycache__"))
    ridge, linalg = copy / "kernels/ridge.py", copy / "kernels/linalg.py"
    text = ridge.read_text()
    start = text.index("@compiled\ndef first_best")
    end = text.index("@compiled\ndef best_arm")
    linalg.write_text(linalg.read_text() + "\n\n" + text[start:end].rstrip() + "\n")
    text = text[:start] + text[end:]
    ridge.write_text(text.replace("linalg import ", "linalg import first_best, ", 1))
    return copy


def call(package: Path) -> tuple[int, int]:
    """Return the arm that `best_arm` chooses in a new process, and how often code was reused."""
    words = [sys.executable, "-c", CALL, str(package.parent)]
    printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    arm, hits = map(int, printed.split())
    return arm, hits


def test_machine_code_is_reused_while_no_kernel_changes(package: Path) -> None:
    assert call(package) == (2, 0)
    assert call(package) == (2, 1)


def test_a_change_of_a_callee_in_another_file_recompiles_its_callers(package: Path) -> None:
    assert call(package) == (2, 0)
    linalg = package / "kernels/linalg.py"
    text = linalg.read_text()
    assert "scores[i] >= best - tie" in text
    linalg.write_text(text.replace("scores[i] >= best - tie", "scores[i] >= best - tie - 0.6"))
    assert call(package) == (1, 0)
