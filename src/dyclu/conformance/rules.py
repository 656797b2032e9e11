"""The rules, one check each; the docstring of a check is its rule."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import cycle
from operator import methodcaller

import numpy as np

from dyclu import policies
from dyclu.conformance.contract import Load, Make, expect, rule
from dyclu.conformance.expectations import (
    ROUNDING,
    _bytes,
    are_equal_but_for_rounding,
    expect_same,
    expect_same_columns,
    expect_sentences,
    expect_unknown,
    expect_users,
    expect_valid,
    nothing_changes,
    refusal_of,
    written_and_read,
)
from dyclu.conformance.inputs import FORMS, Lender, bad_calls, read_only
from dyclu.conformance.streams import (
    NAMES,
    RENAMED,
    STRANGER,
    blocks_of,
    growth_of,
    halves_of,
    means_of,
    new_stream,
    play,
    pools_with_ties,
)
from dyclu.errors import DycluError
from dyclu.policies.common.batches import BatchPolicy, Decisions, Outcomes
from dyclu.policy import Change, Outcome
from dyclu.validation import User


@rule
def check_strangers_are_served(make: Make) -> None:
    """An unknown user gets a valid decision, and the policy learns from their first reward.

    Every user is unknown at first, and callers do not check whether a policy knows a user.
    """
    policy = make()
    stream = new_stream(policy.dim)
    for part in halves_of(stream):
        for user in (STRANGER, -7):
            expect_valid(policy.decide(user, part[0].arms.copy()), user, part[0].arms)
        play(policy, part)
    newcomer = policy.learn(STRANGER, stream[0].arms[0].copy(), 1.0)
    expect(
        isinstance(newcomer, Outcome) and newcomer.user == STRANGER,
        f"an Outcome of user {STRANGER!r}",
        newcomer,
    )


@rule
def check_decide_changes_nothing(make: Make) -> None:
    """Questions change nothing: `decide`, `locate`, `users`, `changes` and `models`.

    A dashboard, a retry or a preview may ask at any time without influence on later decisions.
    """
    policy, twin = make(), make()
    for part in halves_of(new_stream(policy.dim)):
        with nothing_changes(policy, twin, part, by="questions"):
            for round_ in part:
                for user in (round_.user, STRANGER, round_.user):
                    policy.decide(user, round_.arms.copy())
                    policy.locate(user)
            for question in (policy.users, policy.changes, policy.models):
                expect(isinstance(question, tuple), "answers that are tuples", question)


@rule
def check_same_stream_same_arms(make: Make) -> None:
    """Two policies with the same configuration and the same input make the same decisions.

    Otherwise no run could be repeated, and no difference between two runs explained.
    """
    stream = new_stream(make().dim)
    expect_same(play(make(), stream), play(make(), stream), "two fresh policies to agree")


@rule
def check_user_names_are_opaque(make: Make) -> None:
    """If users have other names, nothing changes but the names.

    How a name sorts, hashes or prints says nothing about the user's taste.
    """
    dim = make().dim
    expected = play(make(), new_stream(dim))
    for names in RENAMED:
        seen = play(make(), new_stream(dim, names=names))
        expect_same(
            seen,
            expected,
            f"users called {names} to be served alike",
            alike=are_equal_but_for_rounding,
        )
        for name, (decision, outcome) in zip(cycle(names), seen, strict=False):
            answered = (decision.user, outcome.user)
            expect(answered == (name, name), f"answers about user {name!r}", answered)


@rule
def check_arrays_are_left_alone(make: Make) -> None:
    """No array passed in is changed, or read after the call.

    Callers reuse their buffers, and pass read-only views of them.
    """
    stream = new_stream(make().dim)
    expected = play(make(), stream)
    given = Lender()
    seen = play(make(), stream, give=given.lend)
    given.take_back()
    expect_same(seen, expected, "no effect of arrays overwritten after the call")
    expect_same(play(make(), stream, give=read_only), expected, "read-only arrays to do")


@rule
def check_numbers_come_in_any_form(make: Make) -> None:
    """Lists, float32, whole numbers and strided views work like the float64 array of their values.

    Feature tables come from many sources, and callers do not control their layout in memory.
    """
    dim = make().dim
    # Small whole numbers are exact in all of these forms; −0.0 becomes 0.
    stream = [replace(round_, arms=np.rint(4 * round_.arms)) for round_ in new_stream(dim)]
    expected = play(make(), stream)
    for form, give in FORMS:
        seen = play(make(), stream, give=give)
        expect_same(
            seen,
            expected,
            f"{form} to do as well as float64 arrays",
            alike=are_equal_but_for_rounding,
        )


@rule
def check_bad_input_is_refused(make: Make) -> None:
    """Invalid input raises a DycluError that is a ValueError or a TypeError.

    One accepted NaN would spoil the estimates of all users; and callers must be able to catch the
    refusals of the library without catching its defects.
    """
    seen = []
    for what, call in bad_calls(make().dim):
        error = refusal_of(make(), call)
        if not (isinstance(error, DycluError) and isinstance(error, ValueError | TypeError)):
            seen.append(f"{what} {'accepted' if error is None else f'raise {error!r}'}")
    # Name a call once, even if it failed for a known and for an unknown user.
    named = ", ".join(dict.fromkeys(seen))
    expect(not seen, "a DycluError that is a ValueError or a TypeError", named)


@rule
def check_refused_input_changes_nothing(make: Make) -> None:
    """Input that raises changes nothing, and adds no user.

    A caller who catches the error and continues must not continue with half an observation.
    """
    policy, twin = make(), make()
    for part in halves_of(new_stream(policy.dim)):
        with nothing_changes(policy, twin, part, by="refused input"):
            for _, call in bad_calls(policy.dim):
                # `check_bad_input_is_refused` reports input that is not refused at all.
                if refusal_of(make(), call):
                    refusal_of(policy, call)


@rule
def check_first_of_ties_is_taken(make: Make) -> None:
    """Of arms with identical features the first is chosen, at any position.

    Otherwise rounding errors would decide, and runs would differ between machines.
    """
    policy = make()
    for part in halves_of(new_stream(policy.dim)):
        for round_ in part[:5]:
            for pool in pools_with_ties(round_.arms):
                for user in (round_.user, STRANGER):
                    arm = policy.decide(user, pool.copy()).arm
                    first = int(np.argmax((pool == pool[arm]).all(axis=1)))
                    expect(arm == first, f"arm {first}, the first of its equals", f"arm {arm}")
        play(policy, part)


@rule
def check_number_of_arms_may_vary(make: Make) -> None:
    """Any number of arms may be offered, a different one in each round.

    The number of arms depends on what there is to offer, not on the policy.
    """
    policy = make()
    stream = new_stream(policy.dim, sizes=[*range(1, 31), *range(30, 0, -1)])
    for (decision, _), round_ in zip(play(policy, stream), stream, strict=True):
        expect_valid(decision, round_.user, round_.arms)


@rule
def check_zero_context_moves_no_estimate(make: Make) -> None:
    """The reward of a context of zeros tells of the intercept, or of nothing.

    No linear taste explains it. A policy without an intercept learns nothing from it: no arm's
    expected reward changes. A policy with an intercept expects of the next context of zeros a
    reward nearer to the one it got, and not beyond it.
    """
    policy = make()
    stream = new_stream(policy.dim, names=NAMES[:1], swap=False)
    play(policy, stream)
    zeros = np.zeros(policy.dim)
    for reward in (1.0, -1.0, 0.5):
        before, nothing = means_of(policy, stream[0]), policy.decide(NAMES[0], zeros[None]).mean
        tolerance = ROUNDING * max(map(abs, before))
        policy.learn(NAMES[0], zeros, reward)
        now = policy.decide(NAMES[0], zeros[None]).mean
        if abs(now - nothing) > tolerance:
            between = abs(now - reward) <= abs(nothing - reward) + tolerance
            expect(between, f"a mean between {nothing} and {reward}", now)
            continue
        for mean, new in zip(before, means_of(policy, stream[0]), strict=True):
            expect(abs(new - mean) <= tolerance, f"an arm's mean to stay {mean}", new)


@rule
def check_memory_is_bounded(make: Make) -> None:
    """Memory does not grow with the number of rounds of users who do not change.

    A service runs for years. Keeping one number per round takes 8 bytes per round; half of that is
    allowed, for memory that does not depend on rounds.
    """
    stream = new_stream(make().dim, names=NAMES[:2], swap=False)
    # What is loaded at its first use, and what other threads allocate, is no growth of the policy.
    growth = min(growth_of(make(), *halves_of(stream)) for _ in range(3))
    expect(growth < 4, "less than 4 bytes more per round", f"{growth:.0f}")


@rule
def check_saved_policy_continues(make: Make, *, load: Load = policies.load) -> None:
    """A policy read from its file continues bit for bit, and so does the one that wrote it.

    A restart must not change anything, neither for users nor for a replay of the log.
    """
    policy, twin = make(), make()
    stream = new_stream(policy.dim, names=RENAMED[-1])
    # Just after the swap, when changes are suspected but not yet decided.
    cut = len(stream) // 2 + 2 * len(NAMES)
    for part, gone in ((stream[:cut], ()), (stream[cut:], ()), (stream[:cut], RENAMED[-1][1:3])):
        for user in gone:
            policy.forget(user)
            twin.forget(user)
        loaded = written_and_read(policy, load)
        expected = play(twin, part)
        expect_same(play(loaded, part), expected, "the loaded policy to continue as if not saved")
        expect_same(play(policy, part), expected, "the saved policy to continue as if not saved")
        # Some state shows in no decision or outcome, such as the record of changes.
        expect(_bytes(loaded) == _bytes(twin), "the loaded policy to save the same", "other bytes")


@rule
def check_batches_equal_single_calls(make: Make) -> None:
    """A batch gives the same answers and teaches the same as single calls, or raises.

    Replacing a loop by a batch must change the time it takes, and nothing else. A policy without
    `decide_many` and `learn_many` passes.
    """
    policy, twin = make(), make()
    if not isinstance(policy, BatchPolicy):
        return
    for part in blocks_of(new_stream(policy.dim), size=7):
        users, arms = [round_.user for round_ in part], np.array([round_.arms for round_ in part])
        single = Decisions.of(map(twin.decide, users, arms))
        expect_same_columns(policy.decide_many(users, arms), single, "as decide")
        chosen = arms[np.arange(len(part)), single.arm]
        rewards = [float(r.rewards[arm]) for r, arm in zip(part, single.arm, strict=True)]
        spoilt = methodcaller("learn_many", users, chosen, [*rewards[:-1], math.nan])
        error = refusal_of(policy, spoilt)
        expect(isinstance(error, DycluError), "a DycluError for a NaN at the end", repr(error))
        outcomes = Outcomes.of(map(twin.learn, users, chosen, rewards))
        expect_same_columns(policy.learn_many(users, chosen, rewards), outcomes, "as learn")
    expect(_bytes(policy) == _bytes(twin), "the same policy after the last batch", "another")


@rule
def check_users_are_those_who_learnt(make: Make) -> None:
    """`users` lists every user with a reward once, and nobody else; or it is always empty.

    It is always empty if nothing is kept of single users, as with one shared model. A question does
    not make a user known.
    """
    policy, keeps_users = make(), True
    learnt: dict[User, None] = {}
    for round_ in new_stream(policy.dim):
        for user in (STRANGER, round_.user):
            policy.decide(user, round_.arms.copy())
            policy.locate(user)
        expect_users(policy, learnt if keeps_users else ())
        play(policy, [round_])
        if not learnt:
            keeps_users = bool(policy.users)
        learnt[round_.user] = None
        expect_users(policy, learnt if keeps_users else ())


@rule
def check_changes_are_recorded(make: Make) -> None:
    """`changes` has one entry per outcome with ``changed=True``, in order; or it is always empty.

    An entry names the user and the number of rewards learnt by then.
    """
    policy = make()
    expected: list[tuple[User, int]] = []
    for time, round_ in enumerate(new_stream(policy.dim), start=1):
        recorded = policy.changes
        ((_, outcome),) = play(policy, [round_])
        if outcome.changed:
            expected.append((round_.user, time))
        else:
            expect(policy.changes == recorded, "no new entry without a change", policy.changes)
    changes = policy.changes
    seen = [(change.user, change.at) for change in changes if isinstance(change, Change)]
    expect(not changes or seen == expected, f"no changes, or changes at {expected}", changes)


@rule
def check_forgotten_users_are_unknown(make: Make) -> None:
    """After `forget` a user is unknown again, and the policy still serves everybody.

    The user is in neither `users` nor `changes`, and `decide` and `locate` answer as for an unknown
    user. Forgetting an unknown user changes nothing. Sums over all users may keep their share.
    """
    policy, twin = make(), make()
    stream = new_stream(policy.dim)
    for part in halves_of(stream):
        with nothing_changes(policy, twin, part, by="forgetting an unknown user"):
            policy.forget(STRANGER)
    for gone in (NAMES[1:2], NAMES):
        for user in gone:
            others = [other for other in policy.users if other != user]
            policy.forget(user)
            expect_users(policy, others)
            changes = [change for change in policy.changes if change.user == user]
            expect(not changes, f"no changes of {user!r}", changes)
            expect_unknown(policy, user, stream[0].arms)
        for (decision, _), round_ in zip(play(policy, stream), stream, strict=True):
            expect_valid(decision, round_.user, round_.arms)


@rule
def check_warnings_are_sentences(make: Make) -> None:
    """`warnings` is a tuple of sentences, empty if nothing is wrong; asking changes nothing.

    Reports and the service print each sentence as it is, and may ask at any time.
    """
    policy, twin = make(), make()
    for part in halves_of(new_stream(policy.dim)):
        with nothing_changes(policy, twin, part, by="asking for warnings"):
            expect_sentences(policy.warnings)
        expect_sentences(policy.warnings)
