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

import gc
import math
import sys
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial, wraps
from itertools import cycle, islice
from operator import methodcaller
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn, ParamSpec, TypeVar

import numpy as np

from dyclu import policies
from dyclu.errors import DycluError
from dyclu.policies.common.batches import BatchPolicy, Decisions, Outcomes
from dyclu.policy import Change, Decision, Outcome, Policy
from dyclu.validation import FloatArray, User

Make = Callable[[], Policy]
Load = Callable[[Path], Policy]
Check = Callable[..., None]
_Options = ParamSpec("_Options")
_Read = TypeVar("_Read")

ROUNDS = 160
"""Length of a simulated stream: 40 rounds for each of four users, 20 on either side of the swap."""

ROUNDING = 1e-9
"""Relative difference up to which two numbers differ only by the order of additions."""

NAMES: tuple[User, ...] = ("ana", "ben", "cem", "dua")
RENAMED: tuple[tuple[User, ...], ...] = (
    ("dua", "cem", "ben", "ana"),
    (-1, -2, 0, 2**70),
    (1, "1", "", "0"),
    ("\u00e9", "e\u0301", "名", "a\x00"),
)
"""Names that are easily confused: in reversed order, with equal hashes, text or glyphs."""

STRANGER = "somebody never seen"

CHECKS: list[Check] = []
"""The contract: all checks, in the order in which `check_policy` runs them."""


class NonConformance(AssertionError):  # noqa: N818 - the name says what it is
    """A policy breaks its contract.

    Attributes
    ----------
    checks : tuple of str
        Names of the checks that failed.
    """

    def __init__(self, message: str, *, checks: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.checks = tuple(checks)


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


def _rule(check: Callable[_Options, None]) -> Callable[_Options, None]:
    """Add a check to `CHECKS`, and its name to its failures; an exception is a failure too."""
    name = check.__name__

    @wraps(check)
    def run(*args: _Options.args, **kwargs: _Options.kwargs) -> None:
        try:
            check(*args, **kwargs)
        except NonConformance as failure:
            raise NonConformance(f"{name}: {failure}", checks=[name]) from None
        except Exception as error:
            seen = f"{type(error).__name__}: {error}"
            raise NonConformance(
                f"{name}: expected no exception; saw {seen}", checks=[name]
            ) from error

    CHECKS.append(run)
    return run


# The rules


@_rule
def check_strangers_are_served(make: Make) -> None:
    """An unknown user gets a valid decision, and the policy learns from their first reward.

    Every user is unknown at first, and callers do not check whether a policy knows a user.
    """
    policy = make()
    stream = _stream(policy.dim)
    for part in _halves(stream):
        for user in (STRANGER, -7):
            _expect_valid(policy.decide(user, part[0].arms.copy()), user, part[0].arms)
        _play(policy, part)
    newcomer = policy.learn(STRANGER, stream[0].arms[0].copy(), 1.0)
    _expect(
        isinstance(newcomer, Outcome) and newcomer.user == STRANGER,
        f"an Outcome of user {STRANGER!r}",
        newcomer,
    )


@_rule
def check_decide_changes_nothing(make: Make) -> None:
    """Questions change nothing: `decide`, `locate`, `users`, `changes` and `models`.

    A dashboard, a retry or a preview may ask at any time without influence on later decisions.
    """
    policy, twin = make(), make()
    for part in _halves(_stream(policy.dim)):
        with _nothing_changes(policy, twin, part, by="questions"):
            for round_ in part:
                for user in (round_.user, STRANGER, round_.user):
                    policy.decide(user, round_.arms.copy())
                    policy.locate(user)
            for question in (policy.users, policy.changes, policy.models):
                _expect(isinstance(question, tuple), "answers that are tuples", question)


@_rule
def check_same_stream_same_arms(make: Make) -> None:
    """Two policies with the same configuration and the same input make the same decisions.

    Otherwise no run could be repeated, and no difference between two runs explained.
    """
    stream = _stream(make().dim)
    _expect_same(_play(make(), stream), _play(make(), stream), "two fresh policies to agree")


@_rule
def check_user_names_are_opaque(make: Make) -> None:
    """If users have other names, nothing changes but the names.

    How a name sorts, hashes or prints says nothing about the user's taste.
    """
    dim = make().dim
    expected = _play(make(), _stream(dim))
    for names in RENAMED:
        seen = _play(make(), _stream(dim, names=names))
        _expect_same(seen, expected, f"users called {names} to be served alike", alike=_rounded)
        for name, (decision, outcome) in zip(cycle(names), seen, strict=False):
            answered = (decision.user, outcome.user)
            _expect(answered == (name, name), f"answers about user {name!r}", answered)


@_rule
def check_arrays_are_left_alone(make: Make) -> None:
    """No array passed in is changed, or read after the call.

    Callers reuse their buffers, and pass read-only views of them.
    """
    stream = _stream(make().dim)
    expected = _play(make(), stream)
    given = _Lender()
    seen = _play(make(), stream, give=given.lend)
    given.take_back()
    _expect_same(seen, expected, "no effect of arrays overwritten after the call")
    _expect_same(_play(make(), stream, give=_read_only), expected, "read-only arrays to do")


@_rule
def check_numbers_come_in_any_form(make: Make) -> None:
    """Lists, float32, whole numbers and strided views work like the float64 array of their values.

    Feature tables come from many sources, and callers do not control their layout in memory.
    """
    dim = make().dim
    # Small whole numbers are exact in all of these forms; −0.0 becomes 0.
    stream = [replace(round_, arms=np.rint(4 * round_.arms)) for round_ in _stream(dim)]
    expected = _play(make(), stream)
    for form, give in _FORMS:
        seen = _play(make(), stream, give=give)
        _expect_same(seen, expected, f"{form} to do as well as float64 arrays", alike=_rounded)


@_rule
def check_bad_input_is_refused(make: Make) -> None:
    """Invalid input raises a DycluError that is a ValueError or a TypeError.

    One accepted NaN would spoil the estimates of all users; and callers must be able to catch the
    refusals of the library without catching its defects.
    """
    seen = []
    for what, call in _bad_calls(make().dim):
        error = _refusal(make(), call)
        if not (isinstance(error, DycluError) and isinstance(error, ValueError | TypeError)):
            seen.append(f"{what} {'accepted' if error is None else f'raise {error!r}'}")
    # Name a call once, even if it failed for a known and for an unknown user.
    named = ", ".join(dict.fromkeys(seen))
    _expect(not seen, "a DycluError that is a ValueError or a TypeError", named)


@_rule
def check_refused_input_changes_nothing(make: Make) -> None:
    """Input that raises changes nothing, and adds no user.

    A caller who catches the error and continues must not continue with half an observation.
    """
    policy, twin = make(), make()
    for part in _halves(_stream(policy.dim)):
        with _nothing_changes(policy, twin, part, by="refused input"):
            for _, call in _bad_calls(policy.dim):
                # `check_bad_input_is_refused` reports input that is not refused at all.
                if _refusal(make(), call):
                    _refusal(policy, call)


@_rule
def check_first_of_ties_is_taken(make: Make) -> None:
    """Of arms with identical features the first is chosen, at any position.

    Otherwise rounding errors would decide, and runs would differ between machines.
    """
    policy = make()
    for part in _halves(_stream(policy.dim)):
        for round_ in part[:5]:
            for pool in _pools_with_ties(round_.arms):
                for user in (round_.user, STRANGER):
                    arm = policy.decide(user, pool.copy()).arm
                    first = int(np.argmax((pool == pool[arm]).all(axis=1)))
                    _expect(arm == first, f"arm {first}, the first of its equals", f"arm {arm}")
        _play(policy, part)


@_rule
def check_number_of_arms_may_vary(make: Make) -> None:
    """Any number of arms may be offered, a different one in each round.

    The number of arms depends on what there is to offer, not on the policy.
    """
    policy = make()
    stream = _stream(policy.dim, sizes=[*range(1, 31), *range(30, 0, -1)])
    for (decision, _), round_ in zip(_play(policy, stream), stream, strict=True):
        _expect_valid(decision, round_.user, round_.arms)


@_rule
def check_zero_context_moves_no_estimate(make: Make) -> None:
    """The reward of a context of zeros tells of the intercept, or of nothing.

    No linear taste explains it. A policy without an intercept learns nothing from it: no arm's
    expected reward changes. A policy with an intercept expects of the next context of zeros a
    reward nearer to the one it got, and not beyond it.
    """
    policy = make()
    stream = _stream(policy.dim, names=NAMES[:1], swap=False)
    _play(policy, stream)
    zeros = np.zeros(policy.dim)
    for reward in (1.0, -1.0, 0.5):
        before, nothing = _means(policy, stream[0]), policy.decide(NAMES[0], zeros[None]).mean
        tolerance = ROUNDING * max(map(abs, before))
        policy.learn(NAMES[0], zeros, reward)
        now = policy.decide(NAMES[0], zeros[None]).mean
        if abs(now - nothing) > tolerance:
            between = abs(now - reward) <= abs(nothing - reward) + tolerance
            _expect(between, f"a mean between {nothing} and {reward}", now)
            continue
        for mean, new in zip(before, _means(policy, stream[0]), strict=True):
            _expect(abs(new - mean) <= tolerance, f"an arm's mean to stay {mean}", new)


@_rule
def check_memory_is_bounded(make: Make) -> None:
    """Memory does not grow with the number of rounds of users who do not change.

    A service runs for years. Keeping one number per round takes 8 bytes per round; half of that is
    allowed, for memory that does not depend on rounds.
    """
    stream = _stream(make().dim, names=NAMES[:2], swap=False)
    # What is loaded at its first use, and what other threads allocate, is no growth of the policy.
    growth = min(_growth(make(), *_halves(stream)) for _ in range(3))
    _expect(growth < 4, "less than 4 bytes more per round", f"{growth:.0f}")


@_rule
def check_saved_policy_continues(make: Make, *, load: Load = policies.load) -> None:
    """A policy read from its file continues bit for bit, and so does the one that wrote it.

    A restart must not change anything, neither for users nor for a replay of the log.
    """
    policy, twin = make(), make()
    stream = _stream(policy.dim, names=RENAMED[-1])
    # Just after the swap, when changes are suspected but not yet decided.
    cut = len(stream) // 2 + 2 * len(NAMES)
    for part, gone in ((stream[:cut], ()), (stream[cut:], ()), (stream[:cut], RENAMED[-1][1:3])):
        for user in gone:
            policy.forget(user)
            twin.forget(user)
        loaded = _saved(policy, load)
        expected = _play(twin, part)
        _expect_same(_play(loaded, part), expected, "the loaded policy to continue as if not saved")
        _expect_same(_play(policy, part), expected, "the saved policy to continue as if not saved")
        # Some state shows in no decision or outcome, such as the record of changes.
        _expect(_bytes(loaded) == _bytes(twin), "the loaded policy to save the same", "other bytes")


@_rule
def check_batches_equal_single_calls(make: Make) -> None:
    """A batch gives the same answers and teaches the same as single calls, or raises.

    Replacing a loop by a batch must change the time it takes, and nothing else. A policy without
    `decide_many` and `learn_many` passes.
    """
    policy, twin = make(), make()
    if not isinstance(policy, BatchPolicy):
        return
    for part in _blocks(_stream(policy.dim), size=7):
        users, arms = [round_.user for round_ in part], np.array([round_.arms for round_ in part])
        single = Decisions.of(map(twin.decide, users, arms))
        _expect_same_columns(policy.decide_many(users, arms), single, "as decide")
        chosen = arms[np.arange(len(part)), single.arm]
        rewards = [float(r.rewards[arm]) for r, arm in zip(part, single.arm, strict=True)]
        spoilt = methodcaller("learn_many", users, chosen, [*rewards[:-1], math.nan])
        error = _refusal(policy, spoilt)
        _expect(isinstance(error, DycluError), "a DycluError for a NaN at the end", repr(error))
        outcomes = Outcomes.of(map(twin.learn, users, chosen, rewards))
        _expect_same_columns(policy.learn_many(users, chosen, rewards), outcomes, "as learn")
    _expect(_bytes(policy) == _bytes(twin), "the same policy after the last batch", "another")


@_rule
def check_users_are_those_who_learnt(make: Make) -> None:
    """`users` lists every user with a reward once, and nobody else; or it is always empty.

    It is always empty if nothing is kept of single users, as with one shared model. A question does
    not make a user known.
    """
    policy, keeps_users = make(), True
    learnt: dict[User, None] = {}
    for round_ in _stream(policy.dim):
        for user in (STRANGER, round_.user):
            policy.decide(user, round_.arms.copy())
            policy.locate(user)
        _expect_users(policy, learnt if keeps_users else ())
        _play(policy, [round_])
        if not learnt:
            keeps_users = bool(policy.users)
        learnt[round_.user] = None
        _expect_users(policy, learnt if keeps_users else ())


@_rule
def check_changes_are_recorded(make: Make) -> None:
    """`changes` has one entry per outcome with ``changed=True``, in order; or it is always empty.

    An entry names the user and the number of rewards learnt by then.
    """
    policy = make()
    expected: list[tuple[User, int]] = []
    for time, round_ in enumerate(_stream(policy.dim), start=1):
        recorded = policy.changes
        ((_, outcome),) = _play(policy, [round_])
        if outcome.changed:
            expected.append((round_.user, time))
        else:
            _expect(policy.changes == recorded, "no new entry without a change", policy.changes)
    changes = policy.changes
    seen = [(change.user, change.at) for change in changes if isinstance(change, Change)]
    _expect(not changes or seen == expected, f"no changes, or changes at {expected}", changes)


@_rule
def check_forgotten_users_are_unknown(make: Make) -> None:
    """After `forget` a user is unknown again, and the policy still serves everybody.

    The user is in neither `users` nor `changes`, and `decide` and `locate` answer as for an unknown
    user. Forgetting an unknown user changes nothing. Sums over all users may keep their share.
    """
    policy, twin = make(), make()
    stream = _stream(policy.dim)
    for part in _halves(stream):
        with _nothing_changes(policy, twin, part, by="forgetting an unknown user"):
            policy.forget(STRANGER)
    for gone in (NAMES[1:2], NAMES):
        for user in gone:
            others = [other for other in policy.users if other != user]
            policy.forget(user)
            _expect_users(policy, others)
            changes = [change for change in policy.changes if change.user == user]
            _expect(not changes, f"no changes of {user!r}", changes)
            _expect_unknown(policy, user, stream[0].arms)
        for (decision, _), round_ in zip(_play(policy, stream), stream, strict=True):
            _expect_valid(decision, round_.user, round_.arms)


@_rule
def check_warnings_are_sentences(make: Make) -> None:
    """`warnings` is a tuple of sentences, empty if nothing is wrong; asking changes nothing.

    Reports and the service print each sentence as it is, and may ask at any time.
    """
    policy, twin = make(), make()
    for part in _halves(_stream(policy.dim)):
        with _nothing_changes(policy, twin, part, by="asking for warnings"):
            _expect_sentences(policy.warnings)
        _expect_sentences(policy.warnings)


# The simulated users


@dataclass(frozen=True, slots=True)
class _Round:
    """A user, the arms offered to them, and the reward of each arm."""

    user: User
    arms: FloatArray
    rewards: FloatArray


def _stream(
    dim: int,
    *,
    names: Sequence[User] = NAMES,
    sizes: Sequence[int] = (10,),
    swap: bool = True,
) -> list[_Round]:
    """Return rounds of users who come in turn; users next to each other have opposite tastes."""
    rng = np.random.default_rng(20)
    taste = rng.normal(size=dim)
    taste /= np.linalg.norm(taste)
    stream = []
    for t, size in enumerate(islice(cycle(sizes), ROUNDS)):
        who = t % len(names)
        swapped = swap and t >= ROUNDS // 2
        arms = rng.normal(size=(size, dim))
        noise = 0.1 * rng.normal(size=size)
        stream.append(_Round(names[who], arms, (-1) ** (who + swapped) * arms @ taste + noise))
    return stream


def _blocks(stream: list[_Round], *, size: int) -> Iterator[list[_Round]]:
    for start in range(0, len(stream), size):
        yield stream[start : start + size]


def _halves(stream: list[_Round]) -> tuple[list[_Round], list[_Round]]:
    return stream[: len(stream) // 2], stream[len(stream) // 2 :]


def _growth(policy: Policy, first: list[_Round], rest: list[_Round]) -> float:
    """Return the bytes per round by which a policy grows in the second of two streams."""
    with _traced_memory() as used:
        _serve(policy, first)
        before = used()
        _serve(policy, rest)
        return (used() - before) / len(rest)


_Step = tuple[Decision, Outcome]
_Give = Callable[[FloatArray], Any]


def _play(policy: Policy, stream: list[_Round], *, give: _Give = np.copy) -> list[_Step]:
    """Play the rounds with a policy; `give` turns an array into the argument that it gets."""
    steps = []
    for round_ in stream:
        decision = policy.decide(round_.user, give(round_.arms))
        reward = float(round_.rewards[decision.arm])
        steps.append((decision, policy.learn(round_.user, give(round_.arms[decision.arm]), reward)))
    return steps


def _serve(policy: Policy, stream: list[_Round]) -> None:
    """Play the rounds without keeping any answers in memory."""
    for round_ in stream:
        _play(policy, [round_])


def _means(policy: Policy, round_: _Round) -> list[float]:
    """Return the expected reward of each arm, when it is offered alone."""
    return [policy.decide(round_.user, arm[None, :].copy()).mean for arm in round_.arms]


def _pools_with_ties(arms: FloatArray) -> Iterator[FloatArray]:
    yield np.tile(arms[:1], (7, 1))
    yield np.tile(arms[:2], (5, 1))
    yield np.tile(arms[:3], (7, 1))[:19]
    yield np.concatenate([arms, arms[::-1]])


# Forms of arrays


class _Lender:
    """Lends arrays to a policy, and overwrites each one when the next one is lent."""

    def __init__(self) -> None:
        self._lent = self._original = np.empty(0)

    def lend(self, array: FloatArray) -> FloatArray:
        self.take_back()
        self._lent, self._original = array.copy(), array
        return self._lent

    def take_back(self) -> None:
        for place in np.argwhere(self._lent != self._original)[:1]:
            original, number = self._original[tuple(place)], self._lent[tuple(place)]
            _fail(f"{original} to stay in the array passed in", number)
        self._lent[...] = 7.0


def _read_only(array: FloatArray) -> FloatArray:
    array = array.copy()
    array.flags.writeable = False
    return array


def _strided(array: FloatArray) -> FloatArray:
    """Return a view of every second number of a table in column-major order."""
    return np.repeat(array.T, 2, axis=0)[::2].T


_FORMS: tuple[tuple[str, _Give], ...] = (
    ("lists", methodcaller("tolist")),
    ("float32 arrays", methodcaller("astype", np.float32)),
    ("arrays of whole numbers", methodcaller("astype", np.int64)),
    ("strided views", _strided),
)


# Invalid input


def _bad_calls(dim: int) -> Iterator[tuple[str, Callable[[Policy], Any]]]:
    """Yield calls that must raise, each with a description of its fault."""
    context = np.ones(dim)
    for user in (NAMES[0], STRANGER):
        for what, arms in (*_bad_numbers((3, dim)), *_bad_pools(dim)):
            yield f"arms {what}", methodcaller("decide", user, arms)
        for what, bad in (*_bad_numbers((dim,)), *_bad_contexts(dim)):
            yield f"context {what}", methodcaller("learn", user, bad, 1.0)
        for what, reward in (*_bad_numbers(()), ("of an array", np.ones(1)), ("of a list", [1.0])):
            yield f"reward {what}", methodcaller("learn", user, context, reward)
    for bad in (None, 1.5, True, ["ana"]):
        yield f"user {bad!r} deciding", methodcaller("decide", bad, context[None, :])
        yield f"user {bad!r} learning", methodcaller("learn", bad, context, 1.0)


def _bad_numbers(shape: tuple[int, ...]) -> Iterator[tuple[str, Any]]:
    """Yield arrays of the right shape whose last number is invalid."""
    yield "None", None
    numbers: tuple[Any, ...] = (math.nan, math.inf, -math.inf, 1e200, "1.0", 1j, {})
    for number in numbers:
        array = np.ones(shape, dtype=np.result_type(type(number), np.float64))
        array[(-1,) * len(shape)] = number
        yield f"holding {number!r}", array if shape else number


def _bad_pools(dim: int) -> Iterator[tuple[str, Any]]:
    yield "with a feature too many", np.ones((3, dim + 1))
    yield "none at all", np.ones((0, dim))
    yield "of an empty list", []
    yield "in one dimension", np.ones(dim)
    yield "in three dimensions", np.ones((3, dim, 1))
    yield "of ragged lists", [[1.0] * dim, [1.0] * (dim + 1)]


def _bad_contexts(dim: int) -> Iterator[tuple[str, Any]]:
    yield "with a feature too many", np.ones(dim + 1)
    yield "in two dimensions", np.ones((1, dim))
    yield "of one number", 1.0
    yield "of ragged lists", [[1.0] * dim, [1.0] * (dim + 1)]


def _refusal(policy: Policy, call: Callable[[Policy], Any]) -> Exception | None:
    try:
        call(policy)
    except Exception as error:
        return error
    return None


# Expectations


def _fail(expected: str, seen: object) -> NoReturn:
    raise NonConformance(f"expected {expected}; saw {seen}")


def _expect(held: bool, expected: str, seen: object) -> None:
    if not held:
        _fail(expected, seen)


def _expect_valid(decision: Decision, user: User, arms: FloatArray) -> None:
    _expect(
        isinstance(decision, Decision)
        and decision.user == user
        and decision.arm in range(len(arms))
        and math.isfinite(decision.mean)
        and 0 <= decision.width < math.inf
        and (decision.propensity is None or 0 < decision.propensity <= 1),
        f"a Decision for {user!r} of an arm below {len(arms)}, finite mean and width ≥ 0",
        decision,
    )


def _expect_users(policy: Policy, expected: Iterable[User]) -> None:
    seen, wanted = sorted(policy.users, key=repr), sorted(expected, key=repr)
    _expect(seen == wanted, f"the users {wanted}", seen)


def _expect_sentences(warnings: object) -> None:
    sentences = isinstance(warnings, tuple) and all(
        isinstance(one, str) and one.strip() for one in warnings
    )
    _expect(sentences, "warnings in a tuple of sentences, none of them empty", repr(warnings))


def _expect_unknown(policy: Policy, user: User, arms: FloatArray) -> None:
    def decide(user: User) -> Decision:
        return policy.decide(user, arms.copy())

    asks: tuple[Callable[[User], Any], ...] = (policy.locate, decide)
    for ask in asks:
        expected = replace(ask(STRANGER), user=user)
        _expect(ask(user) == expected, f"the answer for an unknown user, {expected}", ask(user))


def _identical(a: _Step, b: _Step) -> bool:
    return a == b and np.array_equal(a[1].neighbours, b[1].neighbours)


def _rounded(a: _Step, b: _Step) -> bool:
    """Return whether two steps differ only by the user's name and by rounding."""
    same = partial(math.isclose, rel_tol=ROUNDING, abs_tol=ROUNDING)
    ours, theirs = a[0], b[0]
    return (
        ours.arm == theirs.arm and same(ours.mean, theirs.mean) and same(ours.width, theirs.width)
    )


def _expect_same(
    seen: list[_Step],
    expected: list[_Step],
    rule: str,
    *,
    alike: Callable[[_Step, _Step], bool] = _identical,
) -> None:
    for t, (step, twin) in enumerate(zip(seen, expected, strict=True)):
        if not alike(step, twin):
            _fail(rule, f"{step} instead of {twin} in round {t}")


def _expect_same_columns(
    seen: Decisions | Outcomes, expected: Decisions | Outcomes, rule: str
) -> None:
    for field in fields(expected):
        ours, theirs = (getattr(value, field.name) for value in (seen, expected))
        same = ours == theirs if isinstance(ours, tuple) else np.array_equal(ours, theirs)
        _expect(same, f"the same {field.name} {rule} one by one", f"{ours} instead of {theirs}")


@contextmanager
def _nothing_changes(
    policy: Policy, twin: Policy, part: list[_Round], *, by: str
) -> Iterator[None]:
    """Expect that the body changes neither the saved file nor the steps of `part`.

    The file is compared too, because some changes show in no decision, such as an empty record of a
    user for whom only a question was asked.
    """
    before = _bytes(policy)
    yield
    _expect(_bytes(policy) == before, f"{by} to change nothing that `save` writes", "other bytes")
    _expect_same(_play(policy, part), _play(twin, part), f"{by} to change no later step")


def _saved(policy: Policy, read: Callable[[Path], _Read]) -> _Read:
    """Save a policy, and return what `read` makes of the file."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "policy")
        policy.save(path)
        return read(path)


_bytes = partial(_saved, read=Path.read_bytes)


@contextmanager
def _traced_memory() -> Iterator[Callable[[], int]]:
    """Trace allocations; yield a function that returns the number of bytes in use."""
    was_tracing = tracemalloc.is_tracing()
    tracemalloc.start()

    def used() -> int:
        gc.collect()
        _clear_attribute_cache()
        return tracemalloc.get_traced_memory()[0]

    try:
        yield used
    finally:
        if not was_tracing:
            tracemalloc.stop()


def _clear_attribute_cache() -> None:
    """Empty the interpreter's cache of attributes.

    It grows to about 100 kB for every policy, more than the growth that is measured.
    """
    if sys.version_info >= (3, 13):
        sys._clear_internal_caches()
    else:
        sys._clear_type_cache()
