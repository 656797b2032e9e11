"""`dyclu.sim.runs.stream.contestants`: policies on Last.fm and their options."""

from __future__ import annotations

from pathlib import Path

import pytest

from dyclu import storage
from dyclu.conformance import check_policy
from dyclu.errors import OptionError
from dyclu.policy import Policy
from dyclu.sim.runs.stream.contestants import (
    CONTESTANTS,
    EITHER_WIDTH,
    OTHER_WIDTHS,
    check_contestants,
    contestant,
    contestants,
    options,
    width,
)
from dyclu.sim.runs.stream.largest_norm import LargestNorm


@pytest.mark.parametrize("name", contestants())
def test_no_policy_gets_the_noise(name: str) -> None:
    policy = contestant(name, 3, seed=1)
    assert isinstance(policy, Policy)
    assert not {"noise", "width_noise"} & options(name).keys()
    shown = repr(policy)
    assert "noise=" not in shown or "noise=None" in shown
    assert "width_noise=" not in shown or "width_noise=None" in shown
    assert all(f"{option}={value!r}" in shown for option, value in options(name).items()), shown


@pytest.mark.parametrize("name", EITHER_WIDTH)
def test_both_widths_can_be_played(name: str) -> None:
    assert "alpha=None" in repr(contestant(name, 3))
    assert "alpha=0.3" in repr(contestant(f"{name}-0.3", 3))
    assert (width(name), width(f"{name}-0.3")) == ("Eq. (2)", "0.3")


def test_other_widths_are_those_of_the_policies() -> None:
    assert set(OTHER_WIDTHS) == {
        name for name in contestants() if width(name) == OTHER_WIDTHS.get(name)
    }
    assert "alpha=0.1" in repr(contestant("club", 3))
    assert "alpha=0.3" in repr(contestant("sclub", 3))


def test_the_default_policies_can_be_made() -> None:
    check_contestants(CONTESTANTS, 5)


def test_unknown_policies_and_the_oracle_are_refused() -> None:
    with pytest.raises(OptionError, match=r"oracle cannot play on recorded events"):
        contestant("oracle", 3)
    with pytest.raises(OptionError, match=r"is called 'nobody'.*largest-norm.*dyclu-0\.3"):
        check_contestants(("dyclu", "nobody"), 3)
    with pytest.raises(OptionError, match=r"there are no policies.*largest-norm"):
        check_contestants((), 3)


def test_the_longest_arm_is_a_policy() -> None:
    def load(path: Path) -> Policy:
        return LargestNorm.restore(storage.read(path))

    check_policy(lambda: LargestNorm(3), load=load)


def test_the_longest_arm_is_chosen() -> None:
    policy = LargestNorm(2)
    assert policy.decide(1, [[1.0, 0.0], [0.0, -3.0], [2.0, 2.0]]).arm == 1
