"""Pictures of what a policy has learnt: its models, and one user's periods and belief."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dyclu.errors import KindError, OptionError, ShapeError
from dyclu.plots.drawing import BANDS, INK, LINES, arrange, canvas, draw_band, drawing
from dyclu.policies.common.plain import WithoutGroups
from dyclu.policy import Location, Model, Policy
from dyclu.validation import User, as_user

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_MODELS = 24
"""How many models are drawn at most: those with most users."""

MOST_NAMES = 40
"""Up to this number of features, each has its name below its column."""

MOST_BELIEFS = 6
"""How many models a picture of a belief shows at most."""

IN_DOUBT = "#bbbbbb"
"""Colour of a period in which the user's model is not certain."""

COLOURS = "RdBu_r"
"""Matplotlib's scale from blue (below 0) over white (0) to red (above 0)."""


@dataclass(frozen=True, slots=True)
class Period:
    """A part of a user's time: the model or segment `id`, or None while it is in doubt."""

    start: int
    end: int
    id: int | None


def plot(policy: Policy, user: Hashable = None, *, names: Sequence[str] | None = None) -> Figure:
    """Draw the models of a policy, or, if `user` is given, what it knows about this user.

    Parameters
    ----------
    policy : Policy
        Any policy that forms groups of users, such as `dyclu.Atlas` and `dyclu.DyClu`.
    user : str or int, or None
        A user of `policy.users`.
    names : sequence of str, or None
        Names of the features, for the picture of the models; `dyclu.Features` has them as `names`.

    Returns
    -------
    matplotlib.figure.Figure
        A notebook shows it; ``figure.savefig(path)`` writes it to a file.

    Examples
    --------
    >>> import dyclu
    >>> plot(dyclu.LinUCB(2))
    Traceback (most recent call last):
    ...
    dyclu.errors.KindError: LinUCB forms no groups of users, so it has no models to plot; ...
    """
    if isinstance(policy, WithoutGroups):
        raise KindError(
            f"{type(policy).__name__} forms no groups of users, so it has no models to plot; "
            "plot a policy that does, such as dyclu.Atlas or dyclu.DyClu"
        )
    if user is None:
        return _models_figure(policy, names)
    if names is not None:
        raise OptionError(
            f"names were given for the picture of user {user!r}, which shows no features; "
            "leave out names, or user"
        )
    return _user_figure(policy, as_user(user))


def _models_figure(policy: Policy, names: Sequence[str] | None) -> Figure:
    every = sorted(policy.models, key=lambda model: (-model.users, -model.size))
    if not every:
        raise OptionError(
            f"this {type(policy).__name__} has no models yet, so there is nothing to plot; "
            "let it learn from rewards first"
        )
    columns = _column_names(policy.dim, names)
    shown = every[:MOST_MODELS]
    with drawing():
        figure = canvas(1.6 + 0.3 * len(shown))
        axes = figure.subplots()
        _draw_estimates(axes, shown, columns)
        left_out = f", the {len(shown)} with most users" if len(shown) < len(every) else ""
        count = f"{len(every)} model" + "s" * (len(every) != 1)
        axes.set(title=f"{type(policy).__name__}: {count}{left_out}", xlabel="features")
        figure.colorbar(axes.images[0], ax=axes, label="estimate", shrink=0.8)
        arrange(figure)
    return figure


def _column_names(dim: int, names: Sequence[str] | None) -> list[str]:
    if names is None:
        return [f"x{i}" for i in range(dim)]
    if len(names) != dim:
        raise ShapeError(
            f"names has {len(names)} names, this policy has {dim} features; "
            f"pass {dim} names, or none"
        )
    return [str(name) for name in names]


def _draw_estimates(axes: Axes, models: Sequence[Model], names: Sequence[str]) -> None:
    """Draw one row per model and one column per feature."""
    estimates = np.array([model.estimate for model in models])
    reach = float(np.abs(estimates).max()) or 1.0
    axes.imshow(
        estimates, cmap=COLOURS, vmin=-reach, vmax=reach, aspect="auto", interpolation="none"
    )
    axes.grid(visible=False)
    axes.set_yticks(range(len(models)), [f"model {one.id}: {_followers(one)}" for one in models])
    if len(names) <= MOST_NAMES:
        upright = sum(map(len, names)) > MOST_NAMES
        axes.set_xticks(range(len(names)), names, rotation=90 if upright else 0)
    axes.tick_params(length=0)


def _followers(model: Model) -> str:
    """Return how many users follow a model; its rewards, if none follows it for certain.

    >>> _followers(Model(0, 90, np.zeros(1), users=1, founded=0, visited=9))
    '1 user'
    """
    if not model.users:
        return f"{model.size:,} rewards"
    return f"{model.users} user" + "s" * (model.users != 1)


def _user_figure(policy: Policy, user: User) -> Figure:
    if user not in policy.users:
        raise OptionError(
            f"nothing is known about user {user!r}, expected one of the {len(policy.users)} users "
            "of policy.users; let the policy learn from this user first"
        )
    location, found = policy.locate(user), periods(policy, user)
    beliefs = _beliefs(location)
    with drawing():
        figure = canvas(1.9 + (0.8 + 0.25 * len(beliefs) if beliefs else 0))
        panels = figure.subplots(
            1 + bool(beliefs),
            squeeze=False,
            height_ratios=[1.6, 0.6 + len(beliefs)][: 1 + bool(beliefs)],
        )[:, 0]
        _draw_periods(panels[0], found, "model" if location.segments is None else "segment")
        changes = len([change for change in policy.changes if change.user == user])
        count = f"{changes} change" + "s" * (changes != 1)
        panels[0].set(title=f"{type(policy).__name__}: user {user!r}, {count} noticed")
        if beliefs:
            _draw_beliefs(panels[1], beliefs)
        arrange(figure)
    return figure


def periods(policy: Policy, user: User) -> tuple[Period, ...]:
    """Return a user's periods between the changes that the policy noticed, oldest first.

    Times are numbers of rewards of all users. Where a policy does not say when it first saw the
    user, the first period begins at 0.

    Examples
    --------
    >>> import dyclu
    >>> policy = dyclu.DyClu(1, noise=0.1)
    >>> for reward in [1.0] * 30 + [-1.0] * 30:
    ...     outcome = policy.learn("ana", [1.0], reward)
    >>> [(one.id, one.end - one.start > 20) for one in periods(policy, "ana")]
    [(0, True), (1, True)]
    """
    location = policy.locate(user)
    changes = [change for change in policy.changes if change.user == user]
    segments = location.segments
    now = max(
        (
            *(model.visited for model in policy.models),
            *(change.at for change in changes),
            *(one.opened for one in segments or ()),
            location.since,
            1,
        )
    )
    first = changes[0].before if changes else None
    begin = next((one.opened for one in segments or () if first in (None, one.id)), 0)
    times = [begin, *(change.at for change in changes)]
    past = [
        Period(start, change.at, change.before)
        for start, change in zip(times, changes, strict=False)
    ]
    last = changes[-1].after if changes else None
    present = _present(location, last, times[-1], now)
    found = tuple(one for one in (*past, *present) if one.end > one.start)
    return found or (Period(now - 1, now, present[-1].id),)


def _present(location: Location, last: int | None, start: int, now: int) -> tuple[Period, ...]:
    """Return the periods since the last change, which led to the model `last`."""
    if location.segments:
        return (Period(start, now, location.segments[-1].id),)
    since = min(max(location.since, start), now)
    if location.located:
        return Period(start, since, None), Period(since, now, location.model)
    # The doubt began at `since`. Of a user without changes it is not known what was before.
    before = () if last is None else (Period(start, since, last),)
    return *before, Period(since, now, None)


def _draw_periods(axes: Axes, found: Sequence[Period], word: str) -> None:
    begin, end = found[0].start, found[-1].end
    colours: dict[int, str] = {}
    for one in found:
        colour, name = IN_DOUBT, "in doubt"
        if one.id is not None:
            colour = colours.setdefault(one.id, BANDS[len(colours) % len(BANDS)])
            name = f"{word} {one.id}"
        draw_band(axes, 0, (one.start, one.end), colour, name, within=end - begin)
    for one in found[1:]:
        axes.axvline(one.start, color=INK, linewidth=1)
    axes.set(xlim=(begin, end), ylim=(-0.5, 0.5), yticks=(), xlabel="rewards of all users")
    axes.grid(visible=False)


def _beliefs(location: Location) -> list[tuple[str, float]]:
    """Return the most likely models and their probabilities, and the one of a new taste."""
    ranked = sorted(location.belief.items(), key=lambda item: -item[1])[:MOST_BELIEFS]
    named = [(f"model {id}", probability) for id, probability in ranked]
    return named if location.new is None else [*named, ("a new taste", location.new)]


def _draw_beliefs(axes: Axes, beliefs: Sequence[tuple[str, float]]) -> None:
    rows = range(len(beliefs))
    values = [probability for _, probability in beliefs]
    axes.barh(rows, values, color=LINES[2][0], height=0.7)
    for row, value in zip(rows, values, strict=True):
        axes.annotate(f" {value:.1%}", (value, row), va="center", ha="left", annotation_clip=False)
    axes.set_yticks(rows, [name for name, _ in beliefs])
    axes.set(xlim=(0, 1.12), ylim=(len(beliefs) - 0.5, -0.5), xlabel="belief now")
    axes.set_xticks((0, 0.5, 1))
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False)
