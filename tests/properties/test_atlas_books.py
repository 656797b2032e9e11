"""Atlas's models hold exactly what users have contributed, after every reward and `forget`.

`Ledger` keeps books of its own: the raw rewards of every segment, and what models hold beyond the
segments of users in doubt. Models, segments and memories must agree with it after every step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import dyclu
from dyclu import Atlas, kernels
from dyclu.policies.atlas import upkeep
from dyclu.policies.atlas.tastes import NEW
from dyclu.policies.atlas.users import CAPACITIES, IN_DOUBT, LOCATED, NONE
from dyclu.policies.common import panel
from dyclu.validation import FloatArray, User

NAMES = "abcdefghij"
TOLERANCE = 1e-8
"""Of sums, by the largest that were ever added: every step adds and takes out again, so that
rounding errors of some hundred steps add up."""


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Change constants so that rare events are frequent in short runs."""
    monkeypatch.setattr(panel, "PANEL", 7)
    monkeypatch.setattr(upkeep, "MOST_MODELS", 4)
    monkeypatch.setattr(upkeep, "GROWTH", 1.01)


@dataclass
class Sums:
    """``Σ w zzᵀ``, ``Σ w zy`` and ``Σ w``-like counts of some rewards."""

    gram: FloatArray
    moment: FloatArray
    count: float = 0.0

    @classmethod
    def empty(cls, p: int) -> Sums:
        return cls(np.zeros((p, p)), np.zeros(p))

    def add(self, z: FloatArray, y: float, weight: float, count: float) -> None:
        self.gram = self.gram + weight * np.outer(z, z)
        self.moment = self.moment + weight * y * z
        self.count += count

    def plus(self, other: Sums, share: float, scale: float) -> Sums:
        return Sums(
            self.gram + share * scale * other.gram,
            self.moment + share * scale * other.moment,
            self.count + share * other.count,
        )


@dataclass
class Ledger:
    """Raw rewards of the segments, and what models hold beyond the segments of users in doubt.

    `entries` are, by row of a user, the rewards of the present segment as ``(z, y, weight, credit,
    share)``; the last two are those with which the home model holds them. `rest` is by row of a
    model.
    """

    policy: Atlas
    entries: dict[int, list[tuple[FloatArray, float, float, float, float]]] = field(
        default_factory=dict
    )
    rest: dict[int, Sums] = field(default_factory=dict)
    largest: float = 0.0
    seen: Counter[str] = field(default_factory=Counter)

    def observed_again(self, row: int) -> None:
        """Note that the memory of a user in doubt, a whole segment, has other responses now."""
        users, d = self.policy._inference.users, self.policy.dim
        block = users.memory(row)[: int(users.length[row]), d:]
        self.entries[row] = [
            (z, float(now[kernels.memory.RESPONSE]), float(now[kernels.memory.WEIGHT]), 0.0, 0.0)
            for (z, *_), now in zip(self.entries[row], block, strict=True)
        ]

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Note every event that moves rewards, by what goes into it."""
        inference, chores, users = (
            self.policy._inference, self.policy._upkeep, self.policy._inference.users,
        )  # fmt: skip
        d, column = self.policy.dim, kernels.ledger

        def number(user: FloatArray) -> int:
            """Return the row of a user, given the ledger's row that a kernel was given."""
            offset = user.__array_interface__["data"][0] - users.ledger.ctypes.data
            return int(offset // users.ledger.strides[0])

        doubt, follow = kernels.atlas.learn_in_doubt, kernels.atlas.learn_located

        def learn_in_doubt(*args: Any) -> Any:
            result, (user, block) = doubt(*args), args[9:11]
            z, last = np.append(args[12], 1.0), int(user[column.LENGTH]) - 1
            weight, y = (
                float(block[last, d + kernels.memory.WEIGHT]),
                float(block[last, d + kernels.memory.RESPONSE]),
            )
            self.entries.setdefault(number(user), []).append((z, y, weight, 0.0, 0.0))
            return result

        def learn_located(*args: Any) -> Any:
            user, block, stream = args[9:12]
            noise, home = kernels.ledger.user_variance(user, stream), int(user[column.HOME])
            result = follow(*args)
            z, last = np.append(args[12], 1.0), int(user[column.LENGTH]) - 1
            weight, credit = (
                block[last, d + kernels.memory.WEIGHT],
                block[last, d + kernels.memory.CREDIT],
            )
            y = float(block[last, d + kernels.memory.RESPONSE])
            entry = (z, y, float(weight), float(credit), float(credit * noise / weight))
            self.entries.setdefault(number(user), []).append(entry)
            self.held(home).add(z, y, credit, entry[4])
            return result

        split, locate, forget = inference._split, inference._locate, inference.forget
        merge, close = chores._merge, chores._close

        def _split(row: int, cut: int) -> None:
            kept = int(users.length[row]) - cut
            if users.status[row] == LOCATED:
                self.take_out(row, kept)
            else:
                ended = self.total(self.entries[row][: len(self.entries[row]) - kept])
                for model, chance in self.shares(row):
                    self.rest[model] = self.held(model).plus(ended, chance, users.holding[row])
            self.seen["split in doubt" if users.status[row] == IN_DOUBT else "split located"] += 1
            self.entries[row] = [
                (*entry[:3], 0.0, 0.0) for entry in self.entries[row][-kept:] if kept
            ]
            split(row, cut)
            self.observed_again(row)  # no longer by the old taste
            today = kernels.ledger.user_variance(users.ledger[row], inference.population.stream)
            assert users.status[row] == LOCATED or users.holding[row] == 1.0 / today

        expand = inference.expand_again

        def expand_again(row: int) -> None:
            expand(row)
            if users.held(row) <= users.length[row] == len(self.entries[row]):
                self.seen["expanded again"] += self.policy._inference.population.binary
                self.observed_again(row)

        def _locate(row: int, model: int) -> None:
            scale = users.holding[row]
            self.rest[model] = self.held(model).plus(self.total(self.entries[row]), 1.0, scale)
            self.entries[row] = [
                (z, y, weight, scale * weight, 1.0) for z, y, weight, _, _ in self.entries[row]
            ]
            self.seen["located"] += 1
            locate(row, model)

        def _forget(row: int) -> None:
            self.seen["forgotten in doubt" if users.status[row] == IN_DOUBT else "forgotten"] += 1
            if users.status[row] == LOCATED:
                self.take_out(row, int(users.length[row]))
            self.entries.pop(row, None)
            forget(row)

        def _merge(into: int, other: int) -> None:
            self.rest[into] = self.held(into).plus(self.held(other), 1.0, 1.0)
            self.rest.pop(other)
            self.seen["merged"] += 1
            merge(into, other)

        def _close(row: int) -> None:
            self.rest.pop(row, None)
            self.seen["closed"] += 1
            close(row)

        monkeypatch.setattr(kernels.atlas, "learn_in_doubt", learn_in_doubt)
        monkeypatch.setattr(kernels.atlas, "learn_located", learn_located)
        for owner, wrapper in (
            (inference, _split), (inference, _locate), (inference, expand_again),
            (chores, _merge), (chores, _close),
        ):  # fmt: skip
            monkeypatch.setattr(owner, wrapper.__name__, wrapper)
        monkeypatch.setattr(inference, "forget", _forget)

    def held(self, model: int) -> Sums:
        return self.rest.setdefault(model, Sums.empty(self.policy.dim + 1))

    def total(self, entries: list[tuple[FloatArray, float, float, float, float]]) -> Sums:
        if not entries:
            return Sums.empty(self.policy.dim + 1)
        Z = np.array([entry[0] for entry in entries])
        y, weight = np.array([entry[1:3] for entry in entries]).T
        return Sums(Z.T @ (weight[:, None] * Z), Z.T @ (weight * y), len(entries))

    def take_out(self, row: int, count: int) -> None:
        """Take the last rewards of a located user out of their home."""
        home = int(self.policy._inference.users.home[row])
        for z, y, _, credit, share in self.entries[row][-count:] if count else []:
            self.held(home).add(z, y, -credit, -share)

    def shares(self, row: int) -> Iterator[tuple[int, float]]:
        users = self.policy._inference.users
        for model, chance in zip(
            users.likely[row].astype(int).tolist(), users.chance[row].tolist(), strict=True
        ):
            if chance > 0.0 and model != NEW:
                yield model, chance

    def expected(self) -> dict[int, Sums]:
        """Return what every model must hold."""
        users, books = self.policy._inference.users, dict(self.rest)
        for row in users.doubtful:
            own = self.total(self.entries.get(row, []))
            for model, chance in self.shares(row):
                before = books.get(model, Sums.empty(self.policy.dim + 1))
                books[model] = before.plus(own, chance, users.holding[row])
        return books

    def check(self) -> None:
        """Check that models and segments hold what the ledger says."""
        inference, books = self.policy._inference, self.expected()
        tastes, users = inference.tastes, inference.users
        live = tastes.rows[1:].tolist()
        assert set(books) <= set(live)
        for model in live:
            own = books.get(model, Sums.empty(self.policy.dim + 1))
            self.largest = max(self.largest, float(np.abs(own.gram).max()))
            self.largest = max(self.largest, float(np.abs(own.moment).max()))
            atol = TOLERANCE * self.largest
            np.testing.assert_allclose(tastes.precision[model], own.gram, atol=atol)
            np.testing.assert_allclose(tastes.shift[model], own.moment, atol=atol)
        assert not tastes.precision[NEW].any()
        for row in users.row.values():
            if users.unit[row] != NONE or users.status[row] == IN_DOUBT:
                gram, moment, sums = users.segment(row)
                own = self.total(self.entries[row])
                np.testing.assert_allclose(gram, own.gram, atol=TOLERANCE * self.largest)
                np.testing.assert_allclose(moment, own.moment, atol=TOLERANCE * self.largest)
                assert sums[kernels.ledger.HELD] == own.count

    def check_counts(self) -> None:
        books, tastes = self.expected(), self.policy._inference.tastes
        for model in tastes.rows[1:].tolist():
            own = books.get(model, Sums.empty(1)).count
            assert tastes.count[model] == pytest.approx(own, abs=1e-6)


def check_state(policy: Atlas) -> None:
    """Check that all rows and numbers that users, models and memories name are valid."""
    inference = policy._inference
    # What is left of sums that were added and taken out again, by what one reward adds.
    dust = (
        1e-7
        * inference.population.contexts.max()
        / float(inference.population.stream[kernels.ledger.NOISE])
    )
    users, tastes, segments = inference.users, inference.tastes, inference.users.segments
    rows, live = list(users.row.values()), set(tastes.rows[1:].tolist())
    assert sorted(rows + users.free) == list(range(users.rows))
    in_doubt = {row for row in rows if users.status[row] == IN_DOUBT}
    assert set(users.doubtful) == in_doubt
    homes = Counter(int(users.home[row]) for row in rows if users.status[row] == LOCATED)
    assert set(homes) <= live
    for model in live:
        assert tastes.users[model] == homes[model]
        assert tastes.count[model] >= 0.0
        assert np.linalg.eigvalsh(tastes.precision[model])[0] >= -dust
        np.testing.assert_array_equal(tastes.precision[model], tastes.precision[model].T)
    assert len(set(tastes.id[sorted(live)].tolist())) == len(live)
    for row in rows:
        assert users.chance[row].sum() == pytest.approx(1.0)
        assert (users.chance[row] >= 0.0).all()
        named = set(users.likely[row][users.chance[row] > 0.0].astype(int).tolist())
        assert named <= live | {NEW}
        assert {int(users.before[row]), int(users.home[row])} <= live | {NONE}
        assert (users.home[row] == NONE) == (row in in_doubt)
        assert 0 <= users.length[row] <= CAPACITIES[int(users.pool[row])]
        memory = users.memory(row)[: int(users.length[row])]
        assert (memory[:, policy.dim + kernels.memory.WEIGHT] > 0.0).all()
        if row in in_doubt:
            assert not memory[:, policy.dim + kernels.memory.CREDIT].any()
            assert users.segment(row)[2][kernels.ledger.HELD] >= len(memory)
    # Every block of memory and every stored segment has one owner, or none.
    for number, pool in enumerate(users.pools):
        slots = [int(users.slot[row]) for row in rows if users.pool[row] == number]
        assert sorted(slots + pool.free) == list(range(pool.rows))
    units = {int(users.unit[row]): row for row in rows if users.unit[row] != NONE}
    assert set(units.values()) <= in_doubt
    assert sorted([*units, *segments.free]) == list(range(segments.rows))
    # A seat on the panel belongs to the present segment of its user, or to a past one.
    panel = inference.panel
    seats = {int(users.seat[row]): row for row in rows if users.seat[row] != NONE}
    present = {seat: int(panel.owner[seat]) for seat in range(panel.rows) if panel.owner[seat] >= 0}
    assert seats == present
    assert (panel.sums[: panel.rows, kernels.ledger.HELD] >= 0.0).all()


class Life:
    """A random life of a few users, who change, come and are forgotten."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.dim = int(self.rng.integers(1, 5))
        self.clicks, self.kind = seed % 3 == 2, seed % 4
        self.sigma = float(self.rng.choice([0.05, 0.3]))
        told = not self.clicks and seed % 2 == 1
        self.policy = Atlas(self.dim, noise=self.sigma if told else None)
        self.tastes = self.rng.normal(size=(4, self.dim))
        self.at = dict.fromkeys(NAMES, 0)

    def draw(self) -> tuple[User, FloatArray, float]:
        rng = self.rng
        user = NAMES[int(rng.integers(len(NAMES)) * rng.random())]  # the first ones more often
        if rng.random() < 0.02:
            self.at[user] = int(rng.integers(4))
        x = (
            np.eye(self.dim)[rng.integers(self.dim)]
            if self.kind == 1
            else rng.normal(size=self.dim)
        )
        if self.kind == 3:
            x = np.ones(self.dim) + 1e-3 * x
        mean = float(x @ self.tastes[self.at[user]])
        if self.clicks:
            return user, x, float(rng.random() < 1.0 / (1.0 + np.exp(-2.0 * mean)))
        stray = 50.0 * rng.normal() if rng.random() < 0.01 else 0.0
        return user, x, mean + self.sigma * rng.normal() + stray

    def leaver(self) -> User | None:
        if self.rng.random() < 0.02:
            return NAMES[self.rng.integers(len(NAMES))]
        return None


STEPS = 250


@pytest.mark.usefixtures("busy")
def test_models_hold_what_users_contributed_after_every_step() -> None:
    """All lives in one test: together they have everything that moves rewards."""
    seen: Counter[str] = Counter()
    for seed in range(12):
        with pytest.MonkeyPatch.context() as patch:
            life = Life(seed)
            ledger = Ledger(life.policy)
            ledger.watch(patch)
            for step in range(STEPS):
                user, x, y = life.draw()
                gone = life.leaver()
                try:
                    life.policy.learn(user, x, y)
                    ledger.check()
                    check_state(life.policy)
                    if gone is not None:
                        life.policy.forget(gone)
                        ledger.check()
                        check_state(life.policy)
                except AssertionError as error:
                    error.add_note(f"in life {seed}, step {step}")
                    raise
            seen.update(ledger.seen)
    assert set(seen) == {
        "located", "split in doubt", "split located", "merged", "closed", "forgotten",
        "forgotten in doubt", "expanded again",
    }  # fmt: skip


def test_a_model_counts_the_rewards_that_it_holds() -> None:
    for seed in range(4):
        with pytest.MonkeyPatch.context() as patch:
            life = Life(seed)
            ledger = Ledger(life.policy)
            ledger.watch(patch)
            for _ in range(STEPS):
                life.policy.learn(*life.draw())
                user = life.leaver()
                if user is not None:
                    life.policy.forget(user)
                ledger.check_counts()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.usefixtures("busy")
def test_a_loaded_policy_continues_bit_for_bit_from_any_phase(seed: int, tmp_path: Path) -> None:
    life, phases = Life(seed), set()
    straight, broken = life.policy, Life(seed).policy
    for step in range(STEPS):
        one, user = life.draw(), life.leaver()
        straight.learn(*one)
        broken.learn(*one)
        if user is not None:
            straight.forget(user)
            broken.forget(user)
        if step % 7 == 0:
            phases.add(broken._upkeep.phase)
            broken.save(tmp_path / "kept")
            broken = cast(Atlas, dyclu.load(tmp_path / "kept"))
            broken.save(tmp_path / "again")
            straight.save(tmp_path / "straight")
            assert (tmp_path / "kept").read_bytes() == (tmp_path / "again").read_bytes()
            assert (tmp_path / "kept").read_bytes() == (tmp_path / "straight").read_bytes()
            check_state(broken)
    assert phases == {upkeep.IDLE, upkeep.PLACING, upkeep.MERGING, upkeep.GROUPING}
