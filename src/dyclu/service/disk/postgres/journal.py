"""`PostgresJournal`: the journal of one partition, in PostgreSQL, with a copy to read from.

Every write is one transaction that also checks that the partition is still ours (`Claim`): a former
owner, however late it wakes up, can write nothing and so acknowledge nothing. What was written is
then written to the copy. A change whose end we did not see leaves the copy in doubt; `reopen` waits
for that end and reads what the database has.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from dyclu.data import Features
from dyclu.service.disk.journal import ErasedLines, InThread, Journal, StoreError
from dyclu.service.disk.named import noted_features
from dyclu.service.disk.postgres import copies, shared
from dyclu.service.disk.postgres.appends import COLUMNS, VALUES, Written
from dyclu.service.disk.postgres.database import Claim, Database, OwnershipLost
from dyclu.service.disk.postgres.tail import Tail
from dyclu.service.disk.sqlite.reader import JournalReader
from dyclu.service.disk.sqlite.tables import FORMAT
from dyclu.service.disk.sqlite.writer import ERASURES_KEPT, SqliteJournal
from dyclu.service.engine.lines import OTHERS

FEW = 50
"""Lines that are copied by the event loop; more would delay requests for too long."""

PROBE = 131_072
"""Bytes that are written to find out whether the database takes anything."""

_INSERT = f"""
INSERT INTO dyclu.journal {COLUMNS}
  SELECT %(tenant)s, %(partition)s, {VALUES} FROM json_array_elements(%(lines)s::json) AS e
"""

_FACT = """
INSERT INTO dyclu.fact VALUES (%(tenant)s, %(partition)s, %(name)s, %(value)s)
  ON CONFLICT (tenant, partition, name) DO {update}
"""
_NOTE = _FACT.format(update="UPDATE SET value = excluded.value")
_NOTE_FIRST = _FACT.format(update="NOTHING")
_OURS = "tenant = %(tenant)s AND partition = %(partition)s"
_DROP_PARTS = (
    f"DELETE FROM dyclu.base WHERE {_OURS} AND generation != "
    f"(SELECT value::bigint FROM dyclu.fact WHERE {_OURS} AND name = 'generation')"
)


class PostgresJournal(Journal):
    """The only writer of a partition's journal, as long as its claim holds."""

    def __init__(
        self, database: Database, claim: Claim, copy: SqliteJournal, *, shared: str | None
    ) -> None:
        self.claim, self.path = claim, copy.path
        self._database, self._copy, self._shared = database, copy, shared
        self._in_doubt = False
        self._tail = Tail(copy)
        with closing(JournalReader(self.path)) as reader:
            self._written = reader.last()

    @classmethod
    def open(
        cls, database: Database, claim: Claim, path: Path, *, dim: int, features: Features | None
    ) -> PostgresJournal:
        """Open the journal, or begin one, and copy it to `path`; refuse one with other vectors."""
        with database.owned(claim) as connection:
            for name, value in {
                "format": FORMAT, "dim": dim, "epoch": 0, "secret": secrets.token_hex(16),
                "id": secrets.token_hex(16), "base": 0, "generation": 0,
            }.items():  # fmt: skip
                told = {**claim.named, "name": name, "value": str(value)}
                connection.execute(_NOTE_FIRST, told)
            # Parts that a process had stored when it was killed.
            connection.execute(_DROP_PARTS, claim.named)
            snapshot = shared.fetch(connection, claim, path.parent)
            copies.fill(connection, claim, path)
        copy = SqliteJournal.open(path, dim=dim, features=features, durable=False)
        journal = cls(database, claim, copy, shared=snapshot)
        if features is not None:
            journal.note("features", noted_features(features))
        return journal

    @property
    def owes(self) -> bool:
        """Whether erased lines may still be in the write-ahead log of the copy."""
        return self._copy.owes

    @contextmanager
    def _change(self) -> Iterator[Callable[..., Any]]:
        """Yield what executes statements in one transaction that needs the claim.

        The copy is changed within: if anything fails, what it holds is in doubt.
        """
        self._in_doubt = True
        with self._database.owned(self.claim) as connection:

            def execute(statement: str, **more: Any) -> Any:
                return connection.execute(statement, {**self.claim.named, **more})

            yield execute
        self._in_doubt = False

    def note(self, name: str, fact: str) -> None:
        """Store a fact about the journal."""
        with self._change() as execute:
            execute(_NOTE, name=name, value=fact)
            self._copy.note(name, fact)

    def append(self, lines: Sequence[bytes]) -> set[int]:
        """Write encoded lines; on return they are in the database."""
        if not lines:
            return set()
        by_number = {_number(line): line for line in lines}
        written = self._database.appends.append(self.claim, lines, min(by_number))
        return self._copied(by_number, written)

    async def append_soon(self, lines: Sequence[bytes], in_thread: InThread) -> set[int]:
        """Write them together with lines of other partitions, and copy them later (`Tail`).

        Lines that wait are copied by the event loop, if they are few: this takes less time than a
        thread needs to get its turn, and nothing waits for the disk, since copies are not synced.
        """
        if not lines:
            return set()
        if self._tail.failed:
            raise StoreError(f"{self.path} lacks lines that the database has; it is copied again")
        by_number = {_number(line): line for line in lines}
        written = await self._database.appends.append_soon(self.claim, lines, min(by_number))
        if written is None or len(lines) > FEW:
            self._tail.flush()
        if written is None:
            # The claim is void, or another transaction has locked the row: only we wait for it.
            return set(await in_thread(partial(self.append, lines)))
        if len(lines) > FEW:
            return set(await in_thread(partial(self._copied, by_number, written)))
        kept = self._kept(by_number, written)
        self._tail.add(line for seq, line in by_number.items() if seq in kept)
        return by_number.keys() - kept

    def _copied(self, by_number: Mapping[int, bytes], written: Written) -> set[int]:
        """Copy what the database has taken; return the numbers of what it left out."""
        kept = self._kept(by_number, written)
        # If the copy cannot take them, `reopen` finds them in the database.
        if self._copy.append([line for seq, line in by_number.items() if seq in kept]):
            self._in_doubt = True
            raise StoreError(f"{self.path} is not what the database has; it is copied again")
        return by_number.keys() - kept

    def _kept(self, by_number: Mapping[int, bytes], written: Written) -> set[int]:
        """Return the numbers of the lines that the database has taken; raises if it took none."""
        if not written.held:
            raise OwnershipLost(self.claim)
        if written.used:
            self._in_doubt = True
            raise StoreError(
                f"the database has line {min(by_number)} or a later one already; it is copied again"
            )
        kept = set(written.numbers)
        self._written = max(self._written, *kept, 0)
        return kept

    def flush(self) -> None:
        """Copy the lines that wait for it."""
        self._tail.flush()

    def reader(self) -> JournalReader:
        """Return a connection for reading, for the event loop."""
        return JournalReader(self.path, tail=self._tail)

    def taken_elsewhere(self, id: str, kind: str) -> bool:
        """Return whether a line of this kind in another partition has this id."""
        with self._database.connection() as connection:
            found = connection.execute(
                "SELECT 1 FROM dyclu.journal WHERE tenant = %(tenant)s AND ref = %(ref)s "
                "AND kind = %(kind)s AND kind IN ('decision', 'event') "
                "AND partition != %(partition)s",
                {**self.claim.named, "ref": id, "kind": kind},
            )
            return found.fetchone() is not None

    def erase(self, user: str, mark: bytes, *, first: int | None = None) -> ErasedLines:
        """Delete all lines about a user and all shared snapshots, and append the line `mark`."""
        with self._change() as execute:
            gone = self._copy.erase(user, mark, first=first)
            execute(
                f"DELETE FROM dyclu.journal WHERE {_OURS} "
                'AND ("user" = %(user)s OR of = ANY(%(decisions)s))',
                user=user,
                decisions=gone.decisions,
            )
            execute(f"DELETE FROM dyclu.snapshot WHERE {_OURS}")
            execute(f"DELETE FROM dyclu.fact WHERE {_OURS} AND name = '{shared.FACT}'")
            execute(_NOTE, name="epoch", value=str(gone.epoch))
            if user != OTHERS:
                execute(_NOTE, name="people", value=str(gone.epoch))
            execute(
                "INSERT INTO dyclu.erased VALUES (%(tenant)s, %(partition)s, %(now)s, %(first)s)",
                now=gone.epoch,
                first=gone.first,
            )
            execute(
                f"DELETE FROM dyclu.erased WHERE {_OURS} AND epoch <= %(old)s",
                old=gone.epoch - ERASURES_KEPT,
            )
            execute(
                "INSERT INTO dyclu.erasing VALUES (%(tenant)s, %(partition)s, %(user)s, %(told)s) "
                'ON CONFLICT (tenant, partition, "user") DO UPDATE '
                "SET decisions = excluded.decisions",
                user=user,
                told=json.dumps(gone.decisions),
            )
            execute(_INSERT, lines=f"[{mark.decode()}]")
        self._shared = None
        self._written = max(self._written, _number(mark))
        return gone

    def end_erasure(self, user: str) -> None:
        """Remove the note of a user's name: nothing about them is stored any more."""
        with self._change() as execute:
            execute(f'DELETE FROM dyclu.erasing WHERE {_OURS} AND "user" = %(user)s', user=user)
            self._copy.end_erasure(user)

    def clean(self, first: int) -> int | None:
        """Overwrite copies of erased lines in some pages of the copy."""
        return self._copy.clean(first)

    def note_clean(self, unclean: int) -> None:
        """Store that all pages of the copy are clean."""
        self._copy.note_clean(unclean)

    def put_part(self, generation: int, file: str, part: int, content: bytes) -> None:
        """Store a part of a base that is not in force yet."""
        with self._change() as execute:
            execute(
                "INSERT INTO dyclu.base VALUES (%(tenant)s, %(partition)s, %(generation)s, "
                "%(file)s, %(part)s, %(content)s) ON CONFLICT (tenant, partition, generation, "
                "file, part) DO UPDATE SET bytes = excluded.bytes",
                generation=generation,
                file=file,
                part=part,
                content=content,
            )
            self._copy.put_part(generation, file, part, content)

    def put_in_force(
        self,
        generation: int,
        line: int,
        *,
        epoch: int | None = None,
        archived: tuple[int, int] | None = None,
    ) -> bool:
        """Note that the stored base replaces the lines up to `line`; return whether it does."""
        with self._change() as execute:
            if done := self._copy.put_in_force(generation, line, epoch=epoch, archived=archived):
                execute(_NOTE, name="base", value=str(line))
                execute(_NOTE, name="generation", value=str(generation))
        return done

    def drop_parts(self) -> bool:
        """Delete parts of bases that are not in force; return whether any was left in the copy."""
        with self._change() as execute:
            execute(_DROP_PARTS)
            return self._copy.drop_parts()

    def note_dropped(self, line: int) -> None:
        """Store that all lines that the base for `line` stands for have been deleted."""
        with self._change() as execute:
            execute(_NOTE, name="dropped", value=str(line))
            self._copy.note_dropped(line)

    def drop_lines(self, seqs: Sequence[int]) -> None:
        """Delete lines that the base stands for."""
        with self._change() as execute:
            execute(
                f"DELETE FROM dyclu.journal WHERE {_OURS} AND seq = ANY(%(seqs)s)", seqs=list(seqs)
            )
            self._copy.drop_lines(seqs)

    def sharing(self, snapshots: Path) -> Iterator[Callable[[], object]]:
        """Yield the writes that store the latest snapshot in the database, for the next owner."""
        stem = shared.latest(snapshots)
        if stem is None or stem.name == self._shared:
            return
        for file, part, content in shared.pieces(stem):
            yield partial(self._put_piece, file, part, content)
        yield partial(self._share, stem.name)

    def _put_piece(self, file: str, part: int, content: bytes) -> None:
        with self._database.owned(self.claim) as connection:
            shared.put(connection, self.claim, file, part, content)

    def _share(self, stem: str) -> None:
        with self._database.owned(self.claim) as connection:
            if shared.put_in_force(connection, self.claim, stem):
                self._shared = stem

    def tidy(self) -> None:
        """Move the copy's write-ahead log into its database."""
        self._copy.tidy()

    def reopen(self) -> None:
        """Begin to write again; first copy what the database has and the copy has not.

        Raises if the database takes nothing.
        """
        with self._database.owned(self.claim) as connection:
            self._probe(connection)
            self._copy.reopen()
            with closing(JournalReader(self.path)) as reader:
                last = reader.last()
            self._check_nothing_lost(connection)
            if self._in_doubt or self._tail.failed:
                copies.fill(connection, self.claim, self.path)
            else:
                copies.follow(connection, self.claim, self.path, after=last)
        self._tail.filled()
        self._in_doubt = False

    def _probe(self, connection: Any) -> None:
        """Write more than fits into the gaps of a full disk, and delete it."""
        # Compressed it would be too small.
        told = {**self.claim.named, "body": secrets.token_hex(PROBE // 2)}
        connection.execute(
            "INSERT INTO dyclu.journal VALUES (%(tenant)s, %(partition)s, -1, 0, 'probe', NULL, "
            "NULL, NULL, 1, %(body)s)",
            told,
        )
        connection.execute(f"DELETE FROM dyclu.journal WHERE {_OURS} AND seq = -1", told)

    def _check_nothing_lost(self, connection: Any) -> None:
        """Refuse to go on if lines that were written, and applied, are gone from the database.

        The copy cannot tell: in doubt, it may have a line that the database never had.
        """
        told = connection.execute(
            f"SELECT max(seq) FROM dyclu.journal WHERE {_OURS}", self.claim.named
        ).fetchone()
        facts = connection.execute(
            f"SELECT value::bigint FROM dyclu.fact WHERE {_OURS} AND name = 'base'",
            self.claim.named,
        ).fetchone()
        end = max(told[0] or 0, facts[0])
        if end < self._written:
            raise StoreError(
                f"the database ends at line {end}, line {self._written} was written before: it has "
                "lost lines, by a failover or a restored backup; restart this process"
            )
        self._written = end

    def close(self) -> None:
        """Close the copy, which nobody needs any more."""
        self._tail.close()
        self._copy.close()


def _number(line: bytes) -> int:
    """Return the number of an encoded line."""
    return int(line[1 : line.index(b",")])
