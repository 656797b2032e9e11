"""An engine on a real journal, without threads or a network: one call is one commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from msgspec import UNSET

from dyclu.service import schema
from dyclu.service.disk.snapshots import JOURNAL, SNAPSHOTS, Snapshots, recover
from dyclu.service.disk.sqlite.writer import SqliteJournal
from dyclu.service.engine.checks import Given
from dyclu.service.engine.engine import Engine, Reply
from dyclu.service.engine.lines import Line, encode
from dyclu.service.engine.state import State
from dyclu.service.settings import TenantSettings

START = 1_700_000_000.0
ARMS = [[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]]

SECRET = 16 * "5e"
"""Seed of what a service draws at random: explored arms and the control group. A journal's own is
new each time, and so would the outcome of a test be."""


def ask(user: str = "ana", arms: list[list[float]] | None = None, **more: Any) -> Any:
    rows = ARMS if arms is None else arms
    named = [schema.Arm(f"a{i}", row) for i, row in enumerate(rows)]
    return schema.DecisionRequest(user, named, **more)


def one(value: float) -> Given:
    """The reward of a decision with one slot."""
    return Given({1: value}, unnamed=True)


class Bench:
    """A tenant's parts, wired for tests; `restart` throws away all memory.

    Attributes
    ----------
    now : float
        The time.
    wrong : float
        By how much the wall clock is ahead of it.
    """

    def __init__(self, folder: Path, secret: str = SECRET, /, **rules: Any) -> None:
        self.folder, self.secret = folder, secret
        told: dict[str, Any] = {"dim": 2, "policy": "linucb", "options": {"alpha": 0.5}}
        self.rules = TenantSettings(**(told | rules))
        self.now, self.wrong = START, 0.0
        self.count = 0
        self.open()

    def open(self) -> None:
        self.journal = SqliteJournal.open(self.folder / JOURNAL, dim=self.rules.dim)
        self.journal.note("secret", self.secret)
        self.reader = self.journal.reader()
        facts = self.reader.facts()
        # A steady clock starts anywhere, and anew with each process.
        self.booted = self.now - 5.0
        self.epoch = facts.epoch
        self.snapshots = Snapshots(self.folder / SNAPSHOTS, self.rules.spec(), facts.id)
        self.snapshots.discard(self.reader)
        self.snapshots.discard_ahead(self.reader.last())
        self.engine = Engine(
            recover(self.reader, self.snapshots).state,
            self.reader,
            self.rules,
            clock=lambda: self.now + self.wrong,
            steady=lambda: self.now - self.booted,
            new_id=self.new_id,
            secret=facts.secret,
        )

    def new_id(self, at: int) -> str:
        self.count += 1
        return f"n{self.count}-{at}"

    @property
    def state(self) -> State:
        return self.engine.state

    def do(self, ask: Callable[..., Reply[Any]], *args: Any) -> Any:
        while True:
            reply = ask(*args)
            if self.write(reply.lines):
                return reply.answer

    def write(self, lines: Iterable[Line]) -> bool:
        made = list(lines)
        if not made:
            return True
        gone = self.journal.append([encode(line) for line in made])
        self.engine.committed([line for line in made if line.seq not in gone])
        self.engine.left_out([line for line in made if line.seq in gone])
        return not gone

    def decide(self, *args: Any, **more: Any) -> schema.Decided:
        answer: schema.Decided = self.do(self.engine.decide, ask(*args, **more))
        return answer

    def reward(self, id: str, value: Any = UNSET, **more: Any) -> schema.Rewarded:
        given = Given.of(schema.RewardRequest(value=value, **more))
        answer: schema.Rewarded = self.do(self.engine.reward, id, given)
        return answer

    def expire(self) -> None:
        self.write(self.engine.expire())

    def erase(self, user: str) -> int:
        mark = self.engine.erase(user)
        gone = self.journal.erase(user, encode(mark))
        self.epoch = gone.epoch
        self.engine.committed([mark])
        self.engine.forget(user, gone.decisions)
        self.journal.end_erasure(user)
        self.engine.end_erasure(user)
        self.snapshots.purge(self.reader)
        self.engine.replace(self.replayed())
        return gone.lines

    def ids(self) -> list[str]:
        """The ids of the pending decisions, by number of their lines."""
        made = self.reader.decisions(list(self.state.pending))
        return [str(made[seq].ref) for seq in sorted(made)]

    def save(self) -> None:
        self.snapshots.write(self.state, epoch=self.epoch)
        self.snapshots.purge(self.reader)

    def close(self) -> None:
        self.reader.close()
        self.journal.close()

    def restart(self) -> None:
        self.close()
        self.open()

    def replayed(self) -> State:
        """What the journal alone gives."""
        return State(self.rules.spec().make()).apply_all(self.reader.after(0))


def bits(state: State, scratch: Path) -> tuple[bytes, str, list[bytes]]:
    """Everything a state holds, to be compared bit for bit."""
    path = scratch / "policy.bits"
    state.policy.save(path)
    told, arrays = state.dump()
    return path.read_bytes(), repr(told), [array.tobytes() for array in arrays.values()]
