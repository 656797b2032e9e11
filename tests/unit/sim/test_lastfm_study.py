"""`dyclu.sim.lastfm_study`: runs on Last.fm are swept and reported like all others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dyclu.errors import OptionError, SweepFailed
from dyclu.sim.document import Table
from dyclu.sim.lastfm import LISTENED, TAGGED
from dyclu.sim.lastfm_study import LastFMStudy
from dyclu.sim.page import html
from dyclu.sim.records import Result, write_csv, write_timing
from dyclu.sim.sweep import sweep
from tests.unit.sim.samples import FACTS


def made(study: LastFMStudy, folder: Path) -> list[Result]:
    return study.make(folder, workers=1, dask=None, progress=lambda done, total: None)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three people, each of whom gave 40 of 120 artists 20 of 40 tags."""
    rng = np.random.default_rng(5)
    rows = [
        (person, 10 * (40 * person + artist), tag, 1, 4, 2009)
        for person in range(3)
        for artist in range(1, 41)
        for tag in rng.permutation(40)[:20].tolist()
    ]
    folder = tmp_path_factory.mktemp("hetrec")
    for (name, columns), table in ((TAGGED, rows), (LISTENED, [(0, 10, 1)])):
        lines = ["\t".join(map(str, line)) for line in (columns, *table)]
        (folder / name).write_text("\n".join(lines) + "\n")
    return folder


def test_last_fm_runs_are_made_once(data: Path, tmp_path: Path) -> None:
    study = LastFMStudy.read(data, policies=("uniform", "linucb"), seeds=(0,), quick=True)
    told: list[tuple[int, int]] = []
    results = study.make(
        tmp_path,
        workers=2,
        dask=None,
        progress=lambda done, total: told.append((done, total)),
    )
    assert told == [(0, 2), (1, 2), (2, 2)]
    uniform, linucb = results
    # Four users of two people of 800 observations each.
    assert (uniform.policy, uniform.rounds) == ("uniform", 4 * 2 * 800)
    assert uniform.alarms_true + uniform.alarms_missed == 4
    assert linucb.regret < uniform.regret < uniform.rounds
    assert uniform.curve[-1] == uniform.regret

    before = {path: path.stat().st_ino for path in (tmp_path / "runs").iterdir()}
    assert made(study, tmp_path) == results
    assert {path: path.stat().st_ino for path in (tmp_path / "runs").iterdir()} == before

    document = study.document(results, facts=FACTS)
    assert document.title in html(document)
    assert isinstance(document.parts[0][1], Table)
    assert [row[0] for row in document.table.rows] == ["uniform", "linucb"]
    write_csv(results, tmp_path / "results.csv")
    write_timing(results, tmp_path / "timing.csv")
    assert len((tmp_path / "results.csv").read_text().splitlines()) == 3


def test_another_policy_seed_or_file_is_another_run(data: Path) -> None:
    study = LastFMStudy.read(data, policies=("uniform",), seeds=(0,), quick=True)
    (job,) = study.jobs
    others = [
        replace(job, seed=1),
        replace(job, policy="dyclu"),
        replace(job, source="other"),
        replace(job, quick=False),
    ]
    assert len({job.key, *(other.key for other in others)}) == 5


def test_a_run_that_fails_does_not_stop_the_others(data: Path, tmp_path: Path) -> None:
    study = LastFMStudy.read(data, policies=("uniform",), seeds=(0, 1), quick=True)
    good, bad = study.jobs
    # Fewer artists than are offered: drawing the stream fails, in the worker.
    few = replace(study.data, tagged=np.ones_like(study.data.tagged))
    with pytest.raises(SweepFailed, match=r"1 run failed.*\n- uniform on lastfm, seed 1: Option"):
        sweep([replace(bad, data=few), good], folder=tmp_path, workers=1)
    assert [file.stem for file in (tmp_path / "runs").iterdir()] == [good.key]


def test_a_dask_cluster_needs_no_files(data: Path, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="dask is not installed")
    study = LastFMStudy.read(data, policies=("uniform",), seeds=(0,), quick=True)
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address=":0", host="127.0.0.1"
    ) as cluster:
        results = study.make(
            tmp_path,
            workers=None,
            dask=cluster.scheduler_address,
            progress=lambda done, total: None,
        )
    assert results == [job.run() for job in study.jobs]


def test_nobody_can_be_an_oracle_on_last_fm(data: Path) -> None:
    with pytest.raises(OptionError, match=r"oracle cannot play .*choose from uniform, linucb"):
        LastFMStudy.read(data, policies=("oracle",), seeds=(0,))
