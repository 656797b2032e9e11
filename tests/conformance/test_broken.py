"""Every check can fail: policies broken on purpose are found, and the right rule is named."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dyclu import conformance
from dyclu.conformance import CHECKS, NonConformance, check_memory_is_bounded, check_policy

from . import specimens
from .specimens import Batched, Specimen, loader

Make = Callable[[], Specimen | Batched]

# Broken in a way that one rule forbids and no other notices.
ALONE: dict[Make, str] = {
    specimens.creates_whoever_asks: "check_decide_changes_nothing",
    specimens.creates_a_record_when_asked_where_a_user_is: "check_decide_changes_nothing",
    specimens.favours_the_first_in_the_alphabet: "check_user_names_are_opaque",
    specimens.takes_names_for_text: "check_user_names_are_opaque",
    specimens.keeps_the_context: "check_arrays_are_left_alone",
    specimens.scales_the_arms_in_place: "check_arrays_are_left_alone",
    specimens.needs_to_write: "check_arrays_are_left_alone",
    specimens.wants_arrays: "check_numbers_come_in_any_form",
    specimens.halves_into_an_array_like_it: "check_numbers_come_in_any_form",
    specimens.divides_in_single_precision: "check_numbers_come_in_any_form",
    specimens.reads_memory_in_order: "check_numbers_come_in_any_form",
    specimens.swallows_nan: "check_bad_input_is_refused",
    specimens.lets_numpy_complain: "check_bad_input_is_refused",
    specimens.serves_nobody: "check_bad_input_is_refused",
    specimens.learns_before_it_refuses: "check_refused_input_changes_nothing",
    specimens.registers_before_it_refuses: "check_refused_input_changes_nothing",
    specimens.takes_the_last_of_ties: "check_first_of_ties_is_taken",
    specimens.holds_twenty_arms: "check_number_of_arms_may_vary",
    specimens.points_past_the_pool: "check_number_of_arms_may_vary",
    specimens.forgets: "check_zero_context_moves_no_estimate",
    specimens.takes_zeros_for_ones: "check_zero_context_moves_no_estimate",
    specimens.goes_beyond_the_reward_of_zeros: "check_zero_context_moves_no_estimate",
    specimens.hoards: "check_memory_is_bounded",
    specimens.hoards_as_bare_bytes: "check_memory_is_bounded",
    specimens.saves_single_precision: "check_saved_policy_continues",
    specimens.saves_no_clock: "check_saved_policy_continues",
    specimens.learns_half_of_a_bad_batch: "check_batches_equal_single_calls",
    specimens.averages_a_batch: "check_batches_equal_single_calls",
    specimens.asks_for_the_first_user_only: "check_batches_equal_single_calls",
    specimens.lists_users_from_their_second_reward_on: "check_users_are_those_who_learnt",
    specimens.lists_users_who_only_asked: "check_users_are_those_who_learnt",
    specimens.lists_users_up_to_their_tenth_reward: "check_users_are_those_who_learnt",
    specimens.records_only_the_latest_change: "check_changes_are_recorded",
    specimens.records_changes_one_reward_late: "check_changes_are_recorded",
    specimens.records_the_latest_change_first: "check_changes_are_recorded",
    specimens.forgets_nobody: "check_forgotten_users_are_unknown",
    specimens.forgets_everybody: "check_forgotten_users_are_unknown",
    specimens.forgets_only_the_name: "check_forgotten_users_are_unknown",
    specimens.keeps_the_changes_of_forgotten_users: "check_forgotten_users_are_unknown",
    specimens.fails_to_forget_an_unknown_user: "check_forgotten_users_are_unknown",
    specimens.warns_in_a_list: "check_warnings_are_sentences",
    specimens.warns_of_nothing: "check_warnings_are_sentences",
    specimens.warns_by_number: "check_warnings_are_sentences",
    specimens.learns_when_asked_for_warnings: "check_warnings_are_sentences",
}

# Broken so that other rules suffer too: each of them relies on the one named.
SPREADING: dict[Make, str] = {
    specimens.knows_only_its_users: "check_strangers_are_served",
    specimens.has_no_opinion_of_strangers: "check_strangers_are_served",
    specimens.takes_rewards_for_anybodys: "check_strangers_are_served",
    specimens.draws_when_asked: "check_decide_changes_nothing",
    specimens.adapts_to_the_asked: "check_decide_changes_nothing",
    specimens.unseeded(): "check_same_stream_same_arms",
    specimens.answers_about_text: "check_user_names_are_opaque",
    specimens.fixes_the_number_of_arms: "check_number_of_arms_may_vary",
    specimens.forgets_when_saved: "check_saved_policy_continues",
}


def failure(make: Make) -> NonConformance:
    with pytest.raises(NonConformance) as caught:
        check_policy(make, load=loader(make))
    return caught.value


def name(value: object) -> str:
    return value if isinstance(value, str) else str(getattr(value, "__qualname__", value))


@pytest.mark.parametrize("make", [specimens.sound, specimens.records_its_changes, specimens.warns])
def test_a_sound_policy_passes(make: Make) -> None:
    check_policy(make, load=loader(make))


@pytest.mark.parametrize(("make", "check"), ALONE.items(), ids=name)
def test_the_check_of_a_broken_rule_fails(make: Make, check: str) -> None:
    more = {"load": loader(make)} if check == "check_saved_policy_continues" else {}
    with pytest.raises(NonConformance) as caught:
        getattr(conformance, check)(make, **more)
    assert caught.value.checks == (check,)


@pytest.mark.long
@pytest.mark.parametrize(("make", "check"), ALONE.items(), ids=name)
def test_the_broken_rule_is_named_and_no_other(make: Make, check: str) -> None:
    assert failure(make).checks == (check,)


@pytest.mark.parametrize(("make", "check"), SPREADING.items(), ids=name)
def test_the_broken_rule_is_named(make: Make, check: str) -> None:
    assert check in failure(make).checks


def test_every_check_is_run_and_has_a_specimen() -> None:
    written = {rule for rule in vars(conformance) if rule.startswith("check_")} - {"check_policy"}
    assert {name(check) for check in CHECKS} == written
    assert {*ALONE.values(), *SPREADING.values()} == written


def test_message_says_what_was_expected_and_seen() -> None:
    assert str(failure(specimens.takes_the_last_of_ties)) == (
        "1 of 18 checks failed\n"
        "- check_first_of_ties_is_taken: expected arm 0, the first of its equals; saw arm 6"
    )


def test_message_lists_every_failure() -> None:
    broken = failure(specimens.knows_only_its_users)
    first, *rest = str(broken).splitlines()
    assert first == "16 of 18 checks failed"
    assert [line.removeprefix("- ").partition(":")[0] for line in rest] == list(broken.checks)


def test_message_lists_all_that_was_not_refused() -> None:
    with pytest.raises(NonConformance) as found:
        conformance.check_bad_input_is_refused(specimens.lets_numpy_complain)
    assert "arms none at all raise ValueError('operands" in str(found.value)
    assert "arms of ragged lists raise ValueError('operands" in str(found.value)
    assert "accepted" not in str(found.value)


def test_message_tells_acceptance_from_the_wrong_exception() -> None:
    with pytest.raises(NonConformance, match=r"saw user None deciding accepted$"):
        conformance.check_bad_input_is_refused(specimens.serves_nobody)


def test_exception_of_the_policy_is_a_failure_that_keeps_its_cause() -> None:
    with pytest.raises(NonConformance, match="expected no exception; saw KeyError: 'ana'") as found:
        conformance.check_same_stream_same_arms(specimens.knows_only_its_users)
    assert isinstance(found.value.__cause__, KeyError)
    assert found.value.checks == ("check_same_stream_same_arms",)


def test_policies_are_read_back_by_the_library_unless_told_otherwise() -> None:
    with pytest.raises(NonConformance, match="saw ForeignFile") as found:
        check_policy(specimens.sound)
    assert found.value.checks == ("check_saved_policy_continues",)


def test_what_no_decision_shows_must_be_read_back_too() -> None:
    def load(path: Path) -> Specimen | Batched:
        specimen = loader(specimens.sound)(path)
        kept = specimen.ridge.kept
        kept.update({user: replace(stats, energy=0.0) for user, stats in kept.items()})
        return specimen

    with pytest.raises(NonConformance, match="expected the loaded policy to save the same"):
        conformance.check_saved_policy_continues(specimens.sound, load=load)


def test_tracing_of_memory_is_left_as_it_was() -> None:
    check_memory_is_bounded(specimens.sound)
    assert not tracemalloc.is_tracing()
    tracemalloc.start()
    try:
        check_memory_is_bounded(specimens.sound)
        assert tracemalloc.is_tracing()
    finally:
        tracemalloc.stop()
