"""`Appends`: lines of several partitions are written together, and each claim is checked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
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


class Counted:
    """Connections of a database, and the number of statements that were made."""

    def __init__(self, database: Database) -> None:
        self._database, self.statements = database, 0

    @contextmanager
    def connection(self) -> Iterator[Any]:
        self.statements += 1
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
def counted(database: Database) -> Counted:
    return Counted(database)


@pytest.fixture
def made(counted: Counted) -> Iterator[Appends]:
    one = Appends(counted.connection)
    yield one
    one.close()


def event(seq: int, id: str) -> bytes:
    return encode(make_line(seq, seq, EventBody([1.0, 0.1], 0.7), ref=id, user="ana"))


Answer = Written | None | BaseException


def appended(made: Appends, wanted: Sequence[tuple[Claim, bytes]]) -> list[Answer]:
    """Append a first line to each of several partitions, in one turn of the loop."""

    async def all() -> list[Answer]:
        waiters = [made.append_soon(claim, [line], 1) for claim, line in wanted]
        return await asyncio.gather(*waiters, return_exceptions=True)

    return asyncio.run(all())


def first_lines(claims: Sequence[Claim]) -> list[tuple[Claim, bytes]]:
    return [(claim, event(1, f"e{claim.partition}")) for claim in claims]


def stored(store: str) -> list[tuple[int, int, str]]:
    with psycopg.connect(store) as connection:
        return connection.execute(
            "SELECT partition, seq, ref FROM dyclu.journal ORDER BY partition, seq"
        ).fetchall()


def test_what_waits_is_written_by_one_statement(
    store: str, claims: list[Claim], made: Appends, counted: Counted
) -> None:
    assert appended(made, first_lines(claims)) == [Written(True, False, [1])] * PARTITIONS
    assert counted.statements == 1
    assert stored(store) == [(n, 1, f"e{n}") for n in range(PARTITIONS)]


def test_what_comes_while_a_statement_is_under_way_is_written_by_the_next_one(
    store: str, claims: list[Claim], database: Database
) -> None:
    under_way, go_on, groups = threading.Event(), threading.Event(), []

    @contextmanager
    def connection() -> Iterator[Any]:
        groups.append(1)
        under_way.set()
        assert go_on.wait(30)
        with database.connection() as one:
            yield one

    made = Appends(connection)

    async def all() -> None:
        first = made.append_soon(claims[0], [event(1, "e0")], 1)
        await asyncio.to_thread(under_way.wait)
        others = [made.append_soon(claim, [line], 1) for claim, line in first_lines(claims[1:])]
        go_on.set()
        await asyncio.gather(first, *others)

    asyncio.run(all())
    made.close()
    assert len(groups) == 2
    assert len(stored(store)) == PARTITIONS


def test_what_comes_shortly_after_a_statement_waits_and_is_written_by_one(
    store: str,
    claims: list[Claim],
    made: Appends,
    counted: Counted,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(appends, "APART", 0.3)

    async def all() -> None:
        await made.append_soon(claims[0], [event(1, "e0")], 1)
        others = []
        for claim, line in first_lines(claims[1:]):
            others.append(made.append_soon(claim, [line], 1))
            await asyncio.sleep(0.005)
        await asyncio.gather(*others)

    asyncio.run(all())
    assert counted.statements == 2
    assert len(stored(store)) == PARTITIONS


def test_lines_beyond_the_limit_are_written_by_the_next_statement(
    claims: list[Claim], made: Appends, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appends, "MOST", 3 * len(event(1, "e0")))
    assert appended(made, first_lines(claims)) == [Written(True, False, [1])] * PARTITIONS
    assert counted.statements == 3


def test_a_void_claim_writes_nothing_and_the_others_of_the_statement_do(
    store: str, claims: list[Claim], made: Appends
) -> None:
    claims[3] = replace(claims[3], epoch=claims[3].epoch - 1)
    claims[5] = replace(claims[5], owner="b")
    answers = appended(made, first_lines(claims))
    assert [one is None for one in answers] == [n in (3, 5) for n in range(PARTITIONS)]
    assert [row[0] for row in stored(store)] == [0, 1, 2, 4, 6, 7]
    assert made.append(claims[3], [event(1, "e3")], 1) == appends.NOT_HELD


@pytest.mark.parametrize("first", ["former", "present"])
def test_of_two_claims_to_one_partition_in_a_statement_only_the_valid_one_writes(
    store: str, claims: list[Claim], made: Appends, first: str
) -> None:
    # A process has lost the partition and taken it over again, before its former lines were sent.
    former = replace(claims[0], epoch=claims[0].epoch - 1)
    lines = {"former": (former, event(1, "old")), "present": (claims[0], event(1, "new"))}
    order = sorted(lines, key=lambda one: one != first)
    found = dict(zip(order, appended(made, [lines[one] for one in order]), strict=True))
    assert found == {"former": None, "present": Written(True, False, [1])}
    assert stored(store) == [(0, 1, "new")]


def test_a_number_that_is_used_stops_its_partition_only(
    store: str, claims: list[Claim], made: Appends
) -> None:
    made.append(claims[2], [event(1, "before")], 1)
    answers = appended(made, first_lines(claims))
    assert answers == [Written(True, n == 2, [1] * (n != 2)) for n in range(PARTITIONS)]
    assert (2, 1, "before") in stored(store)
    assert len(stored(store)) == PARTITIONS


def test_an_id_of_two_partitions_in_one_statement_is_written_once(
    store: str, claims: list[Claim], made: Appends, counted: Counted
) -> None:
    found = appended(made, [(claims[n], event(1, "same")) for n in (1, 2)])
    assert sorted(one.numbers for one in found if isinstance(one, Written)) == [[], [1]]
    assert counted.statements == 1
    assert len(stored(store)) == 1


def test_a_locked_partition_does_not_hold_up_the_others(
    store: str, claims: list[Claim], made: Appends
) -> None:
    with psycopg.connect(store) as other:
        other.execute("SELECT 1 FROM dyclu.partition WHERE partition = 4 FOR UPDATE")
        answers = appended(made, first_lines(claims))
        assert [one is None for one in answers] == [n == 4 for n in range(PARTITIONS)]
        other.rollback()
    assert made.append(claims[4], [event(1, "e4")], 1) == Written(True, False, [1])
    assert len(stored(store)) == PARTITIONS


def test_a_statement_that_fails_is_told_to_all_in_it_and_the_next_one_is_tried(
    store: str, claims: list[Claim], made: Appends, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(appends, "_WITHOUT_WAITING", "SELECT broken")
        for one in appended(made, first_lines(claims)):
            assert isinstance(one, StoreError)
            assert "refuses a statement" in str(one)
    assert stored(store) == []
    assert appended(made, first_lines(claims[:1])) == [Written(True, False, [1])]
