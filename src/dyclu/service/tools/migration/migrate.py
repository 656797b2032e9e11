"""`migrate`: move the journals of a data folder to PostgreSQL; the folder stays as it is.

One transaction per tenant writes the lines, reads them back, verifies them, and only then is
committed. So a service never sees a part of it, and after an interruption it begins again.
"""

from __future__ import annotations

import fcntl
import json
import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dyclu.errors import FileError, OptionError
from dyclu.service.cluster.leases import make_partitions
from dyclu.service.disk import bases
from dyclu.service.disk.journal import Facts
from dyclu.service.disk.locks import locked
from dyclu.service.disk.postgres.database import Database
from dyclu.service.disk.snapshots import JOURNAL
from dyclu.service.disk.sqlite.reader import JournalReader, line_of
from dyclu.service.disk.sqlite.tables import FORMAT
from dyclu.service.engine.lines import Line
from dyclu.service.engine.state import State
from dyclu.service.spec import PolicySpec
from dyclu.service.tools.migration.lines import cut, slot_of
from dyclu.service.tools.migration.verify import (
    Histories,
    Serial,
    check_folds,
    check_histories,
    saved,
)

MOVED = "moved"
"""Fact of each partition: id and last line of the journal that was moved, and the epoch then."""

ROWS = 2000
"""Rows that are read at a time."""

_COPY = (
    'COPY dyclu.journal (tenant, partition, seq, at, kind, ref, "user", of, slot, body) FROM STDIN'
)
_OURS = "tenant = %(tenant)s AND partition = %(partition)s"
_LINES = (
    'SELECT j.seq, j.at, j.kind, j.ref, j."user", j.of, j.body, d."user", d.body '
    "FROM dyclu.journal AS j LEFT JOIN dyclu.journal AS d ON j.kind = 'reward' AND d.seq = j.of "
    "AND d.tenant = j.tenant AND d.partition = j.partition "
    "WHERE j.tenant = %(tenant)s AND j.partition = %(partition)s ORDER BY j.seq"
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done with each tenant.

    Attributes
    ----------
    partitions : int
        Number of partitions.
    policy : str or None
        Name of a policy of one's own that served; otherwise its module would not be imported.
    forget_base : bool
        Whether to leave out what the base stands for, and to learn from the kept lines only.
    """

    partitions: int = 64
    policy: str | None = None
    forget_base: bool = False


@dataclass(frozen=True, slots=True)
class Moved:
    """What became of a tenant: lines of its journal, users, and whether it was moved now.

    If it was moved before, it was only verified again; if it has been served since, not even that:
    `users` is None.
    """

    tenant: str
    lines: int
    users: int | None
    now: bool


def migrate(
    data: Path,
    database: Database,
    plan: Plan,
    *,
    tenant: str | None = None,
    progress: Callable[[str, float], None] = lambda *_: None,
) -> Iterator[Moved]:
    """Move all tenants of a folder, or one; yields what was moved.

    `progress` is called with the name of a tenant and the share of its work that is done.
    """
    folders = sorted(path.parent for path in data.glob(f"*/{JOURNAL}"))
    if tenant is not None:
        folders = [folder for folder in folders if folder.name == tenant]
    if not folders:
        raise OptionError(f"there is no journal of {tenant or 'any tenant'} in {data}")
    with _alone(data):
        database.begin()
        for folder in folders:
            # A service may have the folder by another path, with another lock of its data folder.
            with (
                ExitStack() as held,
                closing(JournalReader(folder / JOURNAL, alone=True)) as reader,
            ):
                held.callback(locked(folder, of=folder))
                yield Move(folder.name, reader, database, plan, progress).run()


@contextmanager
def _alone(data: Path) -> Iterator[None]:
    """Hold the lock of the folder; refuse if a service has it."""
    path = data / "lock"
    if not path.exists():
        yield
        return
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise FileError(f"a service writes to {data}; stop it first") from None
        yield


class Move:
    """Moves one tenant."""

    def __init__(
        self,
        tenant: str,
        reader: JournalReader,
        database: Database,
        plan: Plan,
        progress: Callable[[str, float], None],
    ) -> None:
        self.tenant, self._reader, self._database, self._plan = tenant, reader, database, plan
        self._facts, self._last = _checked(reader), reader.last()
        self._mark = f"{self._facts.id} {self._last}"
        self._progress, self._steps, self._done = progress, 3 * max(1, self._last), 0
        self._base = 0 if plan.forget_base else self._facts.base
        if self._base and plan.partitions > 1:
            raise OptionError(
                f"the lines of {tenant} up to {self._base} are gone (keep); the base that stands "
                "for them is one state of all users, and cannot be divided. Pass --partitions 1, "
                "which moves the base too, or --forget-base to learn from the kept lines only"
            )
        self._spec = self._served()

    def _served(self) -> PolicySpec | None:
        """Return the policy that served, None if nothing was ever served."""
        if not self._facts.served:
            return None
        spec = PolicySpec(**json.loads(self._facts.served))
        if spec.own and self._plan.policy != spec.name:
            raise OptionError(
                f"{self.tenant} was served by {spec.name}, and a journal must not make a program "
                f"import a module; if you trust it, pass --policy {spec.name}"
            )
        return spec

    def run(self) -> Moved:
        """Move the tenant, or find that it was moved before."""
        with self._database.connection() as connection, connection.transaction():
            # Reading all lines back may take longer than any other transaction.
            connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            make_partitions(connection, self.tenant, self._plan.partitions)
            self._lock(connection)
            epochs = self._moved_before(connection)
            if epochs is not None and epochs != self._epochs(connection):
                return Moved(self.tenant, self._last, None, now=False)
            if epochs is None:
                self._write(connection)
            histories = self._verified(connection)
        return Moved(self.tenant, self._last, len(histories.users), now=epochs is None)

    def _lock(self, connection: Any) -> None:
        """Lock the partitions against take-overs; refuse if they are served."""
        connection.execute(
            "SELECT 1 FROM dyclu.partition WHERE tenant = %s FOR UPDATE", (self.tenant,)
        )
        served = connection.execute(
            "SELECT DISTINCT o.name FROM dyclu.partition AS p JOIN dyclu.process AS o "
            "ON o.id = p.owner WHERE p.tenant = %s AND o.expires > clock_timestamp()",
            (self.tenant,),
        ).fetchall()
        if served:
            names = ", ".join(sorted(name for (name,) in served))
            raise FileError(f"{self.tenant} is served on this database by {names}; stop it first")

    def _epochs(self, connection: Any) -> list[int]:
        """Return the epochs of the partitions; each take-over raises one."""
        found = connection.execute(
            "SELECT epoch FROM dyclu.partition WHERE tenant = %s ORDER BY partition",
            (self.tenant,),
        )
        return [epoch for (epoch,) in found]

    def _moved_before(self, connection: Any) -> list[int] | None:
        """Return the epochs when this journal was moved; None if nothing was; refuse others."""
        marks = connection.execute(
            "SELECT value FROM dyclu.fact WHERE tenant = %s AND name = %s ORDER BY partition",
            (self.tenant, MOVED),
        ).fetchall()
        found = [value.rpartition(" ") for (value,) in marks]
        if found and all(mark == self._mark for mark, _, _ in found):
            return [int(epoch) for _, _, epoch in found]
        used = connection.execute(
            "SELECT EXISTS (SELECT 1 FROM dyclu.journal WHERE tenant = %s)", (self.tenant,)
        ).fetchone()[0]
        if used or found:
            raise FileError(
                f"{self.tenant} has lines in this database that are not of {self._reader.path}; "
                "name another database, or another tenant"
            )
        return None

    def _write(self, connection: Any) -> None:
        # Whoever owned the partitions before can write nothing from now on.
        connection.execute(
            "UPDATE dyclu.partition SET epoch = epoch + 1, owner = NULL, since = NULL "
            "WHERE tenant = %s",
            (self.tenant,),
        )
        with connection.cursor() as cursor, cursor.copy(_COPY) as copy:
            for partition, (seq, at, kind, ref, user, of, body) in cut(
                self._reader, self._plan.partitions
            ):
                slot = slot_of(kind, body)
                row = (self.tenant, partition, seq, at, kind, ref, user, of, slot, body)
                copy.write_row(row)
                self._went_on(seq)
        for partition, epoch in enumerate(self._epochs(connection)):
            for name, value in self._told(epoch).items():
                connection.execute(
                    "INSERT INTO dyclu.fact VALUES (%s, %s, %s, %s) "
                    "ON CONFLICT (tenant, partition, name) DO UPDATE SET value = excluded.value",
                    (self.tenant, partition, name, str(value)),
                )
        if self._base:
            self._write_base(connection)

    def _told(self, epoch: int) -> dict[str, Any]:
        """Return the facts of a partition; its secret, which assigns groups, is that of all."""
        facts, based = self._facts, bool(self._base)
        told = {
            "format": FORMAT,
            "dim": facts.dim,
            "epoch": 0,
            "secret": facts.secret.hex(),
            "id": secrets.token_hex(16),
            "base": self._base,
            "generation": facts.generation if based else 0,
            "served": facts.served,
            "features": facts.features,
            MOVED: f"{self._mark} {epoch}",
        }
        return {name: value for name, value in told.items() if value != ""}

    def _write_base(self, connection: Any) -> None:
        generation = self._facts.generation
        for file in bases.FILES:
            for number, part in enumerate(self._reader.parts(generation, file)):
                connection.execute(
                    "INSERT INTO dyclu.base VALUES (%s, 0, %s, %s, %s, %s)",
                    (self.tenant, generation, file, number, part),
                )

    # --- verification ------------------------------------------------------------------------

    def _verified(self, connection: Any) -> Histories:
        """Return the histories of all users; refuse if anything differs."""
        before, after = Histories(self._last), Histories(self._last)
        with tempfile.TemporaryDirectory() as name:
            scratch, places = Path(name), range(self._plan.partitions)
            learnt = Serial(
                [self._begun(scratch).policy for _ in places] if self._spec else [],
                after=self._base,
            )
            for line in self._reader.after(0):
                before.add(line)
                if self._spec is not None:
                    learnt.add(line)
                self._went_on(self._last + line.seq)
            wrong: list[int] = []
            for place in places:
                fold = self._begun(scratch) if self._spec else None
                for line in self._stored(connection, place):
                    after.add(line)
                    if fold is not None and line.seq > self._base:
                        fold.apply(line)
                if fold is not None and saved(fold.policy, scratch) != saved(
                    learnt.policies[place], scratch
                ):
                    wrong.append(place)
                self._went_on(2 * self._last + self._last * (place + 1) // len(places))
        check_histories(self.tenant, before, after)
        check_folds(self.tenant, wrong)
        return before

    def _begun(self, scratch: Path) -> State:
        """Return the state before the first line that is learnt."""
        assert self._spec is not None
        found = bases.read_base(self._reader, scratch, self._spec) if self._base else None
        return State(self._spec.make()) if found is None else found.state

    def _stored(self, connection: Any, partition: int) -> Iterator[Line]:
        with connection.cursor(name="dyclu_moved") as cursor:
            cursor.itersize = ROWS
            cursor.execute(_LINES, {"tenant": self.tenant, "partition": partition})
            for row in cursor:
                yield line_of(*row)

    def _went_on(self, done: int) -> None:
        if done - self._done > self._steps / 200:
            self._done = done
            self._progress(self.tenant, min(1.0, done / self._steps))


def _checked(reader: JournalReader) -> Facts:
    """Return the facts of a journal that can be moved as it is."""
    facts, version = reader.facts(), reader.format()
    if version != FORMAT:
        raise FileError(
            f"{reader.path} has format {version}, expected {FORMAT}; start and stop `dyclu serve` "
            "on it once, which brings it up to date"
        )
    if reader.being_erased():
        raise FileError(
            f"an erasure in {reader.path} was begun and not ended; start and stop `dyclu serve` "
            "on it once, which ends it"
        )
    return facts
