"""`dyclu.sim.runs.jobs`: keys cover everything that decides a run; results are those of `play`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from itertools import permutations
from pathlib import Path
from typing import Any, cast

import pytest

import dyclu
from dyclu.errors import DycluError, KindError, OptionError
from dyclu.policies import LinUCB
from dyclu.sim.runs import contestants, jobs
from dyclu.sim.runs.jobs import Job
from dyclu.sim.runs.measures import Summary, regret, summary
from dyclu.sim.runs.play import play
from dyclu.sim.runs.results import Timing
from dyclu.sim.runs.stream.job import StreamJob
from dyclu.sim.runs.wild import WildJob
from dyclu.sim.worlds.lastfm import LastFM
from dyclu.sim.worlds.population import Population
from dyclu.sim.worlds.wild import Wild

TINY = Population(users=4, parameters=2, dim=4, arms=20, offered=5, rounds=30, shortest=10)

PATIENCE = 60.0
"""Seconds after which a test that waits for something gives up."""


def test_keys_do_not_depend_on_the_order_of_fields() -> None:
    given = {"users": 3, "dim": 4, "rounds": 9}
    orders = [dict(order) for order in permutations(given.items())]
    assert len({Job(Population(**order), "linucb").key for order in orders}) == 1


def test_keys_depend_on_the_configuration_not_on_its_name() -> None:
    named = Job("row1", "dyclu", seed=2, rounds=100)
    assert named.key == Job(Population(rounds=100), "dyclu", seed=2).key
    assert named.key == Job(Population(rounds=7), "dyclu", seed=2, rounds=100).key


def test_keys_of_different_configurations_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [
        Job("row1", "dyclu"),
        Job("row2", "dyclu"),
        Job("row1", "linucb"),
        Job("row1", "shared-linucb"),
        Job("row1", "dyclu.policies:LinUCB"),
        Job("row1", "dyclu", seed=1),
        Job("row1", "dyclu", rounds=10),
        Job(Population(noise=0.1), "dyclu"),
    ]
    keys = {job.key for job in made}
    for name, value in (("RESULT_VERSION", 99), ("LOOK", 99)):
        with monkeypatch.context() as changed:
            changed.setattr(jobs, name, value)
            keys.add(made[0].key)
    monkeypatch.setattr(contestants, "RIDGE", 99.0)
    assert len(keys | {made[0].key}) == len(made) + 3


def test_a_release_keeps_the_keys_of_stored_results() -> None:
    # The number under which the first results were stored; only RESULT_VERSION makes them invalid.
    assert dyclu.__version__ != "0.1.0"
    recorded = StreamJob(data=cast(Any, LastFM), source="x", policy="linucb")
    for job in (Job("row1", "dyclu"), WildJob(setting=Wild(), policy="linucb"), recorded):
        assert job.configuration["dyclu"] == "0.1.0"


def test_keys_are_the_same_in_every_process() -> None:
    code = "from dyclu.sim.runs.jobs import Job; print(Job('row3', 'dyclu', seed=4).key)"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    assert found.stdout.strip() == Job("row3", "dyclu", seed=4).key


def test_editing_an_own_policy_changes_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    source = tmp_path / "edited_policy.py"
    source.write_text("from dyclu.policies.uniform import Uniform\nclass Mine: pass\n")
    job = Job(TINY, "edited_policy:Mine")
    before = job.key
    assert before == job.key
    source.write_text(source.read_text() + "# better now\n")
    # A process keeps the code it has loaded; a new process loads the new code.
    assert job.key == before
    jobs._source.cache_clear()
    assert job.key != before


def test_editing_a_partial_or_its_class_changes_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    kind, named = tmp_path / "wrapped_policy.py", tmp_path / "partial_policy.py"
    kind.write_text("class Mine: pass\n")
    named.write_text(
        "from functools import partial\nfrom wrapped_policy import Mine\nmine = partial(Mine)\n"
    )
    job = Job(TINY, "partial_policy:mine")
    keys = [job.key]
    assert job.configuration["source"] is not None
    for file in (kind, named):
        file.write_text(file.read_text() + "# better now\n")
        jobs._source.cache_clear()
        keys.append(job.key)
    assert len(set(keys)) == 3


@pytest.mark.parametrize(
    ("make", "error", "complaint"),
    [
        (lambda: Job("row10", "dyclu"), OptionError, "choose one of row1, row2, .*env3"),
        (lambda: Job("row1", "dyclo"), OptionError, "choose one of uniform, linucb"),
        (lambda: Job("row1", "dyclu", seed=-1), OptionError, "seed is -1"),
        (lambda: Job("row1", "dyclu", seed=True), KindError, "seed is True"),
        (lambda: Job("row1", "dyclu", rounds=0), OptionError, "rounds is 0"),
    ],
)
def test_impossible_jobs_are_refused_at_once(
    make: Callable[[], Job], error: type[DycluError], complaint: str
) -> None:
    with pytest.raises(error, match=complaint):
        make()


def test_a_setting_without_a_name_is_named_by_its_differences_from_row_1() -> None:
    assert Job(replace(TINY, rounds=9), "dyclu").name == (
        "users=4 parameters=2 dim=4 arms=20 offered=5 rounds=9 shortest=10"
    )
    assert Job(Population(), "dyclu").name == "row1"
    assert Job(Population(rounds=50), "dyclu").name == "rounds=50"
    assert Job("row4", "dyclu", rounds=50).name == "row4 rounds=50"
    assert Job("row4", "dyclu", rounds=2500).name == "row4"


def test_a_result_has_the_summary_and_curve_of_the_run() -> None:
    job = Job(TINY, "dyclu.policies:LinUCB", seed=3)
    played = play(LinUCB(4), TINY.world(seed=3), look=25)
    expected, result = summary(played), job.run()
    timing = {field.name for field in fields(Timing)}
    measured = {field.name for field in fields(Summary)} - timing
    assert {name: getattr(result, name) for name in measured} == {
        name: getattr(expected, name) for name in measured
    }
    assert (result.setting, result.policy, result.seed) == (job.name, job.policy, 3)
    assert (result.rounds, result.version) == (30, dyclu.__version__)
    assert result.timing.seconds > 0
    assert result.curve == tuple(regret(played)[3::4])


def test_results_that_differ_in_timing_are_equal() -> None:
    first, second = Job(TINY, "uniform").run(), Job(TINY, "uniform").run()
    assert first == second
    assert first.timing != second.timing
    assert first != Job(TINY, "uniform", seed=1).run()
