"""`PostgresJournal`: only the owner writes, and its copy has what the database has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from dyclu.errors import FileError, OptionError
from dyclu.service.cluster.leases import Leases
from dyclu.service.disk.journal import StoreError
from dyclu.service.disk.postgres.database import Claim, Database, OwnershipLost
from dyclu.service.disk.postgres.journal import PostgresJournal
from dyclu.service.disk.postgres.schema import TABLES
from dyclu.service.disk.sqlite.reader import JournalReader
from dyclu.service.engine.lines import (
    DecisionBody,
    ErasureBody,
    EventBody,
    Line,
    RewardBody,
    encode,
    make_line,
)

USED: list[Database] = []
"""Databases that a test has used."""


def database(store: str) -> Database:
    USED.append(Database(store))
    return USED[-1]


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while USED:
        USED.pop().close()


def leases(store: str, name: str = "a", lease: float = 60.0) -> Leases:
    used = database(store)
    used.begin()
    made = Leases(used, name, name, lease=lease)
    made.set_up({"shop": 2})
    assert made.register("http://nowhere")
    return made


def opened(store: str, claim: Claim, folder: Path) -> PostgresJournal:
    folder.mkdir(parents=True)
    return PostgresJournal.open(database(store), claim, folder / "j.db", dim=2, features=None)


def event(seq: int, id: str, user: str = "ana") -> bytes:
    return encode(make_line(seq, seq, EventBody([1.0, 0.1], 0.7), ref=id, user=user))


def lines(path: Path) -> list[Line]:
    with closing(JournalReader(path)) as reader:
        return list(reader.after(0))


def test_a_former_owner_writes_nothing(store: str, tmp_path: Path) -> None:
    former, present = leases(store, "a", lease=0.0), leases(store, "b")
    (claim, _) = sorted(former.claim(["shop"], 2), key=lambda one: one.partition)
    old = opened(store, claim, tmp_path / "a")
    assert old.append([event(1, "e1")]) == set()
    taken = {one.partition: one for one in present.claim(["shop"], 2)}[claim.partition]
    assert taken.epoch == claim.epoch + 1
    with pytest.raises(OwnershipLost):
        old.append([event(2, "e2")])
    with pytest.raises(OwnershipLost):
        old.erase("ana", encode(make_line(2, 2, ErasureBody())))
    with pytest.raises(OwnershipLost):
        old.reopen()
    for write in (
        lambda: old.note("served", "x"),
        lambda: old.put_part(1, "base.state", 0, b"x"),
        lambda: old.put_in_force(1, 1),
        lambda: old.drop_lines([1]),
        lambda: old.end_erasure("ana"),
    ):
        with pytest.raises(OwnershipLost):
            write()
    new = opened(store, taken, tmp_path / "b")
    assert [line.ref for line in lines(new.path)] == ["e1"]
    assert new.append([event(2, "e3")]) == set()


def test_of_two_owners_with_one_epoch_only_the_one_that_the_database_names_writes(
    store: str, tmp_path: Path
) -> None:
    claim = leases(store, "a").claim(["shop"], 1)[0]
    old = opened(store, claim, tmp_path / "a")
    old.append([event(1, "e1")])
    theirs = _failed_over(store, claim)
    for write in (
        lambda: old.append([event(2, "e2")]),
        lambda: old.note("served", "x"),
        lambda: old.erase("ana", encode(make_line(2, 2, ErasureBody()))),
        old.reopen,
    ):
        with pytest.raises(OwnershipLost):
            write()
    new = opened(store, theirs, tmp_path / "c")
    assert new.append([event(2, "e3")]) == set()
    with psycopg.connect(store, autocommit=True) as tables:
        tables.execute("UPDATE dyclu.partition SET owner = NULL")
    with pytest.raises(OwnershipLost):
        opened(store, theirs, tmp_path / "d")


def test_a_take_over_that_a_failover_lost_before_the_journal_was_opened_is_void(
    store: str, tmp_path: Path
) -> None:
    former = leases(store, "a")
    claim = former.claim(["shop"], 1)[0]
    theirs = _failed_over(store, claim)
    assert (theirs.epoch, theirs.owner) == (claim.epoch, "c")
    with pytest.raises(OwnershipLost):
        opened(store, claim, tmp_path / "a")
    # What is given up late is not taken from the owner of the same epoch.
    former.release(claim)
    found = leases(store, "b").overview(["shop"]).of("c")
    assert found["shop", claim.partition] == claim.epoch
    assert opened(store, theirs, tmp_path / "c").append([event(1, "e1")]) == set()


def _failed_over(store: str, claim: Claim) -> Claim:
    """Let a failover lose the take-over; then c takes the partition over, with the same epoch."""
    with psycopg.connect(store, autocommit=True) as tables:
        tables.execute(
            "UPDATE dyclu.partition SET owner = NULL, epoch = epoch - 1 WHERE partition = %s",
            (claim.partition,),
        )
    found = {one.partition: one for one in leases(store, "c").claim(["shop"], 2)}
    return found[claim.partition]


def test_a_line_whose_number_another_writer_used_is_not_taken_for_one_whose_id_is_taken(
    store: str, tmp_path: Path
) -> None:
    claim = leases(store).claim(["shop"], 1)[0]
    one, other = (opened(store, claim, tmp_path / name) for name in ("a", "b"))
    one.append([event(1, "e1")])
    with pytest.raises(StoreError, match="line 1 or a later one"):
        other.append([event(1, "e2"), event(2, "e3")])
    other.reopen()
    assert [line.ref for line in lines(other.path)] == ["e1"]
    assert other.append([event(2, "e1"), event(3, "e3")]) == {2}


@pytest.mark.parametrize("in_doubt", [False, True])
def test_a_database_that_lost_written_lines_is_refused(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_doubt: bool
) -> None:
    claim = leases(store).claim(["shop"], 1)[0]
    journal = opened(store, claim, tmp_path / "a")
    journal.append([event(1, "e1"), event(2, "e2")])
    journal.erase("bea", encode(make_line(3, 3, ErasureBody())))
    if in_doubt:
        with monkeypatch.context() as broken:
            broken.setattr(journal._copy, "end_erasure", _fails)
            with pytest.raises(StoreError, match="broke"):
                journal.end_erasure("bea")
    fresh = opened(store, claim, tmp_path / "b")
    with psycopg.connect(store, autocommit=True) as tables:
        tables.execute("DELETE FROM dyclu.journal WHERE seq = 3")
    for one in (journal, journal, fresh):
        with pytest.raises(StoreError, match="ends at line 2, line 3 was written"):
            one.reopen()


def test_a_line_that_was_not_written_is_not_missed(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = opened(store, leases(store).claim(["shop"], 1)[0], tmp_path / "a")
    journal.append([event(1, "e1", "bea")])
    with monkeypatch.context() as broken:
        # The copy has the erasure then, and the database has not.
        broken.setattr("dyclu.service.disk.postgres.journal._INSERT", "broken")
        with pytest.raises(StoreError):
            journal.erase("ana", encode(make_line(2, 2, ErasureBody())))
    assert [line.seq for line in lines(journal.path)] == [1, 2]
    journal.reopen()
    assert [line.ref for line in lines(journal.path)] == ["e1"]


def _fails(*_: Any) -> Any:
    raise StoreError("the connection broke")


def test_a_lease_that_lasts_is_not_taken_over_and_a_released_partition_is(
    store: str, tmp_path: Path
) -> None:
    one, other = leases(store, "a"), leases(store, "b")
    claims = one.claim(["shop"], 9)
    assert len(claims) == 2
    assert other.claim(["shop"], 9) == []
    one.release(claims[0])
    assert [claim.partition for claim in other.claim(["shop"], 9)] == [claims[0].partition]
    # A release that comes too late changes nothing.
    one.release(claims[0])
    assert other.overview(["shop"]).of("b") == {("shop", claims[0].partition): claims[0].epoch + 1}


def test_an_id_is_used_once_per_tenant_and_a_slot_rewarded_once(store: str, tmp_path: Path) -> None:
    first, second = (
        opened(store, claim, tmp_path / str(claim.partition))
        for claim in leases(store).claim(["shop"], 2)
    )
    body = DecisionBody("a", [1.0, 0.0], 0.0, 1.0, 0, 10, 1)
    decided = make_line(1, 1, body, ref="d", user="ana")
    assert first.append([encode(decided)]) == set()
    assert second.append([encode(decided), event(2, "d")]) == {1}
    assert second.taken_elsewhere("d", "decision")
    assert not first.taken_elsewhere("d", "decision")
    rewards = [make_line(seq, 3, RewardBody(0.5), of=1) for seq in (2, 3)]
    assert first.append([encode(rewards[0])]) == set()
    assert first.append([encode(rewards[1])]) == {3}
    assert [line.seq for line in lines(first.path)] == [1, 2]
    assert [line.seq for line in lines(second.path)] == [2]


def test_lines_whose_commit_was_not_seen_are_found_when_it_goes_on(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = opened(store, leases(store).claim(["shop"], 1)[0], tmp_path / "a")
    journal.append([event(1, "e1")])

    def fails(_: Any) -> Any:
        raise StoreError("the connection broke")

    with monkeypatch.context() as broken:
        broken.setattr(journal._copy, "append", fails)
        with pytest.raises(StoreError):
            journal.append([event(2, "e2")])
    assert [line.ref for line in lines(journal.path)] == ["e1"]
    journal.reopen()
    assert [line.ref for line in lines(journal.path)] == ["e1", "e2"]
    with monkeypatch.context() as broken:
        broken.setattr(journal._copy, "end_erasure", fails)
        with pytest.raises(StoreError):
            journal.end_erasure("nobody")
    journal.reopen()
    assert [line.ref for line in lines(journal.path)] == ["e1", "e2"]


def test_an_erasure_reaches_lines_and_shared_snapshots(store: str, tmp_path: Path) -> None:
    claim = leases(store).claim(["shop"], 1)[0]
    journal = opened(store, claim, tmp_path / "a")
    journal.append([event(1, "e1"), event(2, "e2", "bea")])
    snapshots = tmp_path / "a" / "snapshots"
    stem = f"{0:08d}-{2:020d}"
    for suffix in (".policy", ".state"):
        (snapshots / f"{stem}{suffix}").write_bytes(b"about ana" * 200_000)
    for write in journal.sharing(snapshots):
        write()
    assert list(journal.sharing(snapshots)) == []
    again = opened(store, claim, tmp_path / "b")
    fetched = (tmp_path / "b" / "snapshots" / f"{stem}.state").read_bytes()
    assert fetched == b"about ana" * 200_000
    # One that is being shared while a user is erased is not put in force.
    *_, in_force = list(again.sharing(_copied(snapshots, tmp_path / "c", f"{0:08d}-{3:020d}")))
    journal.erase("ana", encode(make_line(4, 4, ErasureBody())))
    in_force()
    with psycopg.connect(store) as tables:
        assert tables.execute("SELECT count(*) FROM dyclu.snapshot").fetchone() == (0,)
        users = tables.execute('SELECT "user" FROM dyclu.journal ORDER BY seq').fetchall()
        assert users == [("bea",), (None,)]
        noted = tables.execute('SELECT "user" FROM dyclu.erasing').fetchall()
        assert noted == [("ana",)]
    journal.end_erasure("ana")
    with closing(JournalReader(journal.path)) as reader:
        assert reader.being_erased() == []
        assert reader.facts().epoch == 1


def _copied(snapshots: Path, to: Path, stem: str) -> Path:
    to.mkdir()
    for path in snapshots.iterdir():
        (to / f"{stem}{path.suffix}").write_bytes(path.read_bytes())
    return to


def test_a_database_without_the_guarantees_is_refused(store: str) -> None:
    name = store.rpartition("/")[2]
    for setting, value in (("synchronous_commit", "off"), ("default_transaction_read_only", "on")):
        with psycopg.connect(store, autocommit=True) as connection:
            connection.execute(f"ALTER DATABASE {name} SET {setting} = {value}")
        with pytest.raises(FileError, match=r"synchronous_commit = off|read_only = on"):
            database(store).begin()
        with psycopg.connect(store, autocommit=True) as connection:
            connection.execute("SET default_transaction_read_only = off")
            connection.execute(f"ALTER DATABASE {name} RESET {setting}")
    database(store).begin()


def test_tables_of_a_version_that_is_not_known_are_refused(store: str) -> None:
    database(store).begin()
    for version in ("0", "3"):
        with psycopg.connect(store) as connection:
            connection.execute(
                "UPDATE dyclu.meta SET value = %s WHERE name = 'version'", (version,)
            )
        with pytest.raises(FileError, match=f"version {version}, this dyclu works with version 2"):
            database(store).begin()


def test_tables_of_version_1_are_brought_up_to_date_with_what_they_hold(
    store: str, tmp_path: Path
) -> None:
    with psycopg.connect(store) as connection:
        connection.execute(TABLES)
        connection.execute("INSERT INTO dyclu.meta VALUES ('version', '1'), ('key', 'k')")
        connection.execute("INSERT INTO dyclu.tenant VALUES ('shop', 2)")
        connection.execute("INSERT INTO dyclu.partition VALUES ('shop', 0, 7), ('shop', 1, 7)")
    made = leases(store)
    assert made.key() == "k"
    claim = made.claim(["shop"], 1)[0]
    assert claim.epoch == 8
    assert opened(store, claim, tmp_path / "a").append([event(1, "e1")]) == set()
    # Processes that were started before go on with the statements of then.
    with psycopg.connect(store) as connection:
        connection.execute("INSERT INTO dyclu.process VALUES ('x', 'x', '', false, now())")
        version = connection.execute("SELECT value FROM dyclu.meta WHERE name = 'version'")
        assert version.fetchone() == ("2",)


def test_the_number_of_partitions_cannot_change(store: str) -> None:
    made = leases(store)
    with pytest.raises(OptionError, match="has 2 partitions"):
        made.set_up({"shop": 3})


def test_no_password_is_told(store: str, caplog: pytest.LogCaptureFixture) -> None:
    missing = store.rpartition(":")[0] + ":1/postgres"
    refused = "does not answer"
    for url, why in (
        (missing, refused),
        ("postgresql://dyclu@127.0.0.1:1/d?password=not-shown", refused),
        ("postgresql://dyclu@127.0.0.1:1/d?password=not-shown%zz", "cannot be read"),
        ("postgresql://dyclu@127.0.0.1:1/d?password=a&not-shown", "cannot be read"),
        ("postgresql://dyclu:not-shown%zz@127.0.0.1:1/d", "cannot be read"),
    ):
        with pytest.raises(FileError, match=why) as told:
            database(url).begin()
        assert "127.0.0.1:1/" in str(told.value)
        assert "not-shown" not in repr(told.value) + caplog.text


def test_an_error_that_callers_may_see_does_not_tell_where_the_database_is(
    store: str, caplog: pytest.LogCaptureFixture
) -> None:
    port = store.rpartition(":")[2].partition("/")[0]
    used = database(store)
    with pytest.raises(StoreError) as told, used.connection() as connection:
        connection.execute("SELECT 1 / 0")
    assert str(told.value) == "the database refuses a statement; the log says why"
    away = database(store.replace(port, "1"))
    for _ in range(2):
        with pytest.raises(StoreError) as told, away.connection():
            pass
        assert str(told.value) == "the database does not answer"
    assert [one.message.count("127.0.0.1") > 0 for one in caplog.records] == [True, True]
    assert "division by zero" in caplog.text


def test_only_a_broken_connection_closes_the_idle_ones(store: str) -> None:
    used = database(store)
    for statement, closed in (
        ("SELECT 1 / 0", False),
        ("SELECT pg_terminate_backend(pg_backend_pid())", True),
    ):
        with used.connection() as first:
            with used.connection() as idle:
                pass
            with used.connection() as same:
                assert same is idle
            with used.connection(), used.connection() as other:
                pass
        assert not other.closed
        with pytest.raises(StoreError), used.connection() as connection:
            connection.execute(statement)
        left = [one for one in (first, idle, other) if one is not connection]
        assert {one.closed for one in left} == {closed}
