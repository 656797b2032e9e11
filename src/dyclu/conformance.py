"""The contract of a policy, as checks anyone can run on their own.

A policy is more than two verbs that type-check: a report, a service or a simulation relies on
questions changing nothing, on refused input leaving no trace, on a saved policy going on as if
nothing had happened. Each of these rules is one function here, and its docstring is the rule.

`check_policy` runs them all on simulated users of two opposite tastes, who swap tastes halfway, so
that whatever a policy does about resemblance and change is exercised too. It wants a function that
makes a fresh policy of the same configuration, and the same seed, each time:

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
from typing import Any, NoReturn, ParamSpec

import numpy as np

from dyclu import policies
from dyclu.errors import DycluError
from dyclu.policies.common.batches import BatchPolicy, Decisions, Outcomes
from dyclu.policy import Decision, Outcome, Policy
from dyclu.validation import FloatArray, User

Make = Callable[[], Policy]
Load = Callable[[Path], Policy]
Check = Callable[[Make], None]
_Options = ParamSpec("_Options")

ROUNDS = 160
"""Length of a simulated stream: 40 rounds for each of four users, 20 on either side of the swap."""

ROUNDING = 1e-9
"""Relative difference up to which two numbers are the same but for the order of additions."""

NAMES: tuple[User, ...] = ("ana", "ben", "cem", "dua")
RENAMED: tuple[tuple[User, ...], ...] = (
    ("dua", "cem", "ben", "ana"),
    (-1, -2, 0, 2**70),
    (1, "1", "", "0"),
    ("\u00e9", "e\u0301", "名", "a\x00"),
)
"""Names that are easily confused: reversed order, equal hashes, equal text, equal glyphs."""

STRANGER = "somebody never seen"


class NonConformance(AssertionError):  # noqa: N818 - reads as what it is
    """A policy that breaks its contract.

    Attributes
    ----------
    checks : tuple of str
        Names of the checks that failed.
    """

    def __init__(self, message: str, *, checks: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.checks = tuple(checks)


def check_policy(make: Make, *, load: Load | None = None) -> None:
    """Run every check, and report all that failed at once.

    Parameters
    ----------
    make : callable
        Makes a fresh policy, of the same configuration and seed each time.
    load : callable, optional
        Reads back what the policy's `save` wrote; `dyclu.load` if not given.

    Raises
    ------
    NonConformance
        Naming each failed check, what it expected and what it saw.
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
    """Let a check's failure bear its name, and count an exception of the policy as one."""
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

    return run


# The rules


@_rule
def check_strangers_are_served(make: Make) -> None:
    """A user never seen gets a valid decision, and their first reward is taken in.

    Everybody is a stranger once, and whoever serves users cannot ask first whether one is known.
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
    """Questions leave no trace, however many, however often, whoever for.

    A dashboard, a retry or a look ahead may ask at any time without steering what comes next.
    """
    policy, twin = make(), make()
    for part in _halves(_stream(policy.dim)):
        with _nothing_changes(policy, twin, part, by="questions"):
            for round_ in part:
                for user in (round_.user, STRANGER, round_.user):
                    policy.decide(user, round_.arms.copy())


@_rule
def check_same_stream_same_arms(make: Make) -> None:
    """Two policies made alike and fed alike decide alike.

    Without it no run can be repeated, and no difference between two runs explained.
    """
    stream = _stream(make().dim)
    _expect_same(_play(make(), stream), _play(make(), stream), "two fresh policies to agree")


@_rule
def check_user_names_are_opaque(make: Make) -> None:
    """Calling users by other names changes nothing but the names.

    A name that sorts, hashes or prints differently says nothing about what its bearer likes.
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
    """No array given in is changed, nor still read after the call.

    Callers reuse their buffers, and share read-only views of them.
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
    """Lists, float32, whole numbers and strided views count as the float64 array of their values.

    Feature tables come from many places; how they lie in memory is nobody's intention.
    """
    dim = make().dim
    # Small whole numbers are the same number in every one of these forms; −0.0 is 0 too.
    stream = [replace(round_, arms=np.rint(4 * round_.arms)) for round_ in _stream(dim)]
    expected = _play(make(), stream)
    for form, give in _FORMS:
        seen = _play(make(), stream, give=give)
        _expect_same(seen, expected, f"{form} to do as well as float64 arrays", alike=_rounded)


@_rule
def check_bad_input_is_refused(make: Make) -> None:
    """What nothing can be learnt from raises a DycluError that is a ValueError or a TypeError.

    A NaN let in is found weeks later in everybody's estimates; and a caller must be able to catch
    the library's own refusals without catching its defects.
    """
    seen = []
    for what, call in _bad_calls(make().dim):
        error = _refusal(make(), call)
        if not (isinstance(error, DycluError) and isinstance(error, ValueError | TypeError)):
            seen.append(f"{what} {'accepted' if error is None else f'raise {error!r}'}")
    # The same for a known user and a stranger: once is enough.
    told = ", ".join(dict.fromkeys(seen))
    _expect(not seen, "a DycluError that is a ValueError or a TypeError", told)


@_rule
def check_refused_input_changes_nothing(make: Make) -> None:
    """Input that raises leaves no trace, not even a new user.

    Whoever catches the error and goes on must not go on with half an observation.
    """
    policy, twin = make(), make()
    for part in _halves(_stream(policy.dim)):
        with _nothing_changes(policy, twin, part, by="refused input"):
            for _, call in _bad_calls(policy.dim):
                # What is not refused at all is the business of `check_bad_input_is_refused`.
                if _refusal(make(), call):
                    _refusal(policy, call)


@_rule
def check_first_of_ties_is_taken(make: Make) -> None:
    """Of arms with identical features the first is taken, wherever they stand.

    Otherwise rounding decides, which differs between machines, and with it every run.
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
    """Any number of arms may be offered, another one each round.

    What is on offer today is decided by the shelf, not by the policy.
    """
    policy = make()
    stream = _stream(policy.dim, sizes=[*range(1, 31), *range(30, 0, -1)])
    for (decision, _), round_ in zip(_play(policy, stream), stream, strict=True):
        _expect_valid(decision, round_.user, round_.arms)


@_rule
def check_zero_context_moves_no_estimate(make: Make) -> None:
    """The reward of a context of zeros, which no linear taste explains, moves no expected reward.

    It is what an arm without features looks like, and must not pass for news about the others.
    """
    policy = make()
    stream = _stream(policy.dim, names=NAMES[:1], swap=False)
    _play(policy, stream)
    before = _means(policy, stream[0])
    tolerance = ROUNDING * max(map(abs, before))
    for reward in (1.0, -1.0, 0.5):
        policy.learn(NAMES[0], np.zeros(policy.dim), reward)
        for mean, new in zip(before, _means(policy, stream[0]), strict=True):
            _expect(abs(new - mean) <= tolerance, f"an arm's mean to stay {mean}", new)


@_rule
def check_memory_is_bounded(make: Make) -> None:
    """Users who do not change cost no more memory the longer they live.

    A service runs for years. Keeping anything of every round takes 8 bytes a round at least; half
    of that is allowed, for what has nothing to do with rounds.
    """
    stream = _stream(make().dim, names=NAMES[:2], swap=False)
    first, rest = _halves(stream)
    with _traced_memory() as used:
        policy = make()
        _serve(policy, first)
        before = used()
        _serve(policy, rest)
        growth = (used() - before) / len(rest)
    _expect(growth < 4, "less than 4 bytes more a round", f"{growth:.0f}")


@_rule
def check_saved_policy_continues(make: Make, *, load: Load = policies.load) -> None:
    """A policy read back from its file goes on bit for bit, and so does the one that wrote it.

    A restart must be invisible, to the users and to whoever replays the log.
    """
    policy, twin = make(), make()
    stream = _stream(policy.dim, names=RENAMED[-1])
    # Just after the swap: changes are suspected, and not yet decided on.
    cut = len(stream) // 2 + 2 * len(NAMES)
    for part in (stream[:cut], stream[cut:]):
        loaded = _reloaded(policy, load)
        expected = _play(twin, part)
        _expect_same(_play(loaded, part), expected, "the loaded policy to go on as one never saved")
        _expect_same(_play(policy, part), expected, "the saved policy to go on as one never saved")
        # What only people look at, such as when somebody changed, shows in no step.
        _expect(_saved(loaded) == _saved(twin), "the loaded policy to save the same", "other bytes")


@_rule
def check_batches_equal_single_calls(make: Make) -> None:
    """Where a policy serves batches, they answer and teach what single calls would; or not at all.

    Whoever turns a loop into a batch changes how long it takes, and nothing else. A policy without
    `decide_many` and `learn_many` has nothing to show here.
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
        spoilt = [*rewards[:-1], math.nan]
        error = _refusal(policy, partial(_learn_many, users, chosen, spoilt))
        _expect(isinstance(error, DycluError), "a DycluError for a NaN at the end", repr(error))
        outcomes = Outcomes.of(map(twin.learn, users, chosen, rewards))
        _expect_same_columns(policy.learn_many(users, chosen, rewards), outcomes, "as learn")
    _expect(_saved(policy) == _saved(twin), "the same policy after the last batch", "another")


CHECKS: tuple[Check, ...] = (
    check_strangers_are_served,
    check_decide_changes_nothing,
    check_same_stream_same_arms,
    check_user_names_are_opaque,
    check_arrays_are_left_alone,
    check_numbers_come_in_any_form,
    check_bad_input_is_refused,
    check_refused_input_changes_nothing,
    check_first_of_ties_is_taken,
    check_number_of_arms_may_vary,
    check_zero_context_moves_no_estimate,
    check_memory_is_bounded,
    check_saved_policy_continues,
    check_batches_equal_single_calls,
)
"""The contract: every check, in the order `check_policy` runs them."""


# The simulated users


@dataclass(frozen=True, slots=True)
class _Round:
    """Who comes, what is on offer, and what each arm would pay."""

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
    """Return the rounds of users who come in turn, neighbours in `names` having opposite tastes."""
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


def _learn_many(users: list[User], contexts: Any, rewards: Any, policy: Any) -> None:
    policy.learn_many(users, contexts, rewards)


def _blocks(stream: list[_Round], *, size: int) -> Iterator[list[_Round]]:
    for start in range(0, len(stream), size):
        yield stream[start : start + size]


def _halves(stream: list[_Round]) -> tuple[list[_Round], list[_Round]]:
    return stream[: len(stream) // 2], stream[len(stream) // 2 :]


_Step = tuple[Decision, Outcome]
_Give = Callable[[FloatArray], Any]


def _play(policy: Policy, stream: list[_Round], *, give: _Give = np.copy) -> list[_Step]:
    """Let the policy serve the stream; `give` makes what it is handed of an array."""
    steps = []
    for round_ in stream:
        decision = policy.decide(round_.user, give(round_.arms))
        reward = float(round_.rewards[decision.arm])
        steps.append((decision, policy.learn(round_.user, give(round_.arms[decision.arm]), reward)))
    return steps


def _serve(policy: Policy, stream: list[_Round]) -> None:
    """Play the stream and keep nothing of it, not even until its end."""
    for round_ in stream:
        _play(policy, [round_])


def _means(policy: Policy, round_: _Round) -> list[float]:
    """Return what the policy expects of each arm, offered alone."""
    return [policy.decide(round_.user, arm[None, :].copy()).mean for arm in round_.arms]


def _pools_with_ties(arms: FloatArray) -> Iterator[FloatArray]:
    yield np.tile(arms[:1], (7, 1))
    yield np.tile(arms[:2], (5, 1))
    yield np.tile(arms[:3], (7, 1))[:19]
    yield np.concatenate([arms, arms[::-1]])


# The forms an array can come in


class _Lender:
    """Lends arrays, and overwrites each as soon as the next one is asked for."""

    def __init__(self) -> None:
        self._lent = self._original = np.empty(0)

    def lend(self, array: FloatArray) -> FloatArray:
        self.take_back()
        self._lent, self._original = array.copy(), array
        return self._lent

    def take_back(self) -> None:
        for place in np.argwhere(self._lent != self._original)[:1]:
            original, number = self._original[tuple(place)], self._lent[tuple(place)]
            _fail(f"{original} left in the array given in", number)
        self._lent[...] = 7.0


def _read_only(array: FloatArray) -> FloatArray:
    array = array.copy()
    array.flags.writeable = False
    return array


def _strided(array: FloatArray) -> FloatArray:
    """Return a view of every other number of a table that runs down the columns first."""
    return np.repeat(array.T, 2, axis=0)[::2].T


_FORMS: tuple[tuple[str, _Give], ...] = (
    ("lists", methodcaller("tolist")),
    ("float32 arrays", methodcaller("astype", np.float32)),
    ("arrays of whole numbers", methodcaller("astype", np.int64)),
    ("strided views", _strided),
)


# What must be refused


def _bad_calls(dim: int) -> Iterator[tuple[str, Callable[[Policy], Any]]]:
    """Yield calls that must raise, each with what is wrong about it."""
    context = np.ones(dim)
    for user in (NAMES[0], STRANGER):
        for what, arms in (*_bad_numbers((3, dim)), *_bad_pools(dim)):
            yield f"arms {what}", methodcaller("decide", user, arms)
        for what, bad in (*_bad_numbers((dim,)), *_bad_contexts(dim)):
            yield f"context {what}", methodcaller("learn", user, bad, 1.0)
        for what, reward in (*_bad_numbers(()), ("of an array", np.ones(1)), ("of a list", [1.0])):
            yield f"reward {what}", methodcaller("learn", user, context, reward)
    for nobody in (None, 1.5, True, ["ana"]):
        yield f"user {nobody!r} deciding", methodcaller("decide", nobody, context[None, :])
        yield f"user {nobody!r} learning", methodcaller("learn", nobody, context, 1.0)


def _bad_numbers(shape: tuple[int, ...]) -> Iterator[tuple[str, Any]]:
    """Yield arrays of the right shape whose last number is none to learn from."""
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


# Expecting


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
        and 0 <= decision.width < math.inf,
        f"a Decision for {user!r} of an arm below {len(arms)}, finite mean and width ≥ 0",
        decision,
    )


def _identical(a: _Step, b: _Step) -> bool:
    return a == b and np.array_equal(a[1].neighbours, b[1].neighbours)


def _rounded(a: _Step, b: _Step) -> bool:
    """Tell whether two steps are the same but for the user's name and rounding."""
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
    """Expect what is done inside to alter neither what `save` writes nor how `part` is served.

    Decisions alone would not tell: an empty record of somebody who only asked is a leak that no
    decision shows.
    """
    before = _saved(policy)
    yield
    _expect(_saved(policy) == before, f"{by} to change nothing that `save` writes", "other bytes")
    _expect_same(_play(policy, part), _play(twin, part), f"{by} to change no later step")


def _saved(policy: Policy) -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder, "policy")
        policy.save(path)
        return path.read_bytes()


def _reloaded(policy: Policy, load: Load) -> Policy:
    with TemporaryDirectory() as folder:
        path = Path(folder, "policy")
        policy.save(path)
        return load(path)


@contextmanager
def _traced_memory() -> Iterator[Callable[[], int]]:
    """Trace allocations from here on; yields how many bytes of them are in use."""
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
    """Empty the interpreter's cache of attributes, which keeps some of the names looked up alive.

    It grows to some 100 kB whatever the policy does, and would drown what is measured.
    """
    if sys.version_info >= (3, 13):
        sys._clear_internal_caches()
    else:
        sys._clear_type_cache()
