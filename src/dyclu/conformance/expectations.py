"""What checks expect, and how they say what they saw instead."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import numpy as np

from dyclu.conformance.contract import expect, fail
from dyclu.conformance.streams import STRANGER, Round, Step, play
from dyclu.policies.common.batches import Decisions, Outcomes
from dyclu.policy import Decision, Policy
from dyclu.validation import FloatArray, User

_Read = TypeVar("_Read")
ROUNDING = 1e-9
"""Relative difference up to which two numbers differ only by the order of additions."""


def refusal_of(policy: Policy, call: Callable[[Policy], Any]) -> Exception | None:
    """Return the exception of a call, or None."""
    try:
        call(policy)
    except Exception as error:
        return error
    return None


def expect_valid(decision: Decision, user: User, arms: FloatArray) -> None:
    """Fail if a decision is not one about these arms, or has numbers that are not finite."""
    expect(
        isinstance(decision, Decision)
        and decision.user == user
        and decision.arm in range(len(arms))
        and math.isfinite(decision.mean)
        and 0 <= decision.width < math.inf
        and (decision.propensity is None or 0 < decision.propensity <= 1),
        f"a Decision for {user!r} of an arm below {len(arms)}, finite mean and width ≥ 0",
        decision,
    )


def expect_users(policy: Policy, expected: Iterable[User]) -> None:
    """Fail if a policy knows other users than these."""
    seen, wanted = sorted(policy.users, key=repr), sorted(expected, key=repr)
    expect(seen == wanted, f"the users {wanted}", seen)


def expect_sentences(warnings: object) -> None:
    """Fail if warnings are not a tuple of sentences."""
    sentences = isinstance(warnings, tuple) and all(
        isinstance(one, str) and one.strip() for one in warnings
    )
    expect(sentences, "warnings in a tuple of sentences, none of them empty", repr(warnings))


def expect_unknown(policy: Policy, user: User, arms: FloatArray) -> None:
    """Fail if a policy still knows a user."""

    def decide(user: User) -> Decision:
        return policy.decide(user, arms.copy())

    asks: tuple[Callable[[User], Any], ...] = (policy.locate, decide)
    for ask in asks:
        expected = replace(ask(STRANGER), user=user)
        expect(ask(user) == expected, f"the answer for an unknown user, {expected}", ask(user))


def are_identical(a: Step, b: Step) -> bool:
    """Return whether two steps have the same numbers, bit for bit."""
    return a == b and np.array_equal(a[1].neighbours, b[1].neighbours)


def are_equal_but_for_rounding(a: Step, b: Step) -> bool:
    """Return whether two steps differ only by the user's name and by rounding."""
    same = partial(math.isclose, rel_tol=ROUNDING, abs_tol=ROUNDING)
    ours, theirs = a[0], b[0]
    return (
        ours.arm == theirs.arm and same(ours.mean, theirs.mean) and same(ours.width, theirs.width)
    )


def expect_same(
    seen: list[Step],
    expected: list[Step],
    rule: str,
    *,
    alike: Callable[[Step, Step], bool] = are_identical,
) -> None:
    """Fail at the first step that is not as expected; `rule` says what should have been equal."""
    for t, (step, twin) in enumerate(zip(seen, expected, strict=True)):
        if not alike(step, twin):
            fail(rule, f"{step} instead of {twin} in round {t}")


def expect_same_columns(
    seen: Decisions | Outcomes, expected: Decisions | Outcomes, rule: str
) -> None:
    """Fail if a column of a batch is not as expected."""
    for field in fields(expected):
        ours, theirs = (getattr(value, field.name) for value in (seen, expected))
        same = ours == theirs if isinstance(ours, tuple) else np.array_equal(ours, theirs)
        expect(same, f"the same {field.name} {rule} one by one", f"{ours} instead of {theirs}")


@contextmanager
def nothing_changes(policy: Policy, twin: Policy, part: list[Round], *, by: str) -> Iterator[None]:
    """Expect that the body changes neither the saved file nor the steps of `part`.

    The file is compared too, because some changes show in no decision, such as an empty record of a
    user for whom only a question was asked.
    """
    before = _bytes(policy)
    yield
    expect(_bytes(policy) == before, f"{by} to change nothing that `save` writes", "other bytes")
    expect_same(play(policy, part), play(twin, part), f"{by} to change no later step")


def written_and_read(policy: Policy, read: Callable[[Path], _Read]) -> _Read:
    """Save a policy, and return what `read` makes of the file."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "policy")
        policy.save(path)
        return read(path)


_bytes = partial(written_and_read, read=Path.read_bytes)
