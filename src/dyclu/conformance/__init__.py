"""The contract of a policy, as checks that you can run on a policy of your own.

Reports, the service and simulations rely on more than the types of a policy's methods: questions
change nothing, refused input changes nothing, a saved policy continues exactly. Each of these rules
is one function here, and its docstring is the rule.

`check_policy` runs all of them on simulated users with two opposite tastes who swap tastes halfway,
so that a policy must deal with similar users and with changes. It takes a function that makes a new
policy, with the same configuration and the same seed each time:

>>> from dyclu import policies
>>> check_policy(lambda: policies.make("linucb", dim=3))
"""

from __future__ import annotations

from functools import partial

from dyclu import policies
from dyclu.conformance.contract import CHECKS, Check, Load, Make, NonConformance
from dyclu.conformance.rules import (
    check_arrays_are_left_alone,
    check_bad_input_is_refused,
    check_batches_equal_single_calls,
    check_changes_are_recorded,
    check_decide_changes_nothing,
    check_first_of_ties_is_taken,
    check_forgotten_users_are_unknown,
    check_memory_is_bounded,
    check_number_of_arms_may_vary,
    check_numbers_come_in_any_form,
    check_refused_input_changes_nothing,
    check_same_stream_same_arms,
    check_saved_policy_continues,
    check_strangers_are_served,
    check_user_names_are_opaque,
    check_users_are_those_who_learnt,
    check_warnings_are_sentences,
    check_zero_context_moves_no_estimate,
)

__all__ = [
    "CHECKS",
    "Check",
    "Load",
    "Make",
    "NonConformance",
    "check_arrays_are_left_alone",
    "check_bad_input_is_refused",
    "check_batches_equal_single_calls",
    "check_changes_are_recorded",
    "check_decide_changes_nothing",
    "check_first_of_ties_is_taken",
    "check_forgotten_users_are_unknown",
    "check_memory_is_bounded",
    "check_number_of_arms_may_vary",
    "check_numbers_come_in_any_form",
    "check_policy",
    "check_refused_input_changes_nothing",
    "check_same_stream_same_arms",
    "check_saved_policy_continues",
    "check_strangers_are_served",
    "check_user_names_are_opaque",
    "check_users_are_those_who_learnt",
    "check_warnings_are_sentences",
    "check_zero_context_moves_no_estimate",
]


def check_policy(make: Make, *, load: Load | None = None) -> None:
    """Run all checks, and report all failures together.

    Parameters
    ----------
    make : callable
        Makes a new policy, with the same configuration and seed each time.
    load : callable, optional
        Reads the file that the policy's `save` wrote; `dyclu.load` if not given.

    Raises
    ------
    NonConformance
        Names each failed check, what it expected and what it saw.
    """
    saved = partial(check_saved_policy_continues, load=load or policies.load)
    failures = []
    for check in CHECKS:
        try:
            (saved if check is check_saved_policy_continues else check)(make)
        except NonConformance as failure:
            failures.append(failure)
    if failures:
        raise NonConformance(
            "\n- ".join([f"{len(failures)} of {len(CHECKS)} checks failed", *map(str, failures)]),
            checks=[name for failure in failures for name in failure.checks],
        )
