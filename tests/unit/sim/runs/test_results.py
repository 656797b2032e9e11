"""`dyclu.sim.runs.results`: the points of a curve, and tables of results to the byte."""

from __future__ import annotations

import csv
from itertools import pairwise
from pathlib import Path

import pytest

from dyclu.errors import FileError
from dyclu.sim.runs.results import Result, Timing, checkpoints, write_csv, write_timing


@pytest.mark.parametrize("rounds", [1, 7, 249, 250, 251, 1000, 2500])
def test_checkpoints_are_evenly_spaced_and_end_at_the_end(rounds: int) -> None:
    points = [0, *checkpoints(rounds).tolist()]
    steps = {later - earlier for earlier, later in pairwise(points)}
    assert points[-1] == rounds
    assert len(points) - 1 == min(rounds, 250)
    assert steps <= {rounds // (len(points) - 1), rounds // (len(points) - 1) + 1}


def outcome(**values: object) -> Result:
    usual: dict[str, object] = {
        "setting": "row1",
        "policy": "dyclu",
        "seed": 0,
        "rounds": 10,
        "regret": 0.1 + 0.2,
        "alarms_true": 1,
        "alarms_false": 2,
        "alarms_missed": 3,
        "median_delay": None,
        "precision": 1.0,
        "recall": 1 / 3,
        "parameter_error": 1e-17,
        "version": "1.0",
        "curve": (0.1,),
        "timing": Timing(seconds=2.0, rounds_per_second=5.0),
    }
    return Result(**(usual | values))  # type: ignore[arg-type]


def test_the_table_has_a_line_per_run_in_order_and_exact_numbers(tmp_path: Path) -> None:
    results = [
        outcome(setting="row2"),
        outcome(seed=10),
        outcome(seed=9),
        outcome(policy="club"),
        outcome(rounds=5),
    ]
    write_csv(results, tmp_path / "results.csv")
    assert (tmp_path / "results.csv").read_text() == (
        "setting,policy,seed,rounds,regret,alarms_true,alarms_false,alarms_missed,median_delay,"
        "precision,recall,parameter_error,version\n"
        "row1,club,0,10,0.30000000000000004,1,2,3,,1.0,0.3333333333333333,1e-17,1.0\n"
        "row1,dyclu,0,5,0.30000000000000004,1,2,3,,1.0,0.3333333333333333,1e-17,1.0\n"
        "row1,dyclu,9,10,0.30000000000000004,1,2,3,,1.0,0.3333333333333333,1e-17,1.0\n"
        "row1,dyclu,10,10,0.30000000000000004,1,2,3,,1.0,0.3333333333333333,1e-17,1.0\n"
        "row2,dyclu,0,10,0.30000000000000004,1,2,3,,1.0,0.3333333333333333,1e-17,1.0\n"
    )


def test_timing_has_a_table_of_its_own(tmp_path: Path) -> None:
    write_timing([outcome()], tmp_path / "timing.csv")
    assert (tmp_path / "timing.csv").read_text() == (
        "setting,policy,seed,rounds,seconds,rounds_per_second\nrow1,dyclu,0,10,2.0,5.0\n"
    )


def test_names_with_commas_and_quotes_read_back(tmp_path: Path) -> None:
    write_csv([outcome(policy='a,"b"')], tmp_path / "results.csv")
    with (tmp_path / "results.csv").open(newline="") as file:
        assert [row["policy"] for row in csv.DictReader(file)] == ['a,"b"']


def test_writing_to_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"cannot write .*no-folder"):
        write_csv([], tmp_path / "no-folder" / "results.csv")
