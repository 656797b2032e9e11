"""`dyclu.service.maker`: a snapshot says by which code it was made."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import dyclu
from dyclu.service.maker import STATE, made_by
from dyclu.storage import read
from tests.service.bench import Bench

SHOW_IMPORTED = """
import sys
import dyclu.service.state
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


def test_all_that_a_state_is_made_of_counts() -> None:
    words = [sys.executable, "-c", SHOW_IMPORTED]
    names = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    service = {name.removeprefix("dyclu.service.") for name in names if ".service." in name}
    assert service == set(STATE)
    # Of all else the top of the package and `policies` are covered.
    rest = {name for name in names if not name.startswith("dyclu.service")}
    assert all(name.count(".") == 1 or name.startswith("dyclu.policies.") for name in rest)


@pytest.mark.parametrize("name", STATE)
def test_another_source_is_another_maker(installed: Path, name: str) -> None:
    before = made_by()
    change(installed / f"service/{name}.py")
    made_by.cache_clear()
    assert made_by()["source"] != before["source"]


def test_an_upgrade_beside_a_running_service_does_not_sign_its_snapshots(
    installed: Path, tmp_path: Path
) -> None:
    bench = Bench(tmp_path)
    change(installed / "service/state.py")
    bench.decide("ana")
    bench.save()
    (file,) = bench.snapshots.folder.glob("*.state")
    signed = read(file).options["made_by"]
    made_by.cache_clear()
    assert signed["source"] != made_by()["source"]
    bench.close()
