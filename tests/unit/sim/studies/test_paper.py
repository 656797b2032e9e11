"""`dyclu.sim.studies.paper`: runs and policies of a study."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dyclu.errors import OptionError
from dyclu.policies import Uniform
from dyclu.sim.runs.contestants import CONTESTANTS
from dyclu.sim.studies.paper import QUICK_ROWS, figure2, shortened, table1
from dyclu.sim.studies.study import Study
from dyclu.sim.worlds import paper
from dyclu.sim.worlds.population import Population

TINY = Population(users=3, parameters=2, dim=3, arms=9, offered=3, rounds=20, shortest=8, longest=9)


def exploding(dim: int) -> Uniform:
    raise ZeroDivisionError("boom")


def test_table_1_is_all_its_rows_or_those_asked_for() -> None:
    study = table1(seeds=(0,))
    assert dict(study.settings) == {f"row{i}": paper.SETTINGS[f"row{i}"] for i in range(1, 10)}
    assert study.policies == CONTESTANTS
    assert list(table1(rows=(4, 2), seeds=(0,)).settings) == ["row4", "row2"]


def test_an_unknown_row_is_refused() -> None:
    with pytest.raises(OptionError, match="no row 10; choose from 1-9"):
        table1(rows=(1, 10), seeds=(0,))


def test_a_quick_study_is_short_and_has_a_folder_of_its_own() -> None:
    study = table1(seeds=(0,), quick=True)
    assert list(study.settings) == [f"row{row}" for row in QUICK_ROWS]
    assert study.name == "table1-quick"
    assert study.published() == {}
    assert figure2(seeds=(0,), quick=True).settings["env2"].shortest == 100


def test_shortening_keeps_the_number_of_periods() -> None:
    for setting in paper.SETTINGS.values():
        small = shortened(setting)
        assert small.rounds / small.shortest == setting.rounds / setting.shortest
        assert (
            replace(
                setting,
                users=small.users,
                rounds=small.rounds,
                shortest=small.shortest,
                longest=small.longest,
            )
            == small
        )


def test_published_numbers_are_shown_only_for_the_papers_settings() -> None:
    row1 = paper.SETTINGS["row1"]
    for setting, known in ((row1, True), (replace(row1, rounds=500), False)):
        study = Study(
            name="x", title="x", settings={"row1": setting}, policies=("dyclu",), seeds=(0,)
        )
        assert bool(study.published()) is known


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("nope", "no policy is called 'nope'; choose one of uniform, linucb"),
        ("no_such_module:Policy", "cannot be imported"),
        ("fractions:Fraction", "expected a policy"),
        (f"{__name__}:exploding", r"cannot be made \(ZeroDivisionError: boom\)"),
    ],
)
def test_names_that_are_no_policy_are_refused(policy: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        figure2(policies=("dyclu", policy), seeds=(0,))


def test_an_empty_list_of_policies_is_refused() -> None:
    with pytest.raises(OptionError, match="there are no policies"):
        figure2(policies=(), seeds=(0,))


def test_results_have_the_names_of_their_settings(tmp_path: Path) -> None:
    study = Study(
        name="x",
        title="x",
        settings={"mine": TINY, "yours": replace(TINY, noise=0.2)},
        policies=("uniform", "linucb"),
        seeds=(3, 5),
    )
    results = study.run(tmp_path, workers=1, dask=None, progress=lambda done, total: None)
    found = [(run.setting, run.policy, run.seed) for run in results]
    assert found[:3] == [("mine", "uniform", 3), ("mine", "uniform", 5), ("mine", "linucb", 3)]
    assert len(found) == len(set(found)) == 8
    assert len(list((tmp_path / "runs").iterdir())) == 8
