"""The tour at the end of the demo: one user's life, the map of tastes, clicks, and what to do next.

Features of a simulated world are numbers without a meaning. Here they have names, so that a taste
can be told in words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dyclu.plots.drawing import BANDS, INK, arrange, canvas, draw_band, drawing
from dyclu.policy import Model
from dyclu.sim.reports.demo import draw_regret
from dyclu.sim.reports.document import Picture, Table
from dyclu.sim.runs.play import Run
from dyclu.sim.worlds.population import World
from dyclu.validation import FloatArray, Ids

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FEATURES = (
    "jazz", "rock", "folk", "pop", "soul", "blues", "metal", "opera", "punk", "swing",
)  # fmt: skip
"""Names of the first features; further ones are called x10, x11 and so on."""

UNKNOWN = -1
"""Model of a user of whom no model is known yet."""

NO_MODEL = "#bbbbbb"

LIFE_NOTE = """\
Above: the taste that the user really has. Below: the model that Atlas takes the user to follow \
before each round, in the colour of the taste to which the model comes closest. Grey: none yet. \
Where the colours agree, the user is served by everybody's rewards for this taste."""

MAP_NOTE = """\
Each disc is a model that Atlas has found, larger with more users; the crosses are the true \
tastes, which no policy is told. Similar tastes are close to each other: the two axes are those \
along which the tastes differ most. The names say which features a model likes more than the \
average of the models does. (In the simulation features are only numbers; we call the first jazz, \
the second rock, and so on.)"""

CLICKS_NOTE = """\
The same four policies where a reward is a click: 1 or 0. A click says much less than a rating, so \
all policies need longer. DyClu is as published and expects ratings. Atlas finds out by itself \
that these rewards are clicks, and takes features as log odds. Regret is in clicks lost."""

NEXT = Table(
    header=("you want to", "do this"),
    words=("do this",),
    rows=(
        ("see another world", "dyclu demo --users=100 --parameters=10 --seed=1"),
        ("compare policies", "dyclu simulate --world clicks --seeds=3\ndocs/guide/which-policy.md"),
        ("understand it", "read six short pages, from\ndocs/learn/round.md"),
        ("use it in Python", "policy.decide(user, arms)\ndocs/five-minutes.md"),
        ("use your own table", "dyclu.Log.read(table, ...)\ndocs/guide/shop.md"),
        ("serve decisions", "dyclu serve --dim=2\ndocs/service.md"),
    ),
    note="All documents as a site, with search: make docs.",
)
"""What a reader of the page can do next."""


def tour(
    world: World,
    *,
    user: int,
    followed: Sequence[int],
    models: Sequence[Model],
    clicks: Mapping[str, Run],
) -> tuple[tuple[str, Table | Picture], ...]:
    """Return the parts of the page that follow the race.

    `followed` has the id of the model that Atlas took `user` to follow before each of their rounds,
    or `UNKNOWN`; `models` are those of Atlas at the end; `clicks` are runs in a world of clicks.
    """
    return (
        ("One user's life, as Atlas saw it", life(world, user, followed, models)),
        ("The map of tastes", map_of_tastes(world, user, models)),
        ("Clicks instead of ratings", race_for_clicks(clicks)),
        ("What to do next", NEXT),
    )


def life(world: World, user: int, followed: Sequence[int], models: Sequence[Model]) -> Picture:
    """Return the picture of a user's true tastes, and of the models that the user followed."""
    closest, palette = _closest(world, models), _palette(world, user)
    truth = world.truth[user]
    with drawing():
        figure = canvas(2.4)
        axes = figure.subplots()
        _draw_bands(axes, 1, truth, palette, "taste")
        colours = {id: palette[closest[id]] if id in closest else NO_MODEL for id in followed}
        _draw_bands(axes, 0, np.asarray(followed), colours, "model")
        for change in world.changes(user):
            axes.axvline(change, color=INK, linewidth=1)
        axes.set(
            xlim=(0, len(truth)),
            ylim=(-0.5, 1.5),
            yticks=(0, 1),
            yticklabels=("Atlas", "true taste"),
            xlabel=f"rounds of user {user}",
        )
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False)
        arrange(figure)
    label = f"True tastes of user {user}, and the models that Atlas found for them"
    return Picture(name="life", figure=figure, label=label, note=LIFE_NOTE)


def map_of_tastes(world: World, user: int, models: Sequence[Model]) -> Picture:
    """Return the picture of models and true tastes in two dimensions, with names.

    Tastes have the colours that they have in the life of `user`.
    """
    shown = [model for model in models if model.users]
    closest, palette = _closest(world, shown), _palette(world, user)
    estimates = np.array([model.estimate for model in shown]).reshape(-1, world.setting.dim)
    centre, plane = _plane(world.parameters)
    places, tastes = (estimates - centre) @ plane, (world.parameters - centre) @ plane
    with drawing():
        figure = canvas(4.6)
        axes = figure.subplots()
        sizes = [120 + 60 * model.users for model in shown]
        colours = [palette[closest[model.id]] for model in shown]
        axes.scatter(places[:, 0], places[:, 1], sizes, colours, alpha=0.8, linewidths=0)
        axes.plot(tastes[:, 0], tastes[:, 1], "x", color=INK, ms=7, mew=1.5, label="true taste")
        for i, (model, name) in enumerate(zip(shown, taste_names(shown), strict=True)):
            users = f"{model.users} user" + ("" if model.users == 1 else "s")
            text = f"likes {name}\n{users}" if name else users
            side = _free_side(places, i)
            axes.annotate(
                text, places[i], (0, 16 * side), textcoords="offset points", ha="center",
                va="bottom" if side > 0 else "top",
            )  # fmt: skip
        axes.margins(0.25)
        axes.set(xticks=(), yticks=())
        axes.grid(visible=False)
        figure.legend(loc="outside lower center")
        arrange(figure)
    label = f"{len(shown)} models and {len(world.parameters)} true tastes on a map"
    return Picture(name="map", figure=figure, label=label, note=MAP_NOTE)


def race_for_clicks(runs: Mapping[str, Run]) -> Picture:
    """Return the picture of the regret in a world of clicks."""
    with drawing():
        figure = canvas(3.6)
        axes = figure.subplots()
        draw_regret(axes, runs)
        axes.set(ylabel="clicks lost", xlabel="rounds of each user")
        arrange(figure)
    label = f"Clicks lost by {', '.join(runs)}"
    return Picture(name="clicks", figure=figure, label=label, note=CLICKS_NOTE)


def taste_names(models: Sequence[Model]) -> list[str]:
    """Return, for each model, the two features that it likes most beyond the models' average.

    >>> likes_jazz, likes_rock = np.array([1.0, 0.0, 0.0]), np.array([0.0, 1.0, 0.0])
    >>> taste_names([Model(0, 9, likes_jazz, 1, 0, 0), Model(1, 9, likes_rock, 1, 0, 0)])
    ['jazz', 'rock']
    """
    if not models:
        return []
    estimates = np.array([model.estimate for model in models])
    beyond = estimates - estimates.mean(axis=0)
    return [_name(one) for one in beyond]


def _name(beyond: FloatArray) -> str:
    best = np.argsort(-beyond)[:2]
    # Of the two, the second is left out if it is slight.
    liked = [int(i) for i in best if beyond[i] > 0.25 * np.abs(beyond).max()]
    return " and ".join(FEATURES[i] if i < len(FEATURES) else f"x{i}" for i in liked)


def _closest(world: World, models: Sequence[Model]) -> dict[int, int]:
    """Return the true taste to which each model comes closest, by the model's id."""
    return {
        model.id: int(np.linalg.norm(world.parameters - model.estimate, axis=1).argmin())
        for model in models
    }


def _plane(tastes: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the centre of the tastes and the two directions in which they differ most."""
    centre = tastes.mean(axis=0)
    _, _, directions = np.linalg.svd(tastes - centre)
    plane = np.zeros((tastes.shape[1], 2))
    plane[:, : min(2, len(directions))] = directions[:2].T
    return centre, plane


def _palette(world: World, user: int) -> dict[int, str]:
    """Return the colours of tastes, those of the user first, in the order in which they came."""
    order = dict.fromkeys([*world.truth[user].tolist(), *range(len(world.parameters))])
    return {taste: BANDS[i % len(BANDS)] for i, taste in enumerate(order)}


def _free_side(places: FloatArray, i: int) -> int:
    """Return 1 if there is room for a name above a place, -1 if there is below it.

    >>> _free_side(np.array([[0.0, 0.0], [0.1, 0.2]]), 0)
    -1
    """
    gaps = np.linalg.norm(places - places[i], axis=1)
    gaps[i] = np.inf
    return -1 if len(places) > 1 and places[gaps.argmin(), 1] > places[i, 1] else 1


def _draw_bands(axes: Axes, row: int, numbers: Ids, colours: Mapping[int, str], word: str) -> None:
    """Draw one bar per run of equal numbers, with its name where there is room."""
    ends = [*(np.flatnonzero(np.diff(numbers)) + 1), len(numbers)]
    for start, end in zip([0, *ends], ends, strict=False):
        number = int(numbers[start])
        name = "" if number == UNKNOWN else f"{word} {number}"
        draw_band(axes, row, (start, end), colours[number], name, within=len(numbers))
