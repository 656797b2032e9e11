"""Commands read a journal as it was when they began, whatever its service does meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dyclu.errors import FileError
from dyclu.service.disk.snapshots import JOURNAL
from dyclu.service.spec import PolicySpec
from dyclu.service.tools.export.arms import export_arms
from dyclu.service.tools.export.decisions import export
from dyclu.service.tools.replay import replay
from dyclu.service.tools.sources import Source, sources
from tests.service.bench import Bench
from tests.service.disk import test_archive, test_retention

Reading = Callable[[list[Source], Path, Callable[[int], None]], object]
ALPHA = PolicySpec("linucb", 2, {"alpha": 0.5})


def arms(journals: list[Source], out: Path, progress: Callable[[int], None]) -> object:
    return export_arms(journals, out, progress=progress), out.read_text()


def plain(journals: list[Source], out: Path, progress: Callable[[int], None]) -> object:
    return export(journals, out, progress=progress), out.read_text()


def replayed(journals: list[Source], out: Path, progress: Callable[[int], None]) -> object:
    other = PolicySpec("uniform", 2, {})
    return json.dumps(replay(journals, ALPHA, other, progress=progress).numbers())


def clicked(folder: Path) -> Bench:
    """Serve 100 decisions, each with a click, and no reward of 0."""
    bench = Bench(folder, epsilon=0.5, log_arms=True, reward_wait=20.0)
    for number in range(100):
        bench.now += 1.0
        bench.decide(f"u{number % 7}", decision_id=f"d{number}")
        bench.reward(f"d{number}", 1.0)
    bench.now += 30.0
    bench.expire()
    return bench


@pytest.mark.parametrize("read", [arms, plain, replayed])
@pytest.mark.parametrize("retire", [test_archive.retire, test_retention.retire])
@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_a_base_that_comes_in_between_changes_nothing_of_what_is_read(
    tmp_path: Path, read: Reading, retire: Callable[[Bench, int], Any], share: float
) -> None:
    bench, retired = clicked(tmp_path), list[int]()
    retire(bench, 40)

    def retire_once(done: int) -> None:
        if not retired and done >= share * bench.reader.last():
            retired.append(done)
            retire(bench, 160)

    with sources(tmp_path / JOURNAL, store=None, tenant="default") as journals:
        expected = read(journals, tmp_path / "before.csv", lambda _: None)
    with sources(tmp_path / JOURNAL, store=None, tenant="default") as journals:
        found = read(journals, tmp_path / "during.csv", retire_once)
    bench.close()
    assert retired
    assert found == expected


def test_a_journal_for_whose_copy_there_is_no_room_is_refused_with_what_to_do(
    tmp_path: Path,
) -> None:
    bench = clicked(tmp_path)
    with pytest.raises(FileError, match=r"cannot be copied.*TMPDIR"):
        bench.reader.copy_to(tmp_path / "nowhere" / "copy.db")
    bench.close()
