"""`policy.plot()`: pictures show what the policy says, and refuse what it cannot say."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import dyclu
from dyclu.errors import KindError, MissingExtra, OptionError, ShapeError
from dyclu.plots import plot
from dyclu.plots.policies import IN_DOUBT, MOST_MODELS, periods
from dyclu.policies import CoDBand, make, names
from dyclu.policies.common.plain import WithoutGroups
from dyclu.policy import Change, Location, Model, Policy
from dyclu.validation import User


def taught(policy: Policy) -> Policy:
    """Let a policy learn of "ana", who changes after 60 of her 120 rewards, and of "ben"."""
    rng = np.random.default_rng(0)
    tastes = np.array([[1.0, -1.0, 0.0], [-1.0, 0.0, 1.0]])
    for i in range(120):
        for user, taste in (("ana", tastes[i // 60]), ("ben", tastes[0])):
            x = rng.normal(size=3)
            policy.learn(user, x, float(x @ taste + 0.1 * rng.normal()))
    return policy


@pytest.fixture(scope="module", params=[dyclu.Atlas, dyclu.DyClu, CoDBand])
def policy(request: pytest.FixtureRequest) -> Policy:
    return taught(request.param(3))


def texts(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def test_models_are_drawn_with_their_estimates_most_users_first(policy: Policy) -> None:
    figure = plot(policy, names=["jazz", "rock", "folk"])
    axes = figure.axes[0]
    shown = sorted(policy.models, key=lambda model: (-model.users, -model.size))
    drawn = axes.images[0].get_array()
    assert drawn is not None
    np.testing.assert_array_equal(drawn, [model.estimate for model in shown])
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert [label.partition(":")[0] for label in labels] == [f"model {one.id}" for one in shown]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["jazz", "rock", "folk"]


def test_periods_of_a_user_follow_each_other_and_end_at_the_changes(policy: Policy) -> None:
    found = periods(policy, "ana")
    changes = [change for change in policy.changes if change.user == "ana"]
    assert changes
    assert all(a.end == b.start for a, b in pairwise(found))
    ends = {period.end: period.id for period in found}
    assert all(ends[change.at] == change.before for change in changes)
    assert found[-1].end >= 230  # of 240 rewards of both users


def test_a_users_picture_names_the_periods_and_the_belief(policy: Policy) -> None:
    figure = plot(policy, "ana")
    location, word = policy.locate("ana"), "model"
    if location.segments is not None:
        word = "segment"
    last = [period for period in periods(policy, "ana") if period.id is not None][-1]
    assert f"{word} {last.id}" in texts(figure.axes[0])
    changes = sum(change.user == "ana" for change in policy.changes)
    assert f"user 'ana', {changes} change" in figure.axes[0].get_title(loc="left")
    if location.new is None:
        assert len(figure.axes) == 1
    else:
        assert texts(figure.axes[1])[-1].strip() == f"{location.new:.1%}"


def test_a_user_in_doubt_is_drawn_in_doubt() -> None:
    policy = dyclu.Atlas(3)
    policy.learn("ana", [1.0, 0.0, 0.0], 1.0)
    policy.learn("ben", [1.0, 0.0, 0.0], 1.0)
    assert not policy.locate("ana").located
    (bar,) = policy.plot("ana").axes[0].patches
    assert bar.get_facecolor()[:3] == pytest.approx([int(IN_DOUBT[1:3], 16) / 255] * 3)
    # The last reward of all is the only one of ben: his time is a moment, which is drawn too.
    assert [period.id for period in periods(policy, "ben")] == [None]
    assert len(policy.plot("ben").axes[0].patches) == 1


def test_plotting_changes_nothing(policy: Policy) -> None:
    before = (policy.models, policy.changes, policy.locate("ana"), policy.users)
    plot(policy)
    plot(policy, "ben")
    assert (policy.models, policy.changes, policy.locate("ana"), policy.users) == before


def test_a_notebook_shows_the_figure_as_a_png() -> None:
    figure = taught(dyclu.Atlas(3)).plot()  # type: ignore[attr-defined]
    assert isinstance(figure, Figure)
    assert figure._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", names())
def test_policies_without_groups_refuse_and_name_some_that_do(name: str) -> None:
    made = make(name, 2)
    refusal = KindError if isinstance(made, WithoutGroups) else OptionError
    with pytest.raises(refusal, match="plot"):
        plot(made)
    if refusal is KindError:
        with pytest.raises(KindError, match=r"dyclu\.Atlas"):
            plot(made, "ana")


def test_unknown_users_and_wrong_names_are_refused(policy: Policy) -> None:
    with pytest.raises(OptionError, match="nothing is known about user 'eve'"):
        plot(policy, "eve")
    with pytest.raises(ShapeError, match="2 names, this policy has 3 features"):
        plot(policy, names=["jazz", "rock"])
    with pytest.raises(OptionError, match="shows no features"):
        plot(policy, "ana", names=["jazz", "rock", "folk"])


def test_without_matplotlib_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = taught(dyclu.DyClu(3))
    monkeypatch.setitem(sys.modules, "matplotlib.style", None)
    with pytest.raises(MissingExtra, match=r"pip install 'dyclu\[plots\]'"):
        plot(policy)


class Many:
    """Answers of a policy with many models and many features, one of its users without any."""

    dim, users, changes = 60, ("ana",), tuple[Change, ...]()

    def __init__(self, models: Sequence[Model] = ()) -> None:
        rng = np.random.default_rng(0)
        many = (Model(i, 10, rng.normal(size=60), i % 7, 0, 100) for i in range(40))
        self.models = tuple(models or many)

    def locate(self, user: User) -> Location:
        return Location(user, belief=dict.fromkeys(range(40), 1 / 40), new=0.0)


def test_of_many_models_those_with_most_users_are_drawn_and_the_title_says_so() -> None:
    figure = plot(Many())  # type: ignore[arg-type]
    axes = figure.axes[0]
    assert len(axes.get_yticklabels()) == MOST_MODELS
    assert axes.get_title(loc="left") == f"Many: 40 models, the {MOST_MODELS} with most users"
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels[0].endswith("6 users")
    crowd = [Model(0, 1200, np.ones(60), users=0, founded=0, visited=9)]
    figure = plot(Many(crowd))  # type: ignore[arg-type]
    assert figure.axes[0].get_yticklabels()[0].get_text() == "model 0: 1,200 rewards"
    assert len(plot(Many(), "ana").axes[1].patches) == 7  # type: ignore[arg-type]
