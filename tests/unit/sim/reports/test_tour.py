"""`dyclu.sim.reports.tour`: the parts of the demo's page that follow the race."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from dyclu.plots.drawing import BANDS
from dyclu.policies import LinUCB, Uniform
from dyclu.policy import Model
from dyclu.sim.reports.document import Document, Picture, Table
from dyclu.sim.reports.page import html
from dyclu.sim.reports.tour import (
    NEXT,
    NO_MODEL,
    UNKNOWN,
    life,
    map_of_tastes,
    race_for_clicks,
    taste_names,
    tour,
)
from dyclu.sim.runs.measures import regret
from dyclu.sim.runs.play import Run, play
from dyclu.sim.studies.demo import Demo
from dyclu.sim.worlds.population import Population, World
from dyclu.sim.worlds.wild import Wild

ROOT = Path(__file__).parents[4]
SETTING = Population(users=2, parameters=3, dim=4, arms=30, offered=5, rounds=40)


@pytest.fixture(scope="module")
def world() -> World:
    """Return a world in which user 0 has taste 2, from round 20 on taste 0."""
    drawn = SETTING.world(seed=0)
    truth = np.zeros_like(drawn.truth)
    truth[0, :20] = 2
    return replace(drawn, truth=truth)


@pytest.fixture(scope="module")
def models(world: World) -> tuple[Model, ...]:
    """Return models 7 and 9, close to tastes 2 and 0, and model 11, which nobody follows."""
    return (
        Model(7, 30, world.parameters[2] + 0.01, 1, 0, 0),
        Model(9, 20, world.parameters[0] - 0.01, 4, 0, 0),
        Model(11, 5, world.parameters[1], 0, 0, 0),
    )


@pytest.fixture(scope="module")
def clicks() -> dict[str, Run]:
    setting = Wild(users=2, dim=4, arms=30, rounds=20, rewards="logistic")
    drawn = setting.world(seed=0)
    return {"uniform": play(Uniform(4), drawn), "LinUCB": play(LinUCB(4), drawn)}


FOLLOWED = (UNKNOWN,) * 3 + (7,) * 19 + (9,) * 18


def bands(figure: Figure, row: int) -> list[tuple[float, float, str]]:
    found = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]
    own = [one for one in found if abs(one.get_y() + 0.4 - row) < 1e-9]
    return [(one.get_x(), one.get_width(), to_hex(one.get_facecolor())) for one in own]


def test_a_life_shows_the_models_in_the_colours_of_the_tastes_they_are_closest_to(
    world: World, models: tuple[Model, ...]
) -> None:
    figure = life(world, 0, FOLLOWED, models).figure
    assert bands(figure, 1) == [(0, 20, BANDS[0]), (20, 20, BANDS[1])]
    assert bands(figure, 0) == [(0, 3, NO_MODEL), (3, 19, BANDS[0]), (22, 18, BANDS[1])]
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts == ["taste 2", "taste 0", "model 7", "model 9"]


def test_a_model_that_no_longer_exists_is_grey(world: World) -> None:
    figure = life(world, 0, (3,) * 40, ()).figure
    assert bands(figure, 0) == [(0, 40, NO_MODEL)]


def test_the_map_shows_models_with_users_beside_the_tastes_they_are_close_to(
    world: World, models: tuple[Model, ...]
) -> None:
    axes = map_of_tastes(world, 0, models).figure.axes[0]
    (discs,), (crosses,) = axes.collections, axes.lines
    places, tastes = np.asarray(discs.get_offsets()), np.asarray(crosses.get_xydata())
    assert len(places) == 2
    assert len(tastes) == 3
    gaps = np.linalg.norm(places[:, None] - tastes, axis=2)
    assert gaps.argmin(axis=1).tolist() == [2, 0]
    assert gaps.min(axis=1).max() < 0.05
    labels = [text.get_text() for text in axes.texts]
    assert [label.splitlines()[-1] for label in labels] == ["1 user", "4 users"]
    assert all(label.startswith("likes ") for label in labels)


@pytest.mark.parametrize("dim", [1, 2, 30])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_the_map_can_be_drawn_for_any_number_of_features_and_models(dim: int, count: int) -> None:
    world = replace(SETTING, dim=dim, parameters=2, users=1).world(seed=1)
    rng = np.random.default_rng(0)
    models = [Model(i, 9, rng.normal(size=dim), 1, 0, 0) for i in range(count)]
    axes = map_of_tastes(world, 0, models).figure.axes[0]
    assert len(axes.texts) == count


def test_the_name_of_a_taste_has_at_most_two_features_and_no_slight_one() -> None:
    estimates = np.zeros((2, 12))
    estimates[0, [0, 1, 2]] = 1.0, 0.1, 0.05
    estimates[1, [11, 2, 3]] = 1.0, 0.9, 0.8
    models = [Model(i, 9, estimate, 1, 0, 0) for i, estimate in enumerate(estimates)]
    assert taste_names(models) == ["jazz", "x11 and folk"]


def test_the_race_for_clicks_draws_the_regret_of_every_policy(clicks: dict[str, Run]) -> None:
    axes = race_for_clicks(clicks).figure.axes[0]
    for line, (name, run) in zip(axes.lines, clicks.items(), strict=True):
        assert line.get_label() == name
        assert np.array_equal(line.get_ydata(), regret(run)[1::2])


def test_what_to_do_next_names_documents_that_exist() -> None:
    documents = re.findall(r"docs/\S+", str(NEXT.rows).replace("\\n", " ").replace("'", " "))
    assert len(documents) >= 4
    assert all((ROOT / name).exists() for name in documents)


def test_the_page_of_the_tour_is_self_contained_and_has_a_heading_per_part(
    world: World, models: tuple[Model, ...], clicks: dict[str, Run]
) -> None:
    parts = tour(world, user=0, followed=FOLLOWED, models=models, clicks=clicks)
    assert [type(part) for _, part in parts] == [Picture, Picture, Picture, Table]
    page = html(Document(title="t", lead="l", parts=parts, facts={}))
    assert all(f"<h2>{heading}</h2>" in page.replace("&#x27;", "'") for heading, _ in parts)
    assert page.count("<svg") == 3
    assert not re.search(r"""(src|href)=["'](?!\#)""", page)


def test_a_demo_follows_one_user_before_each_of_their_rounds() -> None:
    setting = Population(users=3, parameters=2, dim=3, arms=30, offered=5, rounds=40)
    demo = Demo(world=setting.world(seed=0), seed=0, tell_noise=False)
    played = demo.play(quiet=True)
    assert len(played.followed) == 40
    assert played.followed[0] == UNKNOWN
    assert max(played.followed) > UNKNOWN
    clicked = demo.play_clicks(quiet=True)
    assert list(clicked) == list(played.runs)
    assert {float(reward) for run in clicked.values() for reward in run.reward} == {0.0, 1.0}
