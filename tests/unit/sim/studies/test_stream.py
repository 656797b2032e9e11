"""`dyclu.sim.studies.stream`: runs on recorded data are swept and reported like all others."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from dyclu.cli import app
from dyclu.errors import OptionError, SweepFailed
from dyclu.policies import Uniform
from dyclu.sim.reports.document import Table
from dyclu.sim.reports.page import html, markdown
from dyclu.sim.runs import jobs
from dyclu.sim.runs.results import Result, write_csv, write_timing
from dyclu.sim.runs.sweep import sweep
from dyclu.sim.studies.stream import LASTFM, MOVIELENS, StreamStudy
from dyclu.sim.worlds.lastfm import LISTENED, TAGGED, LastFM
from dyclu.sim.worlds.movielens_files import MOVIES, RATINGS, TAGS
from tests.unit.sim.samples import FACTS, a_result


def made(study: StreamStudy, folder: Path) -> list[Result]:
    return study.run(folder, workers=1, dask=None, progress=lambda done, total: None)


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


class Worried(Uniform):
    """Always warns of the same."""

    @property
    def warnings(self) -> tuple[str, ...]:
        return ("Seen this.",)


def test_warnings_on_recorded_events_are_stored_and_reported(data: Path, tmp_path: Path) -> None:
    worried = f"{__name__}:Worried"
    study = StreamStudy.read(LASTFM, data, policies=("uniform", worried), seeds=(0,), quick=True)
    document = study.document(made(study, tmp_path), facts=FACTS, pictures=False)
    (line,) = document.policy_warnings
    assert line.startswith(f"{worried} warns in 1 of 1 run (lastfm")
    assert line.endswith("): Seen this.")


def test_last_fm_runs_are_made_once(data: Path, tmp_path: Path) -> None:
    study = StreamStudy.read(LASTFM, data, policies=("uniform", "linucb"), seeds=(0,), quick=True)
    calls: list[tuple[int, int]] = []
    results = study.run(
        tmp_path,
        workers=2,
        dask=None,
        progress=lambda done, total: calls.append((done, total)),
    )
    assert calls == [(0, 2), (1, 2), (2, 2)]
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


def test_everything_that_decides_a_run_changes_its_key(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def key(**options: Any) -> str:
        given: dict[str, Any] = {"policies": ("linucb",), "seeds": (0,), **options}
        (job,) = StreamStudy.read(LASTFM, data, **given).jobs
        return job.key

    study = StreamStudy.read(LASTFM, data, policies=("linucb",), seeds=(0,))
    (job,), last_fm = study.jobs, LastFM.read(data)
    keys = [
        job.key,
        key(seeds=(1,)),
        key(policies=("linucb-0.3",)),
        key(quick=True),
        key(reading={"least": 700}),
        key(reading={"scaling": "unit"}),
        key(reading={"dim": 20}),
        key(drawing={"order": "dated"}),
        key(drawing={"serving": "at random"}),
        key(drawing={"negatives": "untagged"}),
        key(drawing={"users": 5}),
        # Files that read to the same people but other features.
        replace(job, source=replace(last_fm, features=-last_fm.features).digest).key,
    ]
    monkeypatch.setattr(jobs, "RESULT_VERSION", 99)
    assert len({*keys, job.key}) == len(keys) + 1


def test_default_options_and_the_same_options_given_have_the_same_key(data: Path) -> None:
    by_default, given = (
        StreamStudy.read(LASTFM, data, policies=("dyclu",), seeds=(0,), **options).jobs[0]
        for options in (
            dict[str, Any](),
            {"reading": {"least": 800}, "drawing": {"order": "shuffled", "users": 20}},
        )
    )
    assert given.key == by_default.key
    assert given.name == by_default.name == "lastfm"


def test_runs_with_other_options_have_other_names(data: Path) -> None:
    study = StreamStudy.read(
        LASTFM,
        data,
        policies=("dyclu",),
        seeds=(0,),
        reading={"scaling": "unit", "least": 800},
        drawing={"serving": "at random"},
    )
    assert study.jobs[0].name == "lastfm scaling=unit serving=at random"


def test_an_impossible_stream_is_refused_before_the_first_run(data: Path) -> None:
    for drawing, complaint in (({"parts": 4}, "parts is 4"), ({"order": "any"}, "order is 'any'")):
        with pytest.raises(OptionError, match=complaint):
            StreamStudy.read(LASTFM, data, policies=("uniform",), seeds=(0,), drawing=drawing)


def test_the_report_names_the_width_of_every_policy(data: Path) -> None:
    study = StreamStudy.read(
        LASTFM, data, policies=("dyclu", "dyclu-0.3", "largest-norm"), seeds=(0,)
    )
    runs = [a_result("lastfm", policy, 0, 5.0) for policy in study.policies]
    text = markdown(study.document(runs, facts=FACTS, pictures=False))
    levels = "window=20, window_delta=0.1, change_level=0.01, neighbour_level=0.01"
    assert f"| dyclu | Eq. (2) | ridge=0.1, delta=0.1, {levels} |" in text
    assert f"| dyclu-0.3 | 0.3 | ridge=0.1, delta=0.1, {levels}, alpha=0.3 |" in text
    assert "popularity leaks into the length" in text
    assert "| order | shuffled |" in text
    assert "Nobody is told the noise" in text


def test_a_run_that_fails_does_not_stop_the_others(data: Path, tmp_path: Path) -> None:
    study = StreamStudy.read(LASTFM, data, policies=("uniform",), seeds=(0, 1), quick=True)
    good, bad = study.jobs
    # Fewer artists than are offered: drawing the stream fails, in the worker.
    last_fm = LastFM.read(data)
    few = replace(last_fm, tagged=np.ones_like(last_fm.tagged))
    with pytest.raises(SweepFailed, match=r"1 run failed.*\n- uniform on lastfm.*, seed 1: Option"):
        sweep([replace(bad, data=few), good], folder=tmp_path, workers=1)
    assert [file.stem for file in (tmp_path / "runs").iterdir()] == [good.key]


def test_reproducing_all_with_the_oracle_alone_is_refused(data: Path, tmp_path: Path) -> None:
    words = ["reproduce", "all", "--policies=oracle", f"--data={data}", f"--out={tmp_path / 'out'}"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert result.stderr.startswith("dyclu: oracle cannot play on recorded events")
    assert not (tmp_path / "out").exists()


def test_options_of_last_fm_come_from_the_command_line(data: Path, tmp_path: Path) -> None:
    options = ["--least=700", "--scaling=unit", "--order=dated", "--serving=at-random"]
    words = ["lastfm", "--quick", f"--data={data}", "--policies=uniform", "--seeds=1", *options]
    result = CliRunner().invoke(
        app, ["reproduce", *words, "--negatives=untagged", f"--out={tmp_path}", "--jobs=1"]
    )
    assert result.exit_code == 0, result.output
    (run,) = (json.loads(file.read_text()) for file in (tmp_path / "runs").iterdir())
    assert run["job"]["reading"] == {"dim": 25, "least": 700, "scaling": "unit"}
    assert run["job"]["drawing"] == {
        "users": 4,
        "parts": 2,
        "offered": 25,
        "order": "dated",
        "serving": "at random",
        "negatives": "untagged",
    }
    text = (tmp_path / "lastfm-quick" / "report.md").read_text()
    assert f"--quick {' '.join(options)} --negatives=untagged" in text


def test_a_dask_cluster_needs_no_files(data: Path, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="dask is not installed")
    study = StreamStudy.read(LASTFM, data, policies=("uniform",), seeds=(0,), quick=True)
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address=":0", host="127.0.0.1"
    ) as cluster:
        results = study.run(
            tmp_path,
            workers=None,
            dask=cluster.scheduler_address,
            progress=lambda done, total: None,
        )
    assert results == [job.run() for job in study.jobs]


def test_the_oracle_is_refused_on_last_fm(data: Path) -> None:
    with pytest.raises(OptionError, match=r"oracle cannot play .*choose from largest-norm, unif"):
        StreamStudy.read(LASTFM, data, policies=("oracle",), seeds=(0,))


# MovieLens


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ratings of 80 films by 10 people before 2007, and by 6 people after it."""
    rng = np.random.default_rng(6)
    seconds = {True: 1_000_000_000, False: 1_200_000_000}
    ratings = [
        (person, film, 4.5, seconds[person <= 10] + int(rng.integers(10**6)))
        for person in range(1, 17)
        for film in (1 + rng.permutation(80)[:40]).tolist()
    ]
    movies = [
        (film, f"Film ({1960 + film // 2})", "|".join(rng.permutation(list("ABCDEFGH"))[:2]))
        for film in range(1, 81)
    ]
    tags = [(1, int(film), f"tag {film % 20}", 1_000_000_000) for film in range(1, 81)]
    folder = tmp_path_factory.mktemp("movielens")
    for (name, columns), table in ((RATINGS, ratings), (MOVIES, movies), (TAGS, tags)):
        lines = [",".join(map(str, line)) for line in (columns, *table)]
        (folder / name).write_text("\n".join(lines) + "\n")
    return folder


def test_movie_lens_runs_are_made_once(films: Path, tmp_path: Path) -> None:
    policies = ("uniform", "linucb-0.3", "atlas")
    study = StreamStudy.read(
        MOVIELENS, films, policies=policies, seeds=(0,), reading={"popular": 2}
    )
    results = made(study, tmp_path)
    assert [result.policy for result in results] == list(policies)
    assert {result.setting for result in results} == {"movielens popular=2"}
    assert {result.rounds for result in results} == {len(study.data.stream(0, offered=25))}
    before = {path: path.stat().st_ino for path in (tmp_path / "runs").iterdir()}
    assert made(study, tmp_path) == results
    assert {path: path.stat().st_ino for path in (tmp_path / "runs").iterdir()} == before


def test_options_of_movie_lens_come_from_the_command_line(films: Path, tmp_path: Path) -> None:
    options = ["--least=20", "--scaling=unit", "--serving=in-turn", "--negatives=never-rated"]
    options += ["--parts=3", "--cut=2006-06-01", "--stars=4.5", "--popular=3"]
    words = ["movielens", f"--data={films}", "--policies=uniform", "--seeds=1", *options]
    result = CliRunner().invoke(app, ["reproduce", *words, f"--out={tmp_path}", "--jobs=1"])
    assert result.exit_code == 0, result.output
    (run,) = (json.loads(file.read_text()) for file in (tmp_path / "runs").iterdir())
    assert run["job"]["reading"] == {
        "dim": 25,
        "cut": "2006-06-01",
        "least": 20,
        "stars": 4.5,
        "popular": 3,
        "scaling": "unit",
    }
    assert run["job"]["drawing"] == {
        "users": None,
        "parts": 3,
        "offered": 25,
        "serving": "in turn",
        "negatives": "never rated",
    }
    text = (tmp_path / "movielens-hybrid" / "report.md").read_text()
    assert all(option in text for option in options)
    assert "| cut | 2006-06-01 |" in text
    assert "Every event offers 25 films" in text


def test_plain_and_hybrid_users_have_reports_of_their_own(films: Path) -> None:
    def name(**options: Any) -> str:
        given = {"policies": ("uniform",), "seeds": (0,), "reading": {"popular": 2}, **options}
        return StreamStudy.read(MOVIELENS, films, **given).name

    assert name() == name(drawing={"parts": 1}) == "movielens"
    assert name(drawing={"parts": 3}) == "movielens-hybrid"
    quick = {"users": 2, "parts": 3}
    assert name(drawing=quick, quick=True) == "movielens-hybrid-quick"


def test_everything_that_decides_a_run_on_movie_lens_changes_its_key(films: Path) -> None:
    def key(**options: Any) -> str:
        reading = {"popular": 2, **options.pop("reading", {})}
        given: dict[str, Any] = {"policies": ("linucb",), "seeds": (0,), **options}
        (job,) = StreamStudy.read(MOVIELENS, films, reading=reading, **given).jobs
        return job.key

    keys = [
        key(),
        key(seeds=(1,)),
        key(policies=("dyclu",)),
        key(reading={"cut": "2006-01-01"}),
        key(reading={"least": 20}),
        key(reading={"stars": 4.5}),
        key(reading={"popular": 1}),
        key(reading={"scaling": "none"}),
        key(reading={"dim": 20}),
        key(drawing={"parts": 3}),
        key(drawing={"users": 2}),
        key(drawing={"serving": "in turn"}),
        key(drawing={"negatives": "never rated"}),
    ]
    assert len(set(keys)) == len(keys)


def test_an_option_of_the_other_data_set_is_refused(films: Path, tmp_path: Path) -> None:
    for words, message in (
        (["movielens", "--order=dated"], "--order is for lastfm; leave it out"),
        (["lastfm", "--cut=2007-01-01"], "--cut is for movielens; leave it out"),
        (["table1", "--least=3"], "--least is for lastfm and movielens; leave it out"),
        (["movielens", "--rows=1"], "movielens has no rows"),
    ):
        arguments = ["reproduce", *words, f"--data={films}", f"--out={tmp_path / 'out'}"]
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 2
        assert result.stderr.startswith(f"dyclu: {message}")
    result = CliRunner().invoke(app, ["reproduce", "movielens"])
    assert result.stderr.startswith("dyclu: movielens needs --data with the MovieLens data set")
