"""`dyclu.service.disk.provenance`: a snapshot says by which code it was made."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import dyclu
from dyclu.service.disk.provenance import SOURCES, made_by
from dyclu.storage import read
from tests.service.bench import Bench

SHOW_IMPORTED = """
import sys
import dyclu.service.engine.state
print(*(name for name in sys.modules if name.startswith("dyclu.")))
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the package's sources that stands in for them."""
    here = Path(dyclu.__file__).parent
    copy = shutil.copytree(here, tmp_path / "installed", ignore=shutil.ignore_patterns("*.pyc"))
    monkeypatch.setattr(dyclu, "__file__", str(copy / "__init__.py"))
    made_by.cache_clear()
    yield copy
    made_by.cache_clear()


def change(file: Path) -> None:
    file.write_text(file.read_text() + "\n# another\n")


def test_the_digest_covers_every_module_that_a_state_imports(installed: Path) -> None:
    words = [sys.executable, "-c", SHOW_IMPORTED]
    names = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    covered = {file for pattern in SOURCES for file in installed.glob(pattern)}
    for name in names:
        module = installed.joinpath(*name.split(".")[1:])
        assert covered & {module.with_suffix(".py"), module / "__init__.py"}, name


FILES = ("policy.py", "core/stats.py", "kernels/ridge.py", "policies/atlas/users.py")


@pytest.mark.parametrize("name", [*FILES, "service/engine/state.py", "service/schema/answers.py"])
def test_a_changed_source_file_changes_the_digest(installed: Path, name: str) -> None:
    before = made_by()
    change(installed / name)
    made_by.cache_clear()
    assert made_by()["source"] != before["source"]


def test_an_upgrade_beside_a_running_service_does_not_sign_its_snapshots(
    installed: Path, tmp_path: Path
) -> None:
    bench = Bench(tmp_path)
    change(installed / "service/engine/state.py")
    bench.decide("ana")
    bench.save()
    (file,) = bench.snapshots.folder.glob("*.state")
    signed = read(file).options["made_by"]
    made_by.cache_clear()
    assert signed["source"] != made_by()["source"]
    bench.close()
