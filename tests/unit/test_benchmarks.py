"""The benchmark suite runs, measures what it says, and its documents show what it measured."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from itertools import combinations, count, product
from pathlib import Path

import numpy as np
import pytest

from benchmarks import (
    ablations,
    chores,
    command,
    crowd,
    detection,
    judging,
    location,
    peers,
    rare_clicks,
    shop,
    start,
    test,
    unseen,
    waiting,
)
from benchmarks.bare import Bare
from benchmarks.drawn_segments import CHOSEN, NOISE, grown
from benchmarks.judging import Asked, Report
from benchmarks.machine import describe
from benchmarks.results import Effort, Results, Row, Target
from benchmarks.stage import stage
from benchmarks.tables import as_json, figures, markdown, read_group, sections, targets
from benchmarks.tenants import crowd as crowd_of
from benchmarks.timing import interleaved
from benchmarks.turns import Turn, block_steps, serve, slices, steps, turn
from dyclu import Atlas, DyClu, LinUCB
from dyclu.core.homogeneity import homogeneity
from dyclu.core.rewards import Law
from dyclu.errors import OptionError
from dyclu.service.disk.snapshots import JOURNAL, SNAPSHOTS, Snapshots, recover
from dyclu.service.disk.sqlite.reader import JournalReader
from dyclu.service.spec import PolicySpec
from dyclu.sim.runs.play import play
from dyclu.sim.runs.stream.largest_norm import LargestNorm
from dyclu.sim.worlds.population import Population
from dyclu.sim.worlds.wild import Wild
from dyclu.storage import read

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs/benchmarks.md").read_text()
COMMITTED = json.loads((ROOT / "docs/benchmarks.json").read_text())

SMALL = Population(users=4, parameters=2, rounds=30, shortest=10, longest=20)


@pytest.fixture(scope="module")
def turns() -> list[Turn]:
    return list(map(turn, SMALL.world(seed=0)))


SLOW = ("crowd", "service")


@pytest.mark.parametrize(
    "group",
    [
        pytest.param(group, marks=pytest.mark.long if group in SLOW else ())
        for group in command.GROUPS
    ],
)
def test_every_group_runs_and_writes_what_the_page_says(group: str, tmp_path: Path) -> None:
    arguments = [group, "--quick", "--out", str(tmp_path), "--cache", str(tmp_path / "cache")]
    assert command.run(arguments) == 0
    report = json.loads((tmp_path / "benchmarks.json").read_text())
    assert set(report) == {"quick", "machine", "groups"}
    assert report["quick"] is True
    found = report["groups"][group]
    assert set(found) == {"title", "against", "rows", "targets", "notes"}
    assert all(min(row["values"]) > 0 for row in found["rows"])
    assert f"### {group}" in (tmp_path / "tables.md").read_text()
    has_curve = any(row["curve"] for row in found["rows"])
    assert (tmp_path / "benchmarks.png").exists() == has_curve


@pytest.mark.long
def test_chores_are_measured_and_judged(tmp_path: Path) -> None:
    found = chores.run(Effort(quick=True, cache=tmp_path))
    assert {target.name for target in found.targets} == {row.name for row in found.rows}
    assert len(found.rows) == 9


def test_a_tenant_of_many_users_may_have_all_its_lines(tmp_path: Path) -> None:
    spec = PolicySpec("linucb", 3, {})
    for whole, lines in ((False, 1), (True, 20)):
        tenant = crowd_of(tmp_path, spec, users=4, life=5, whole=whole) / "default"
        with closing(JournalReader(tenant / JOURNAL)) as reader:
            assert (reader.last(), len(list(reader.after(0)))) == (20, lines)
            snapshots = Snapshots(tenant / SNAPSHOTS, spec, reader.facts().id)
            assert recover(reader, snapshots).state.total.rewards == 20
            assert snapshots.used == 20


def test_the_bare_loop_is_linucb(turns: list[Turn]) -> None:
    # In a user's first turn all arms of unit norm tie, and rounding may choose.
    taught = [one for one in turns if one.user < 3]
    policy, bare = LinUCB(25, alpha=0.3), Bare(25)
    first = serve(policy, taught[:3])
    for one, arm in zip(taught[:3], first, strict=True):
        bare.serve([Turn(one.user, one.arms[[arm]], one.rewards[[arm]])])
    assert bare.serve(taught[3:]) == serve(policy, taught[3:])


def test_slices_are_all_turns_in_their_order(turns: list[Turn]) -> None:
    assert [one for part in slices(turns) for one in part] == turns
    one_by_one, in_blocks = LinUCB(25, alpha=0.3), LinUCB(25, alpha=0.3)
    single = [arm for step in steps(one_by_one, turns) for arm in step()]  # type: ignore[attr-defined]
    blocks = [arm for step in block_steps(in_blocks, turns, 4) for arm in step()]  # type: ignore[attr-defined]
    assert single == np.concatenate(blocks).tolist()


def test_contestants_take_turns_and_are_prepared_for_every_repetition() -> None:
    log: list[str] = []

    def contestant(name: str) -> list[object]:
        log.append(f"{name} prepares")
        return [lambda: log.append(name)] * 2

    ticks = count()
    seconds = interleaved(
        {name: lambda name=name: contestant(name) for name in "ab"},  # type: ignore[misc]
        repetitions=2,
        clock=lambda: float(next(ticks)),
    )
    assert log == ["a prepares", "b prepares", "a", "b", "a", "b"] * 3
    assert seconds == {"a": (2.0, 2.0), "b": (2.0, 2.0)}


def test_drawn_segments_have_the_distribution_of_learnt_ones() -> None:
    table = grown(300, dim=25)
    for id in range(0, 300, 30):
        stats = table.stats(id)
        assert stats.rank == table.rank[id] == 25
        np.testing.assert_allclose(table.theta[id], stats.theta, rtol=1e-9)
        np.testing.assert_allclose(table.inverse[id] @ stats.gram, np.eye(25), atol=1e-9)
        assert table.inverse_bound[id] >= np.linalg.norm(table.inverse[id], 2)
    # The residual over σ² is χ² with Σ(n − d) degrees of freedom: relative deviation √(2/df),
    # here 0.003; five of these.
    left = sum(table.stats(id).residual for id in range(300))
    df = int(table.count[:300].sum()) - 25 * 300
    assert left / NOISE**2 / df == pytest.approx(1, abs=5 * np.sqrt(2 / df))
    # Of mean square 1/d in every direction but that of θ, which is longer; some 300,000 contexts.
    traces = np.trace(table.gram[:300], axis1=1, axis2=2)
    assert traces.sum() / table.count[:300].sum() == pytest.approx((24 + CHOSEN) / 25, abs=0.01)
    best = np.random.default_rng(0).standard_normal((100_000, 10)).max(axis=1)
    assert np.mean(best**2) == pytest.approx(CHOSEN, abs=0.05)


def test_segments_of_one_parameter_are_neighbours_in_a_drawn_table() -> None:
    table = grown(200, dim=5)
    found = test.batched(table, 0)
    assert np.array_equal(found, test.defined(table, 0))
    # Ten parameters: about a tenth of the segments follow that of the first.
    assert 8 <= len(found) <= 36
    far = np.setdiff1d(np.arange(200), found)
    assert homogeneity(table.stats(0), table.stats(int(far[0])), noise=NOISE).p_value < 0.01


def test_a_stage_continues_where_the_run_was_stopped(tmp_path: Path) -> None:
    kept = stage(SMALL, 24, ["dyclu", "oracle"], tmp_path)
    world = SMALL.world(seed=0)
    policy = DyClu(25, noise=SMALL.noise)
    everything = list(map(turn, world))
    serve(policy, everything[:-24])
    assert serve(kept.policy("dyclu"), kept.turns) == serve(policy, everything[-24:])
    assert len(serve(kept.policy("oracle"), kept.turns)) == 24


def test_a_stage_is_kept_and_played_again_where_it_cannot_be_read(tmp_path: Path) -> None:
    folder = stage(SMALL, 24, ["uniform", "linucb"], tmp_path).folder
    before = {name: (folder / name).stat().st_mtime_ns for name in ("uniform", "linucb")}
    (folder / "linucb").write_bytes(b"something else")
    again = stage(SMALL, 24, ["uniform", "linucb"], tmp_path)
    assert (folder / "uniform").stat().st_mtime_ns == before["uniform"]
    assert isinstance(again.policy("linucb"), LinUCB)


def test_waves_are_all_rounds_of_some_users_and_then_of_others() -> None:
    world = location.population(users=5, rounds=3).world(seed=0)
    turns = list(location.waves(world, 2))
    assert [one.user for one in turns] == [0, 1] * 3 + [2, 3] * 3 + [4] * 3
    assert [one.time for one in turns] == [0, 0, 1, 1, 2, 2] * 2 + [0, 1, 2]
    for one in turns:
        taste = world.parameters[world.truth[one.user, one.time]]
        np.testing.assert_allclose(one.means, one.arms @ taste)


def test_somebody_is_right_on_the_model_of_their_taste_only() -> None:
    world = location.population(users=12, rounds=60).world(seed=0)
    found = location.locate(world, 12)
    assert found.located.any()
    assert np.isinf(found.rewards[~found.located]).all()
    assert (found.rewards[found.right] >= 3).all()
    policy = Atlas(25, noise=0.09)
    assert not location.is_right(policy, world, 0)
    shown = location.table(found, 0, "all").rows
    assert shown[2][1] == f"{100 * found.right.mean():.1f} %"


def test_copies_of_located_users_are_served_as_they_are(tmp_path: Path) -> None:
    world = location.population(users=100, rounds=60).world(seed=0)
    policy = crowd.grown(world)
    policy.save(tmp_path / "grown")
    there = [user for user in range(100) if policy.locate(user).located]
    copies = crowd.copied(read(tmp_path / "grown"), np.resize(there, 1_000))
    many = Atlas.restore(copies)
    arms = np.eye(25)
    for user in range(0, 1_000, 37):
        like = there[user % len(there)]
        assert many.locate(user).located
        assert many.locate(user).model == policy.locate(like).model
        assert sum(model.users for model in many.models) == 1_000
        outcome = many.learn(user, arms[0], float(policy.decide(like, arms[:1]).mean))
        assert not outcome.surprised


def test_a_start_measures_only_what_is_timed() -> None:
    spin = "sum(range(5_000_000))"
    assert start.Start(spin, "pass").seconds() < 0.2 * start.Start("", spin).seconds()


@pytest.mark.parametrize("name", ["mabwiser", "river"])
def test_peers_that_are_linucb_choose_what_it_chooses(name: str, turns: list[Turn]) -> None:
    pytest.importorskip(name)
    policy = LinUCB(25, alpha=0.3)
    assert peers.peers(turns)[name]().serve(turns) == serve(policy, turns)


def test_regret_is_what_the_best_arm_would_have_brought() -> None:
    one = Turn(0, np.eye(2), np.array([0.25, 1.0]))
    assert peers.regret([0, 1], [one, one]) == 0.75


JUDGES: dict[str, tuple[Callable[[Asked], Report], int]] = {
    "rare clicks": (rare_clicks.run, 2),
    "shop": (shop.run, 2),
    "detection": (detection.run, 6),
    "waiting": (waiting.run, 3),
    "unseen": (unseen.run, 2),
}
"""The programs that judge policies, and in how many worlds each of them plays in quick mode."""


@pytest.mark.parametrize("name", JUDGES)
def test_a_judge_returns_one_record_for_every_world_policy_and_seed(name: str) -> None:
    judge, worlds = JUDGES[name]
    report = judge(Asked(policies=("atlas", "uniform"), seeds=(0, 1), quick=True))
    runs = Counter((record["policy"], record["seed"]) for record in report.records)
    assert runs == dict.fromkeys(product(("atlas", "uniform"), (0, 1)), worlds)
    json.dumps(report.records, allow_nan=False)
    for shown in report.tables:
        assert shown.rows
        assert all(len(row) == len(shown.header) for row in shown.rows)
        assert markdown(shown).startswith(f"| {shown.header[0]} |")


def test_a_judge_prints_tables_and_writes_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "records.json"
    words = [".05", "--quick", "--policies", "largest-norm", "--seeds", "4,5", "--json", str(path)]
    monkeypatch.setattr(sys, "argv", ["rare_clicks", *words])
    judging.main(rare_clicks.run, about="", policies=("atlas",), seeds=20)
    assert "| .05/.02 | largest-norm |" in capsys.readouterr().out
    written = json.loads(path.read_text())
    assert written["quick"]
    assert [(each["world"], each["seed"]) for each in written["records"]] == [
        (".05/.02", 4),
        (".05/.02", 5),
    ]


def test_words_that_are_in_no_name_of_a_world_are_refused() -> None:
    asked = Asked(policies=("atlas",), words=("b", "nothing"))
    assert asked.picked({"abc": 1, "xyz": 2}) == {"abc": 1}
    with pytest.raises(OptionError, match=r"choose from xyz$"):
        asked.picked({"xyz": 2})


def test_of_rare_clicks_the_first_arm_is_the_better_one_with_even_seeds_only() -> None:
    # All arms have the same length, so this policy always shows the first.
    for seed, better in ((0, 1.0), (1, 0.0)):
        found = rare_clicks.play(LargestNorm(2), (1.0, 0.0), pulls=400, seed=seed)
        assert found["better_at_end"] == found["better_pulled"] == found["click_rate"] == better
        assert found["noise"] is None
        assert found["false_changes"] == 0


def test_the_click_rate_of_the_shop_is_that_of_what_is_shown() -> None:
    rates = {name: shop.keep(shop.keeper_of(name, 3), 400, 3) for name in ("uniform", shop.BEST)}

    class First(shop.Best):
        """Always shows the first item, which is drawn like all others."""

        def choose(self, visit: shop.Visit) -> tuple[int, float]:
            return 0, 1.0

    # The standard deviation of one click probability is about the mean; five times that by √400.
    assert shop.keep(First(), 400, 3) == pytest.approx(rates["uniform"], rel=5 / 20)
    assert 1.5 * rates["uniform"] < rates[shop.BEST] < 1


def test_the_shop_offers_distinct_items_that_are_alive_with_stated_chances() -> None:
    rng = np.random.default_rng(0)
    drawn = shop.Shop.drawn(rng)
    visits = list(drawn.visits(rng, 300, 30.0))
    assert len(visits) == 300
    where = {row.tobytes(): index for index, row in enumerate(drawn.features)}
    for visit in visits:
        items = np.array([where[row.tobytes()] for row in visit.arms])
        assert len(set(items)) == shop.OFFERED
        assert items.max() - items.min() < 27
        assert any(np.array_equal(visit.chances, own) for own in drawn.chances[:, items])
        assert visit.logged.sum() == pytest.approx(1)
        assert visit.logged.min() >= shop.LOGGED_AT_RANDOM / shop.OFFERED
        assert np.argmax(visit.logged) == np.argmax(drawn.quality[items])
    # Days 30 to 60: items that began before day 0 are gone.
    begins = np.linspace(-30, 60, shop.ITEMS, endpoint=False)
    seen = {where[row.tobytes()] for visit in visits for row in visit.arms}
    assert begins[min(seen)] >= 0


def test_vowpal_wabbit_learns_which_item_a_user_clicks() -> None:
    pytest.importorskip("vowpalwabbit")
    keeper = shop.keeper_of(shop.VOWPAL, 0)
    arms, uniform = np.eye(shop.DIM)[:2], np.array([0.5, 0.5])
    for user in (0, 1) * 200:
        chances = np.eye(2)[user]
        for arm in (0, 1):
            keeper.learn(shop.Visit(user, arms, chances, uniform, 0.5, 0.5), arm, 0.5)
    asked = [shop.Visit(user, arms, uniform, uniform, 0.5, 0.5) for user in (0, 1)]
    assert [keeper.choose(visit)[0] for visit in asked] == [0, 1]


def test_every_two_values_of_the_unseen_worlds_occur_together() -> None:
    worlds = unseen.grid().values()
    options = [
        (
            world.dim,
            world.users,
            "n" if world.parameters == world.users else world.parameters,
            (world.rewards, world.noise),
        )
        for world in worlds
    ]
    values = (unseen.DIMS, unseen.USERS, unseen.TASTES, unseen.LAWS)
    assert len(set(options)) == 24
    for i, some in enumerate(values):
        assert set(Counter(row[i] for row in options).values()) == {24 // len(some)}
    for (i, some), (j, others) in combinations(enumerate(values), 2):
        assert len({(row[i], row[j]) for row in options}) == len(some) * len(others)
    assert all(world.users * world.rounds <= 40_000 for world in worlds)


def test_ratios_of_unseen_worlds_leave_the_ceilings_out_of_the_others() -> None:
    report = unseen.run(Asked(policies=("uniform", "oracle", "told", "linucb-0.3"), quick=True))
    for row in report.tables[0].rows[: unseen.QUICK_WORLDS]:
        own, oracle, told, linucb = (
            next(
                record["regret"]
                for record in report.records
                if (record["world"], record["policy"]) == (row[0], name)
            )
            for name in ("uniform", "oracle", "told", "linucb-0.3")
        )
        assert row[-2:] == (f"{own / linucb:.2f}", f"{own / (oracle + told):.2f}")


@pytest.mark.parametrize("variant", ablations.VARIANTS)
def test_a_variant_of_atlas_changes_constants_that_exist_and_restores_them(variant: str) -> None:
    settings = ablations.VARIANTS[variant]
    before = [{name: getattr(module, name) for name in values} for module, values in settings]
    with ablations.changed(settings):
        for (module, values), old in zip(settings, before, strict=True):
            now = {name: getattr(module, name) for name in values}
            assert now == values != old
    assert before == [
        {name: getattr(module, name) for name in old}
        for (module, _), old in zip(settings, before, strict=True)
    ]


def test_detection_counts_reports_at_every_reward_and_at_none() -> None:
    setting = Wild(users=3, dim=2, rounds=50, shortest=10, longest=20)
    world = setting.world(seed=0)
    run = play(LargestNorm(2), world)
    always = detection.reports(replace(run, changed=np.ones(len(run), dtype=bool)), 10)
    changes = sum(len(world.changes(user)) for user in range(3))
    counted = sum(int((world.changes(user) <= 40).sum()) for user in range(3))
    assert always["delays"] == [0] * counted
    assert always["missed"] == 0
    assert always["false"] == 150 - changes
    never = detection.reports(replace(run, changed=np.zeros(len(run), dtype=bool)), 10)
    assert (never["delays"], never["missed"], never["false"]) == ([], counted, 0)


def test_waiting_times_every_call() -> None:
    turns = [Turn(0, np.eye(2), np.ones(2))] * 3
    waits = waiting.Waits.empty(3)
    ticks = iter([0.0, 1.0, 10.0, 12.0, 20.0, 21.0, 30.0, 35.0, 40.0, 43.0, 50.0, 51.0])
    waiting.timed(LargestNorm(2), iter(turns), waits, clock=lambda: next(ticks))
    assert waits.decide.tolist() == [1.0, 1.0, 3.0]
    assert waits.learn.tolist() == [2.0, 5.0, 1.0]


def test_waiting_in_a_process_of_its_own_serves_the_same_rounds() -> None:
    people = waiting.Crowd(users=10, tastes=3, dim=4, rounds=100, law=Law(noise=0.1))
    waits, facts = waiting.in_own_process("linucb", people, 0)
    assert len(waits.learn) == 100
    assert (waits.learn >= 0).all()
    same = waiting.served("linucb", people, 0)[1]
    assert {**facts, "resident": None} == {**same, "resident": None}
    # A LinUCB of four features keeps at least a matrix and a vector of each user.
    assert facts["saved"] >= facts["came"] * 8 * (4 * 4 + 4)


@pytest.mark.parametrize("law", [Law(noise=0.1), Law(kind="logistic")])
def test_a_crowd_arrives_over_time_and_changes(law: Law) -> None:
    people = waiting.Crowd(users=50, tastes=3, dim=4, rounds=2_000, law=law)
    turns = list(people.turns(seed=0))
    users = np.array([one.user for one in turns])
    assert len(turns) == 2_000
    # At round t, t/1600 of the users have arrived.
    assert (users[:160] < 5).all()
    assert users.max() >= 45
    rewards = np.array([one.rewards for one in turns])
    assert set(np.unique(rewards)) == {0.0, 1.0} if law.binary else len(np.unique(rewards)) > 1_000


def example() -> Results:
    return Results(
        title="Example",
        against="× that",
        rows=(
            Row(name="a", unit="ms", values=(1.0, 2.0, 4.0), ratios=(0.5, 1.5, 0.7)),
            Row(name="b", unit="ms", values=(3.0,), curve="size", at=10),
        ),
        targets=(
            Target(name="quick", value=3.0, sense="at most", limit=2.0, unit="ms"),
            Target(name="much", value=3.0, sense="at least", limit=2.0, unit="ms"),
        ),
        notes=("A note.",),
    )


def test_tables_show_medians_ranges_and_whether_targets_are_met() -> None:
    assert figures(example()).rows[0] == ("a", "2.00 ms (1.00–4.00)", "0.700 (0.500–1.50)")
    assert figures(example()).rows[1] == ("b", "3.00 ms", "-")
    assert [row[-1] for row in targets(example()).rows] == ["short", "met"]
    assert "| a | 2.00 ms (1.00–4.00) |" in markdown(figures(example()))


def test_json_holds_everything() -> None:
    report = as_json({"example": example()}, describe(), quick=False)
    written = json.loads(json.dumps(report))["groups"]["example"]
    assert [row["median"] for row in written["rows"]] == [2.0, 3.0]
    assert [row["ratio"] for row in written["rows"]] == [0.7, None]
    assert [target["met"] for target in written["targets"]] == [False, True]
    assert (
        json.loads(json.dumps(as_json({"example": read_group(written)}, {}, quick=False)))[
            "groups"
        ]["example"]
        == written
    )


def test_full_runs_take_medians_of_enough_repetitions(tmp_path: Path) -> None:
    assert Effort(quick=False, cache=tmp_path).repetitions >= 5
    assert start.REPETITIONS >= 7


def test_every_group_is_on_the_page() -> None:
    assert PAGE.count("\n### ") >= len(command.GROUPS)
    for group in command.GROUPS:
        assert f"\n### {group}\n" in PAGE
        assert f"`{group}`" in PAGE


def test_the_page_shows_the_committed_figures() -> None:
    assert not COMMITTED["quick"]
    assert set(COMMITTED["groups"]) == set(command.GROUPS)
    found = {name: read_group(group) for name, group in COMMITTED["groups"].items()}
    for section in sections(found):
        assert section in PAGE


def test_an_unknown_group_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.run(["nothing"])
    assert "no group is called 'nothing'" in capsys.readouterr().err
