"""`dyclu.sim.studies.options`: lists of numbers and seeds that are written as text."""

from __future__ import annotations

import pytest

from dyclu.errors import OptionError
from dyclu.sim.studies.options import MOST_NUMBERS, parse_numbers, parse_seeds


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("1", (1,)), ("1,4-6", (1, 4, 5, 6)), (" 3 , 3,2-3", (3, 2)), ("0-0", (0,))],
)
def test_lists_of_numbers_are_parsed_without_repetitions(
    text: str, numbers: tuple[int, ...]
) -> None:
    assert parse_numbers(text, "rows") == numbers


@pytest.mark.parametrize(
    "text", ["", "x", "1,,2", "1,", "-1", "5-3", "1.5", "1-2-3", f"0-{MOST_NUMBERS}", "9" * 30, "٣"]
)
def test_malformed_lists_of_numbers_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match=r"rows is .*expected whole numbers such as 1,4-6"):
        parse_numbers(text, "rows")


def test_a_single_number_is_a_count_of_seeds_and_a_list_names_them() -> None:
    assert parse_seeds("3", quick=False) == (0, 1, 2)
    assert parse_seeds("0,3,7", quick=False) == (0, 3, 7)
    assert parse_seeds("7-7", quick=False) == (7,)
    assert (len(parse_seeds(None, quick=False)), len(parse_seeds(None, quick=True))) == (5, 2)
    with pytest.raises(OptionError, match="expected a number of runs"):
        parse_seeds(str(MOST_NUMBERS + 1), quick=False)
