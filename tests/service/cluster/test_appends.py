"""`Appends`: lines of several partitions are written together, and each claim is checked."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from dyclu.service.cluster.leases import Leases
from dyclu.service.disk.journal import StoreError
from dyclu.service.disk.postgres import appends
from dyclu.service.disk.postgres.appends import Appends, Written
from dyclu.service.disk.postgres.database import Claim, Database
from dyclu.service.engine.lines import EventBody, encode, make_line

PARTITIONS = 8


class Gate:
    """Connections of a database; each waits until the gate is open, and is counted."""

    def __init__(self, database: Database) -> None:
        self._database, self.open, self.statements = database, threading.Event(), 0

    @contextmanager
    def connection(self) -> Iterator[Any]:
        self.statements += 1
        assert self.open.wait(30)
        with self._database.connection() as connection:
            yield connection


@pytest.fixture
def database(store: str) -> Iterator[Database]:
    made = Database(store)
    made.begin()
    yield made
    made.close()


@pytest.fixture
def claims(database: Database) -> list[Claim]:
    leases = Leases(database, "a", "a", lease=60.0)
    leases.set_up({"shop": PARTITIONS})
    assert leases.register("http://nowhere")
    return sorted(leases.claim(["shop"], PARTITIONS), key=lambda one: one.partition)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(PARTITIONS) as made:
        yield made


def event(seq: int, id: str) -> bytes:
    return encode(make_line(seq, seq, EventBody([1.0, 0.1], 0.7), ref=id, user="ana"))


def queued(
    gate: Gate, made: Appends, threads: ThreadPoolExecutor, claims: list[Claim]
) -> list[Future[Written]]:
    """Append line 1 to each partition; the first one is being written, all others wait."""
    found = []
    for claim in claims:
        line = event(1, f"e{claim.partition}")
        found.append(threads.submit(made.append, claim, [line], 1))
        until(lambda: gate.statements == 1 and len(made._waiting) == len(found) - 1)
    gate.open.set()
    return found


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end
        time.sleep(0.001)


def stored(store: str) -> list[tuple[int, int, str]]:
    with psycopg.connect(store) as connection:
        return connection.execute(
            "SELECT partition, seq, ref FROM dyclu.journal ORDER BY partition, seq"
        ).fetchall()


def test_what_waits_is_written_by_one_statement(
    store: str, database: Database, claims: list[Claim], threads: ThreadPoolExecutor
) -> None:
    gate = Gate(database)
    answers = queued(gate, Appends(gate.connection), threads, claims)
    assert [one.result() for one in answers] == [Written(True, False, [1])] * PARTITIONS
    assert gate.statements == 2
    assert stored(store) == [(n, 1, f"e{n}") for n in range(PARTITIONS)]


def test_lines_beyond_the_limit_are_written_by_the_next_statement(
    store: str,
    database: Database,
    claims: list[Claim],
    threads: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(appends, "MOST", 3 * len(event(1, "e0")))
    gate = Gate(database)
    answers = queued(gate, Appends(gate.connection), threads, claims)
    assert all(one.result().numbers == [1] for one in answers)
    assert gate.statements == 1 + 3


def test_a_void_claim_writes_nothing_and_the_others_of_the_statement_do(
    store: str, database: Database, claims: list[Claim], threads: ThreadPoolExecutor
) -> None:
    gate = Gate(database)
    claims[3] = replace(claims[3], epoch=claims[3].epoch - 1)
    claims[5] = replace(claims[5], owner="b")
    answers = [one.result() for one in queued(gate, Appends(gate.connection), threads, claims)]
    assert [one.held for one in answers] == [n not in (3, 5) for n in range(PARTITIONS)]
    assert [row[0] for row in stored(store)] == [0, 1, 2, 4, 6, 7]


def test_a_number_that_is_used_stops_its_partition_only(
    store: str, database: Database, claims: list[Claim], threads: ThreadPoolExecutor
) -> None:
    database.appends.append(claims[2], [event(1, "before")], 1)
    gate = Gate(database)
    answers = [one.result() for one in queued(gate, Appends(gate.connection), threads, claims)]
    assert [one.used for one in answers] == [n == 2 for n in range(PARTITIONS)]
    assert answers[2].numbers == []
    assert (2, 1, "before") in stored(store)
    assert len(stored(store)) == PARTITIONS


def test_an_id_of_two_partitions_in_one_statement_is_written_once(
    store: str, database: Database, claims: list[Claim], threads: ThreadPoolExecutor
) -> None:
    gate = Gate(database)
    made = Appends(gate.connection)
    first = threads.submit(made.append, claims[0], [event(1, "e0")], 1)
    until(lambda: gate.statements == 1)
    twins = [threads.submit(made.append, claims[n], [event(1, "same")], 1) for n in (1, 2)]
    until(lambda: len(made._waiting) == 2)
    gate.open.set()
    assert first.result().numbers == [1]
    assert sorted(one.result().numbers for one in twins) == [[], [1]]
    assert gate.statements == 2


def test_a_locked_partition_does_not_hold_up_the_others(
    store: str, database: Database, claims: list[Claim], threads: ThreadPoolExecutor
) -> None:
    gate = Gate(database)
    with psycopg.connect(store) as other:
        other.execute("SELECT 1 FROM dyclu.partition WHERE partition = 4 FOR UPDATE")
        answers = queued(gate, Appends(gate.connection), threads, claims)
        for number, one in enumerate(answers):
            assert number == 4 or one.result(timeout=30).numbers == [1]
        assert not answers[4].done()
        other.rollback()
        assert answers[4].result(timeout=30) == Written(True, False, [1])


def test_a_statement_that_fails_is_told_to_all_in_it_and_the_next_one_is_tried(
    store: str,
    database: Database,
    claims: list[Claim],
    threads: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = Gate(database)
    made = Appends(gate.connection)
    with monkeypatch.context() as broken:
        broken.setattr(appends, "_WITHOUT_WAITING", "SELECT broken")
        for one in queued(gate, made, threads, claims):
            with pytest.raises(StoreError, match="refuses a statement"):
                one.result()
    assert stored(store) == []
    assert made.append(claims[0], [event(1, "e0")], 1).numbers == [1]
