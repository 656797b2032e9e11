"""Wild worlds as jobs, studies and reports."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dyclu.cli import app
from dyclu.errors import OptionError
from dyclu.sim import play, summary
from dyclu.sim.reports.wild import ceiling_ratios, plain_ratios, ratio_table
from dyclu.sim.runs.contestants import contestant
from dyclu.sim.runs.jobs import Job
from dyclu.sim.runs.wild import CEILINGS, CONTESTANTS, Present, WildJob
from dyclu.sim.studies import wild
from dyclu.sim.studies.wild import WildStudy, shortened, wild_study
from dyclu.sim.worlds.named import WORLDS
from dyclu.sim.worlds.population import Population
from dyclu.sim.worlds.wild import Wild
from tests.unit.sim.samples import FACTS, a_result

TINY = Wild(users=4, parameters=2, dim=3, arms=12, offered=4, rounds=12, shortest=4, longest=6)
RESULTS = [
    a_result("mars", policy, 0, regret)
    for policy, regret in {
        "oracle": 10.0, "told": 30.0, "uniform": 400.0, "linucb": 100.0, "atlas": 50.0
    }.items()
]  # fmt: skip


def invoke(*words: str) -> Any:
    return CliRunner().invoke(app, list(words), env={"COLUMNS": "100"})


# Ceilings


def regret(setting: Wild, policy: str, seed: int = 0) -> float:
    return WildJob(setting=setting, policy=policy, seed=seed).run().regret


@pytest.mark.parametrize(
    "name", ["quiet", "clicks", "offset", "drift", "late", "power-law", "one-hot", "heavy-tails"]
)
def test_ceilings_are_far_below_a_policy_that_learns_both(name: str) -> None:
    setting = replace(WORLDS[name], users=20, rounds=100, shortest=40, longest=60)
    setting = replace(setting, delay=setting.delay // 3, parameters=3)
    linucb = regret(setting, "linucb-0.3")
    assert all(regret(setting, ceiling) < 0.75 * linucb for ceiling in CEILINGS)


@pytest.mark.parametrize("delay", [0, 5])
def test_the_oracle_is_told_the_taste_of_the_round_also_if_rewards_are_late(delay: int) -> None:
    world = replace(TINY, delay=delay).world(3)
    present = Present(world)
    run = play(present.contestant("oracle"), world, tell=present.tell)
    assert summary(run).precision == 1
    for turn in world:
        present.tell(turn)
        segment = present.contestant("oracle").learn(turn.user, turn.arms[0], 0.0).segment
        assert segment == turn.parameter


def test_one_taste_leaves_nothing_to_find_out() -> None:
    assert regret(replace(TINY, parameters=1, rewards="logistic", slope=3.0), "told") == 0


def test_told_plays_in_the_papers_worlds() -> None:
    setting = Population(users=10, parameters=3, dim=5, rounds=200, shortest=50, longest=100)
    world = setting.world(1)
    # About 20 changes; each costs a few rounds, of which one gives away at most 2.
    changes = sum(len(world.changes(user)) for user in range(10))
    found = summary(play(contestant("told", world), world))
    assert found.regret < 2 * (changes + 10)
    assert found.alarms_true > 0.9 * changes
    assert Job(setting, "told", seed=1).run().regret == found.regret


# Jobs


def test_keys_depend_on_options_policy_and_seed_but_not_on_names() -> None:
    jobs = [
        WildJob(setting=TINY, policy="linucb"),
        WildJob(setting=TINY, policy="linucb-0.3"),
        WildJob(setting=TINY, policy="linucb", seed=1),
        WildJob(setting=replace(TINY, delay=1), policy="linucb"),
    ]
    assert len({job.key for job in jobs}) == 4
    assert WildJob(setting=WORLDS["quiet"], policy="told").name == "quiet"
    assert WildJob(setting=replace(Wild(), users=7), policy="told").name == "users=7"
    assert str(jobs[2]).startswith("linucb on users=4")


def test_equal_jobs_have_equal_results() -> None:
    job = WildJob(setting=replace(TINY, activity=1.0, delay=3), policy="atlas")
    assert job.run() == job.run()
    assert len(job.run().curve) == 12


# Reports


def test_ratios_are_those_of_the_definition() -> None:
    ratios = ceiling_ratios(RESULTS)["mars"]
    assert ratios == {"uniform": 10, "linucb": 2.5, "best plain": 2.5, "atlas": 1.25}
    assert plain_ratios(RESULTS) == {"mars": {"atlas": 0.5}}
    assert ceiling_ratios(RESULTS[1:]) == {}
    assert plain_ratios(RESULTS[-1:]) == {}


def test_the_last_row_is_the_geometric_mean() -> None:
    table = ratio_table({"a": {"atlas": 0.5}, "b": {"atlas": 4.0}}, "note")
    assert table.rows[-1] == ("geometric mean", f"{sqrt(2):.2f}")


def test_a_report_without_ceilings_or_plain_policies_has_no_ratios() -> None:
    study = WildStudy(name="x", title="x", settings={"mars": TINY}, policies=("told",), seeds=(0,))
    document = study.document(RESULTS[1:2], facts=FACTS)
    assert document.pictures == ()
    assert "Accumulated regret" in [heading for heading, _ in document.parts]


# Studies and commands


def test_a_study_has_all_policies_in_all_worlds() -> None:
    study = wild_study(seeds=(0,))
    assert study.settings == WORLDS
    assert study.policies == CONTESTANTS
    small = wild_study(seeds=(0,), quick=True)
    assert small.name == "wild-quick"
    assert all(world.users <= wild.QUICK_USERS for world in small.settings.values())
    assert shortened(WORLDS["one-hot"]).one_hot


def test_names_that_are_no_policy_are_refused() -> None:
    with pytest.raises(OptionError, match="no policy is called 'nope'"):
        wild_study(policies=("nope",), seeds=(0,))


def test_reproduce_wild_writes_a_report_and_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wild, "WORLDS", {"tiny": TINY, "clicks": replace(TINY, rewards="logistic")})
    monkeypatch.setattr(wild, "shortened", lambda setting: setting)
    words = ["reproduce", "wild", "--quick", f"--out={tmp_path}", "--jobs=1", "--seeds=7-7"]
    first = invoke(*words, "--policies=oracle,told,linucb-0.3,atlas")
    assert first.exit_code == 0, first.output
    report = (tmp_path / "wild-quick" / "report.md").read_text()
    assert "geometric mean" in report
    assert (tmp_path / "wild-quick" / "wild-quick.png").stat().st_size > 1000
    assert len(list((tmp_path / "runs").iterdir())) == 8
    monkeypatch.setattr(WildJob, "run", None)
    assert invoke(*words, "--policies=told,atlas").exit_code == 0


def test_simulate_takes_a_world_and_other_options_of_it(tmp_path: Path) -> None:
    changed = "users=3,rounds=8,arms=6,offered=3"
    words = ["simulate", f"--out={tmp_path}", "--jobs=1", "--seeds=1", "--policies=uniform,told"]
    found = invoke(*words, "--world=clicks", f"--set={changed}", "--set=delay=2")
    assert found.exit_code == 0, found.output
    report = (tmp_path / "report.md").read_text()
    assert f"dyclu simulate --world=clicks --set={changed},delay=2" in report
    assert "rewards=logistic" in report


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--world=mars"], "no world is called 'mars'; choose one of quiet"),
        (["--world=quiet", "--set=colour=1"], "no option 'colour'"),
        (["--world=quiet", "--set=users"], "'users', expected key=value"),
        (["--world=quiet", "--set=users=many"], "users is 'many'"),
        (["--world=quiet", "--users=3"], "--users is not for --world; write --set users=VALUE"),
        (["--set=users=3"], "--set is for --world"),
    ],
)
def test_impossible_commands_are_refused(words: list[str], message: str, tmp_path: Path) -> None:
    found = invoke("simulate", *words, f"--out={tmp_path}")
    assert found.exit_code == 2
    assert message in found.stderr
