"""A small policy that keeps the contract, and variants of it that break one rule each.

A specimen is the reference policy with one or two of its methods replaced by a function with a
mistake as it occurs in real code.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from itertools import count
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dyclu.core.stats import Stats
from dyclu.errors import KindError, ShapeError
from dyclu.policies.common.batches import Decisions, Outcomes
from dyclu.policies.common.plain import WithoutGroups, WithoutSharing
from dyclu.policy import Change, Decision, Location, Model, Outcome, first_best
from dyclu.validation import FloatArray, User, as_arms, as_context, as_reward, as_user

DIM = 5


class Ridge(WithoutGroups):
    """One ridge regression per user, chosen from by upper confidence bound."""

    def __init__(self, dim: int = DIM) -> None:
        self.dim = dim
        self.kept: dict[User, Stats] = {}
        self.nothing = Stats.empty(dim)

    def decide(self, user: Hashable, arms: ArrayLike) -> Decision:
        user, arms = as_user(user), as_arms(arms, self.dim)
        means, widths = self.judge(user, arms)
        arm = first_best(means + widths)
        return Decision(user, arm, float(means[arm]), float(widths[arm]))

    def judge(self, user: User, arms: FloatArray) -> tuple[FloatArray, FloatArray]:
        stats = self.of(user)
        solved = np.linalg.solve(stats.gram + np.eye(self.dim), arms.T)
        return stats.moment @ solved, np.sqrt(np.sum(arms.T * solved, axis=0))

    def of(self, user: User) -> Stats:
        return self.kept.get(user, self.nothing)

    def learn(self, user: Hashable, context: ArrayLike, reward: Any) -> Outcome:
        user, context, reward = as_user(user), as_context(context, self.dim), as_reward(reward)
        self.kept[user] = self.of(user) + Stats.of(context, reward)
        return Outcome(user)

    @property
    def users(self) -> tuple[User, ...]:
        return tuple(user for user, stats in self.kept.items() if stats.count)

    def forget(self, user: Hashable) -> None:
        self.kept.pop(as_user(user), None)

    def save(self, path: str | PathLike[str]) -> None:
        models = self.kept.values()
        with Path(path).open("wb") as file:
            np.savez(
                file,
                users=np.array(json.dumps(list(self.kept))),
                gram=np.array([stats.gram for stats in models]),
                moment=np.array([stats.moment for stats in models]),
                energy=np.array([stats.energy for stats in models]),
                count=np.array([stats.count for stats in models], dtype=int),
            )

    def restore(self, path: Path) -> None:
        with np.load(path) as file:
            models = zip(file["gram"], file["moment"], file["energy"], file["count"], strict=True)
            users = json.loads(str(file["users"]))
        self.kept = {
            user: Stats(gram, moment, float(energy), int(count))
            for user, (gram, moment, energy, count) in zip(users, models, strict=True)
        }


@dataclass(frozen=True, slots=True)
class Specimen(WithoutSharing):
    """A ridge policy whose methods can be replaced one by one."""

    ridge: Ridge
    decide_: Callable[[Hashable, ArrayLike], Decision] | None = None
    learn_: Callable[[Hashable, ArrayLike, Any], Outcome] | None = None
    save_: Callable[[str | PathLike[str]], None] | None = None
    users_: Callable[[], tuple[User, ...]] | None = None
    changes_: Callable[[], tuple[Change, ...]] | None = None
    locate_: Callable[[Hashable], Location] | None = None
    forget_: Callable[[Hashable], None] | None = None
    warnings_: Callable[[], tuple[str, ...]] | None = None

    @property
    def dim(self) -> int:
        return self.ridge.dim

    def decide(self, user: Hashable, arms: ArrayLike) -> Decision:
        return (self.decide_ or self.ridge.decide)(user, arms)

    def learn(self, user: Hashable, context: ArrayLike, reward: Any) -> Outcome:
        return (self.learn_ or self.ridge.learn)(user, context, reward)

    def save(self, path: str | PathLike[str]) -> None:
        (self.save_ or self.ridge.save)(path)

    @property
    def users(self) -> tuple[User, ...]:
        return self.users_() if self.users_ else self.ridge.users

    @property
    def changes(self) -> tuple[Change, ...]:
        return self.changes_() if self.changes_ else self.ridge.changes

    @property
    def models(self) -> tuple[Model, ...]:
        return self.ridge.models

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.warnings_() if self.warnings_ else self.ridge.warnings

    def locate(self, user: Hashable) -> Location:
        return (self.locate_ or self.ridge.locate)(user)

    def forget(self, user: Hashable) -> None:
        (self.forget_ or self.ridge.forget)(user)


def loader(
    make: Callable[[], Specimen | Batched],
) -> Callable[[Path], Specimen | Batched]:
    """Return the function that reads back what specimens of this make have saved."""

    def load(path: Path) -> Specimen | Batched:
        specimen = make()
        specimen.ridge.restore(path)
        return specimen

    return load


def sound() -> Specimen:
    return Specimen(Ridge())


# Strangers


def knows_only_its_users() -> Specimen:
    ridge = Ridge()

    def decide(user: Hashable, arms: ArrayLike) -> Decision:
        decision = ridge.decide(user, arms)
        ridge.kept[decision.user]
        return decision

    return Specimen(ridge, decide_=decide)


def has_no_opinion_of_strangers() -> Specimen:
    ridge = Ridge()

    def decide(user: Hashable, arms: ArrayLike) -> Decision:
        decision = ridge.decide(user, arms)
        return decision if decision.user in ridge.kept else replace(decision, mean=np.nan)

    return Specimen(ridge, decide_=decide)


def takes_rewards_for_anybodys() -> Specimen:
    ridge = Ridge()

    def learn(user: Hashable, context: ArrayLike, reward: Any) -> Outcome:
        return replace(ridge.learn(user, context, reward), user="anybody")

    return Specimen(ridge, learn_=learn)


# Questions


def creates_whoever_asks() -> Specimen:
    ridge = Ridge()

    def decide(user: Hashable, arms: ArrayLike) -> Decision:
        decision = ridge.decide(user, arms)
        ridge.kept.setdefault(decision.user, Stats.empty(ridge.dim))
        return decision

    return Specimen(ridge, decide_=decide)


def draws_when_asked() -> Specimen:
    ridge, rng = Ridge(), np.random.default_rng(0)

    def decide(user: Hashable, arms: ArrayLike) -> Decision:
        decision = ridge.decide(user, arms)
        return replace(decision, width=decision.width + rng.random())

    return Specimen(ridge, decide_=decide)


def adapts_to_the_asked() -> Specimen:
    """Counts questions instead of rewards, in a state that is not even saved."""
    ridge = Ridge()
    asked: dict[User, int] = {}

    def decide(user: Hashable, arms: ArrayLike) -> Decision:
        decision = ridge.decide(user, arms)
        asked[decision.user] = asked.get(decision.user, 0) + 1
        return replace(decision, width=decision.width / asked[decision.user])

    return Specimen(ridge, decide_=decide)


def creates_a_record_when_asked_where_a_user_is() -> Specimen:
    ridge = Ridge()

    def locate(user: Hashable) -> Location:
        ridge.kept.setdefault(as_user(user), Stats.empty(ridge.dim))
        return ridge.locate(user)

    return Specimen(ridge, locate_=locate)


# Users, changes and forgetting


def lists_users_from_their_second_reward_on() -> Specimen:
    ridge = Ridge()
    return Specimen(ridge, users_=lambda: tuple(u for u in ridge.users if ridge.of(u).count > 1))


def lists_users_who_only_asked() -> Specimen:
    ridge = Ridge()
    asked: dict[User, None] = {}

    def decide(user: Hashable, arms: ArrayLike) -> Decision:
        decision = ridge.decide(user, arms)
        asked[decision.user] = None
        return decision

    def forget(user: Hashable) -> None:
        ridge.forget(user)
        asked.pop(as_user(user), None)

    return Specimen(ridge, decide_=decide, users_=lambda: (*asked,), forget_=forget)


def lists_users_up_to_their_tenth_reward() -> Specimen:
    ridge = Ridge()
    return Specimen(ridge, users_=lambda: tuple(u for u in ridge.users if ridge.of(u).count <= 10))


def _changing(record: Callable[[list[Change], Change], None]) -> Specimen:
    """Return a policy that reports a change at every user's 30th reward, and records it."""
    ridge = Ridge()
    changes: list[Change] = []

    def learn(user: Hashable, context: ArrayLike, reward: Any) -> Outcome:
        outcome = ridge.learn(user, context, reward)
        if ridge.of(outcome.user).count != 30:
            return outcome
        time = sum(stats.count for stats in ridge.kept.values())
        record(changes, Change(outcome.user, time, before=0, after=1))
        return replace(outcome, changed=True)

    def forget(user: Hashable) -> None:
        ridge.forget(user)
        changes[:] = [change for change in changes if change.user != user]

    return Specimen(ridge, learn_=learn, changes_=lambda: tuple(changes), forget_=forget)


def records_its_changes() -> Specimen:
    return _changing(list.append)


def records_only_the_latest_change() -> Specimen:
    def record(changes: list[Change], change: Change) -> None:
        changes[:] = [change]

    return _changing(record)


def records_changes_one_reward_late() -> Specimen:
    return _changing(lambda changes, change: changes.append(replace(change, at=change.at + 1)))


def records_the_latest_change_first() -> Specimen:
    return _changing(lambda changes, change: changes.insert(0, change))


def forgets_nobody() -> Specimen:
    return Specimen(Ridge(), forget_=lambda user: None)


def forgets_everybody() -> Specimen:
    ridge = Ridge()
    return Specimen(ridge, forget_=lambda user: ridge.kept.clear() if user in ridge.kept else None)


def forgets_only_the_name() -> Specimen:
    """Lists a forgotten user no more, but still decides with their observations."""
    ridge = Ridge()
    hidden: set[Hashable] = set()

    def learn(user: Hashable, context: ArrayLike, reward: Any) -> Outcome:
        outcome = ridge.learn(user, context, reward)
        hidden.discard(user)
        return outcome

    return Specimen(
        ridge,
        learn_=learn,
        users_=lambda: tuple(user for user in ridge.users if user not in hidden),
        forget_=hidden.add,
    )


def keeps_the_changes_of_forgotten_users() -> Specimen:
    specimen = records_its_changes()
    return replace(specimen, forget_=specimen.ridge.forget)


def fails_to_forget_an_unknown_user() -> Specimen:
    ridge = Ridge()

    def forget(user: Hashable) -> None:
        del ridge.kept[as_user(user)]

    return Specimen(ridge, forget_=forget)


# Warnings


def warns() -> Specimen:
    ridge = Ridge()
    return Specimen(ridge, warnings_=lambda: ("Few users, expected more.",) * len(ridge.kept))


def warns_in_a_list() -> Specimen:
    return Specimen(Ridge(), warnings_=lambda: [])  # type: ignore[arg-type, return-value]


def warns_of_nothing() -> Specimen:
    """Has an empty sentence where it should have none."""
    ridge = Ridge()
    return Specimen(ridge, warnings_=lambda: ("" if len(ridge.users) > 1 else "Too few users.",))


def warns_by_number() -> Specimen:
    return Specimen(Ridge(), warnings_=lambda: (17,))  # type: ignore[arg-type, return-value]


def learns_when_asked_for_warnings() -> Specimen:
    ridge = Ridge()

    def warnings() -> tuple[str, ...]:
        ridge.kept = {user: stats + stats for user, stats in ridge.kept.items()}
        return ()

    return Specimen(ridge, warnings_=warnings)


# Repeatability


def unseeded() -> Callable[[], Specimen]:
    """Return a make whose policies are each seeded differently, as by the clock."""
    clock = count()

    def make() -> Specimen:
        ridge, seed = Ridge(), next(clock)

        def decide(user: Hashable, arms: ArrayLike) -> Decision:
            decision = ridge.decide(user, arms)
            jitter = np.random.default_rng([seed, ridge.of(decision.user).count]).random()
            return replace(decision, width=decision.width + jitter)

        return Specimen(ridge, decide_=decide)

    return make


# Names


def favours_the_first_in_the_alphabet() -> Specimen:
    ridge = Ridge()

    def decide(user: Hashable, arms: ArrayLike) -> Decision:
        first = min(ridge.kept, key=str, default=None)
        return replace(ridge.decide(user if first is None else first, arms), user=as_user(user))

    return Specimen(ridge, decide_=decide)


def takes_names_for_text() -> Specimen:
    ridge = Ridge()

    def decide(user: Hashable, arms: ArrayLike) -> Decision:
        return replace(ridge.decide(str(as_user(user)), arms), user=as_user(user))

    def learn(user: Hashable, context: ArrayLike, reward: Any) -> Outcome:
        return replace(ridge.learn(str(as_user(user)), context, reward), user=as_user(user))

    return Specimen(ridge, decide_=decide, learn_=learn)


def answers_about_text() -> Specimen:
    ridge = Ridge()

    def decide(user: Hashable, arms: ArrayLike) -> Decision:
        decision = ridge.decide(user, arms)
        return replace(decision, user=f"{decision.user}".rstrip("\x00"))

    return Specimen(ridge, decide_=decide)


# Arrays


def keeps_the_context() -> Specimen:
    """Adds an observation up only when the next one comes, from the array it was given."""
    ridge = Ridge()
    waiting: deque[tuple[Hashable, ArrayLike, Any]] = deque()

    def settle() -> None:
        while waiting:
            ridge.learn(*waiting.popleft())

    def decide(user: Hashable, arms: ArrayLike) -> Decision:
        settle()
        return ridge.decide(user, arms)

    def learn(user: Hashable, context: ArrayLike, reward: Any) -> Outcome:
        settle()
        Ridge().learn(user, context, reward)  # refuses what is bad
        waiting.append((user, context, reward))
        return Outcome(as_user(user))

    def save(path: str | PathLike[str]) -> None:
        settle()
        ridge.save(path)

    def users() -> tuple[User, ...]:
        settle()
        return ridge.users

    return Specimen(ridge, decide_=decide, learn_=learn, save_=save, users_=users)


def scales_the_arms_in_place() -> Specimen:
    ridge = Ridge()

    def decide(user: Hashable, arms: ArrayLike) -> Decision:
        decision = ridge.decide(user, arms)
        if isinstance(arms, np.ndarray):
            arms *= 2
        return decision

    return Specimen(ridge, decide_=decide)


def needs_to_write() -> Specimen:
    ridge = Ridge()

    def learn(user: Hashable, context: ArrayLike, reward: Any) -> Outcome:
        if isinstance(context, np.ndarray) and not context.flags.writeable:
            raise KindError("context is read-only, expected one that can be written to")
        return ridge.learn(user, context, reward)

    return Specimen(ridge, learn_=learn)


def wants_arrays() -> Specimen:
    ridge = Ridge()

    def decide(user: Hashable, arms: ArrayLike) -> Decision:
        if not isinstance(arms, np.ndarray):
            raise KindError("arms are a list, expected an array")
        return ridge.decide(user, arms)

    return Specimen(ridge, decide_=decide)


def halves_into_an_array_like_it() -> Specimen:
    """Computes in an array of the caller's own type, which cuts halves of whole numbers."""
    ridge = Ridge()

    def learn(user: Hashable, context: ArrayLike, reward: Any) -> Outcome:
        as_context(context, ridge.dim)
        halved = np.empty_like(np.asarray(context))
        np.divide(context, 2, out=halved, casting="unsafe")
        return ridge.learn(user, halved, reward)

    return Specimen(ridge, learn_=learn)


def divides_in_single_precision() -> Specimen:
    """Computes with float32 what came as float32, and rounds where float64 would not."""
    ridge = Ridge()

    def learn(user: Hashable, context: ArrayLike, reward: Any) -> Outcome:
        as_context(context, ridge.dim)
        return ridge.learn(user, np.asarray(context) / 3, reward)

    return Specimen(ridge, learn_=learn)


def reads_memory_in_order() -> Specimen:
    """Takes the arms for C-contiguous, as compiled code that never looks at strides does."""
    ridge = Ridge()

    def decide(user: Hashable, arms: ArrayLike) -> Decision:
        table = as_arms(arms, ridge.dim)
        if isinstance(arms, np.ndarray) and not arms.flags.c_contiguous:
            table = arms.astype(np.float64).ravel(order="K").reshape(table.shape)
        return ridge.decide(user, table)

    return Specimen(ridge, decide_=decide)


# Bad input


def swallows_nan() -> Specimen:
    ridge = Ridge()

    def learn(user: Hashable, context: ArrayLike, reward: Any) -> Outcome:
        if isinstance(reward, float) and np.isnan(reward):
            reward = 0.0
        return ridge.learn(user, context, reward)

    return Specimen(ridge, learn_=learn)


def lets_numpy_complain() -> Specimen:
    ridge = Ridge()

    def decide(user: Hashable, arms: ArrayLike) -> Decision:
        try:
            return ridge.decide(user, arms)
        except ShapeError:
            raise ValueError("operands could not be broadcast together") from None

    return Specimen(ridge, decide_=decide)


def serves_nobody() -> Specimen:
    ridge = Ridge()

    def decide(user: Hashable, arms: ArrayLike) -> Decision:
        return ridge.decide("nobody" if user is None else user, arms)

    return Specimen(ridge, decide_=decide)


def learns_before_it_refuses() -> Specimen:
    ridge = Ridge()

    def learn(user: Hashable, context: ArrayLike, reward: Any) -> Outcome:
        user, context = as_user(user), as_context(context, ridge.dim)
        old = ridge.of(user)
        ridge.kept[user] = replace(old, gram=old.gram + np.outer(context, context))
        ridge.kept[user] = old + Stats.of(context, as_reward(reward))
        return Outcome(user)

    return Specimen(ridge, learn_=learn)


def registers_before_it_refuses() -> Specimen:
    ridge = Ridge()

    def learn(user: Hashable, context: ArrayLike, reward: Any) -> Outcome:
        ridge.kept.setdefault(as_user(user), Stats.empty(ridge.dim))
        return ridge.learn(user, context, reward)

    return Specimen(ridge, learn_=learn)


# Pools


def takes_the_last_of_ties() -> Specimen:
    ridge = Ridge()

    def decide(user: Hashable, arms: ArrayLike) -> Decision:
        table = as_arms(arms, ridge.dim)
        backwards = ridge.decide(user, table[::-1])
        return replace(backwards, arm=len(table) - 1 - backwards.arm)

    return Specimen(ridge, decide_=decide)


def holds_twenty_arms() -> Specimen:
    ridge = Ridge()

    def decide(user: Hashable, arms: ArrayLike) -> Decision:
        buffer = np.empty((20, ridge.dim))
        table = as_arms(arms, ridge.dim)
        buffer[: len(table)] = table
        return ridge.decide(user, buffer[: len(table)])

    return Specimen(ridge, decide_=decide)


def points_past_the_pool() -> Specimen:
    """Counts arms from the end as soon as there are more than twenty."""
    ridge = Ridge()

    def decide(user: Hashable, arms: ArrayLike) -> Decision:
        decision = ridge.decide(user, arms)
        table = as_arms(arms, ridge.dim)
        return decision if len(table) <= 20 else replace(decision, arm=decision.arm - len(table))

    return Specimen(ridge, decide_=decide)


def fixes_the_number_of_arms() -> Specimen:
    ridge = Ridge()
    sizes: set[int] = set()

    def decide(user: Hashable, arms: ArrayLike) -> Decision:
        sizes.add(len(as_arms(arms, ridge.dim)))
        if len(sizes) > 1:
            raise ShapeError(f"arms are of {sizes} rows, expected as many as the first time")
        return ridge.decide(user, arms)

    return Specimen(ridge, decide_=decide)


# Estimates and memory


def forgets() -> Specimen:
    ridge = Ridge()

    def learn(user: Hashable, context: ArrayLike, reward: Any) -> Outcome:
        outcome = ridge.learn(user, context, reward)
        kept = ridge.of(outcome.user)
        ridge.kept[outcome.user] = replace(
            kept, gram=0.99 * kept.gram, moment=0.99 * kept.moment, energy=0.99 * kept.energy
        )
        return outcome

    return Specimen(ridge, learn_=learn)


def takes_zeros_for_ones() -> Specimen:
    ridge = Ridge()

    def learn(user: Hashable, context: ArrayLike, reward: Any) -> Outcome:
        x = as_context(context, ridge.dim)
        return ridge.learn(user, x if x.any() else np.ones(ridge.dim), reward)

    return Specimen(ridge, learn_=learn)


def goes_beyond_the_reward_of_zeros() -> Specimen:
    ridge, shift = Ridge(), [0.0]

    def decide(user: Hashable, arms: ArrayLike) -> Decision:
        found = ridge.decide(user, arms)
        return replace(found, mean=found.mean + shift[0])

    def learn(user: Hashable, context: ArrayLike, reward: Any) -> Outcome:
        if not as_context(context, ridge.dim).any():
            shift[0] += 3.0 * (as_reward(reward) - shift[0])
        return ridge.learn(user, context, reward)

    return Specimen(ridge, decide_=decide, learn_=learn)


def hoards() -> Specimen:
    ridge = Ridge()
    history: list[tuple[FloatArray, float]] = []

    def learn(user: Hashable, context: ArrayLike, reward: Any) -> Outcome:
        outcome = ridge.learn(user, context, reward)
        history.append((as_context(context, ridge.dim), reward))
        return outcome

    return Specimen(ridge, learn_=learn)


def hoards_as_bare_bytes() -> Specimen:
    """Keeps every observation in the least memory there is."""
    ridge = Ridge()
    history = bytearray()

    def learn(user: Hashable, context: ArrayLike, reward: Any) -> Outcome:
        outcome = ridge.learn(user, context, reward)
        history.extend(np.append(as_context(context, ridge.dim), reward).tobytes())
        return outcome

    return Specimen(ridge, learn_=learn)


# Files


def saves_single_precision() -> Specimen:
    ridge = Ridge()

    def save(path: str | PathLike[str]) -> None:
        rounded = Ridge()
        rounded.kept = {
            user: replace(stats, moment=stats.moment.astype(np.float32).astype(np.float64))
            for user, stats in ridge.kept.items()
        }
        rounded.save(path)

    return Specimen(ridge, save_=save)


def saves_no_clock() -> Specimen:
    """Explores less the longer it runs, and forgets to save for how long it has."""
    ridge, age = Ridge(), 1

    def decide(user: Hashable, arms: ArrayLike) -> Decision:
        decision = ridge.decide(user, arms)
        return replace(decision, width=decision.width / age)

    def learn(user: Hashable, context: ArrayLike, reward: Any) -> Outcome:
        nonlocal age
        outcome = ridge.learn(user, context, reward)
        age += 1
        return outcome

    return Specimen(ridge, decide_=decide, learn_=learn)


def forgets_when_saved() -> Specimen:
    """Empties itself into the file, as a buffer that is flushed."""
    ridge = Ridge()

    def save(path: str | PathLike[str]) -> None:
        ridge.save(path)
        ridge.kept = dict(list(ridge.kept.items())[:-1])

    return Specimen(ridge, save_=save)


# Batches


class Batched(Ridge):
    """The reference policy, serving batches in a way of its own."""

    def __init__(self, decide_many: Any, learn_many: Any) -> None:
        Ridge.__init__(self)
        self._decide_many, self._learn_many = decide_many, learn_many

    @property
    def ridge(self) -> Ridge:
        return self

    def decide_many(self, users: Any, arms: Any) -> Decisions:
        return Decisions.of(self._decide_many(self, users, arms))

    def learn_many(self, users: Any, contexts: Any, rewards: Any) -> Outcomes:
        return Outcomes.of(self._learn_many(self, users, contexts, rewards))


def _in_turn(ridge: Ridge, users: Any, arms: Any) -> Any:
    return [*map(ridge.decide, users, arms)]


def learns_half_of_a_bad_batch() -> Batched:
    return Batched(_in_turn, lambda ridge, *batch: [*map(ridge.learn, *batch)])


def averages_a_batch() -> Batched:
    def learn_many(ridge: Ridge, users: Any, contexts: Any, rewards: Any) -> Any:
        rewards = [as_reward(reward) for reward in rewards]
        return [*map(ridge.learn, users, contexts, [np.mean(rewards)] * len(rewards))]

    return Batched(_in_turn, learn_many)


def asks_for_the_first_user_only() -> Batched:
    def learn_many(ridge: Ridge, users: Any, contexts: Any, rewards: Any) -> Any:
        return [*map(ridge.learn, users, contexts, [as_reward(reward) for reward in rewards])]

    return Batched(
        lambda ridge, users, arms: [ridge.decide(users[0], table) for table in arms], learn_many
    )
