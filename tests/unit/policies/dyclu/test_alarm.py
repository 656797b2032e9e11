from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dyclu.policies.dyclu.alarm import Alarm

ALARM = Alarm(level=0.01, window=20, delta=0.1)


@given(st.lists(st.booleans(), min_size=1, max_size=60), st.integers(1, 60))
def test_alarm_rings_if_the_mean_exceeds_the_threshold_of_lemma_three(
    seen: list[bool], count: int
) -> None:
    recent: tuple[bool, ...] = ()
    for surprised in seen:
        recent = ALARM.remember(recent, surprised)
    assert list(recent) == seen[-20:]
    entries = min(count, 20)
    if len(recent) >= entries:
        mean = sum(seen[-entries:]) / entries
        threshold = 0.01 + math.sqrt(math.log(10) / (2 * entries))
        assert ALARM.rings(recent, count=count) == (mean > threshold)


def test_alarm_does_not_ring_for_an_empty_segment() -> None:
    assert not ALARM.rings((True,) * 20, count=0)


@pytest.mark.parametrize(("entries", "needed"), [(1, None), (2, 2), (5, 3), (10, 4), (20, 5)])
def test_number_of_surprises_needed_by_window_size(entries: int, needed: int | None) -> None:
    rings = [
        ALARM.rings((True,) * k + (False,) * (entries - k), count=entries)
        for k in range(entries + 1)
    ]
    expected = [needed is not None and k >= needed for k in range(entries + 1)]
    assert rings == expected
