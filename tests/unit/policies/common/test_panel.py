"""The panel: a uniform sample of segments, with their own sums."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from dyclu import kernels
from dyclu.policies.common import panel as module
from dyclu.policies.common.panel import NONE, Panel

HELD, ENERGY, RATIO = kernels.ledger.HELD, kernels.ledger.ENERGY, kernels.ledger.RATIO


def add(panel: Panel, seat: int, x: float, y: float, weight: float) -> None:
    kernels.atlas.add_to_segment(
        panel.gram[seat], panel.moment[seat], panel.sums[seat], np.array([x]), y, weight
    )


def test_the_panel_is_a_uniform_sample_of_all_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 20 places, each tenth of 4,000 segments has about 2; Poisson(2) exceeds 8 with 0.02 %."""
    monkeypatch.setattr(module, "PANEL", 20)
    panel, seated = Panel(1), dict[int, int]()
    for number in range(1, 4001):
        seat, left = panel.admit(number, number)
        if left != NONE:
            assert seated.pop(seat) == left
        if seat != NONE:
            seated[seat] = number
    assert panel.rows == 20
    assert panel.owner[:20].tolist() == [seated[seat] for seat in range(20)]
    tenths = Counter(number // 401 for number in seated.values())
    assert max(tenths.values()) <= 8
    assert len(tenths) >= 5


def test_a_segment_that_has_ended_keeps_its_seat_and_its_rewards() -> None:
    panel = Panel(1)
    seat, _ = panel.admit(7, 1)
    add(panel, seat, 2.0, 3.0, 0.5)
    panel.end(seat)
    other, left = panel.admit(7, 2)
    assert (other, left) == (1, NONE)
    gram, moment, sums = panel.held()
    assert gram.tolist() == [[[2.0, 1.0], [1.0, 0.5]]]
    assert moment.tolist() == [[3.0, 1.5]]
    assert sums[0, [HELD, ENERGY, RATIO]].tolist() == [1.0, 4.5, 1.0]


def test_a_segment_that_has_ended_is_replaced_without_a_loser(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PANEL", 1)
    panel = Panel(1)
    panel.admit(0, 1)
    panel.end(0)
    seats = [panel.admit(number, number) for number in range(2, 40)]
    replaced = [left for seat, left in seats if seat == 0]
    assert replaced[0] == NONE
    assert all(left >= 0 for left in replaced[1:])


def test_forgetting_a_user_removes_present_and_past_segments() -> None:
    panel = Panel(1)
    for user in (0, 1, 0):
        seat, _ = panel.admit(user, panel.rows + 1)
        add(panel, seat, 1.0, user + 1.0, 1.0)
        if panel.rows == 1:
            panel.end(seat)
    panel.forget(0)
    assert panel.held()[1].tolist() == [[2.0, 2.0]]
    assert panel.owner[:3].tolist() == [NONE, 1, NONE]


def test_a_user_who_moves_to_another_row_keeps_all_segments() -> None:
    panel = Panel(1)
    panel.admit(5, 1)
    panel.end(0)
    panel.admit(5, 2)
    panel.rename(5, 2)
    add(panel, 0, 1.0, 1.0, 1.0)
    add(panel, 1, 1.0, 1.0, 1.0)
    panel.forget(2)
    assert len(panel.held()[2]) == 0
