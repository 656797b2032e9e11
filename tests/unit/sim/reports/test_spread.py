"""`dyclu.sim.reports.spread`: means and standard errors by hand."""

from __future__ import annotations

import math

import pytest

from dyclu.sim.reports.spread import Spread


def test_a_standard_error_by_hand() -> None:
    # Deviations −1, 0, 1: variance 2/2 = 1, standard error 1/√3.
    assert Spread.of([4.0, 5.0, 6.0]) == Spread(5.0, 1 / math.sqrt(3), 3)


def test_one_seed_has_no_standard_error() -> None:
    assert Spread.of([889.0]).error is None
    assert str(Spread.of([889.0])) == "889 ± n/a"


@pytest.mark.parametrize(
    ("spread", "text"),
    [
        (Spread(19_954.4, 100.6), "19,954 ± 101"),
        (Spread(44.12, 1.27), "44.1 ± 1.3"),
        (Spread(8.6, 0.049), "8.60 ± 0.05"),
        (Spread(0.0, 0.0), "0.00 ± 0.00"),
        (Spread(-8.6, 0.049), "−8.60 ± 0.05"),
    ],
)
def test_small_means_have_more_decimals(spread: Spread, text: str) -> None:
    assert str(spread) == text


def test_the_number_of_decimals_can_be_fixed() -> None:
    assert [Spread(mean, 0.1).text(2) for mean in (9.99, 10.01)] == ["9.99 ± 0.10", "10.01 ± 0.10"]
