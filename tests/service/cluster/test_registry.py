"""Partitions learn from each other by a table of contributions; what they absorb is lines."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest

from dyclu.contributions import Contribution
from dyclu.policies import load
from dyclu.service.cluster import registry as registries
from dyclu.service.cluster.leases import Leases
from dyclu.service.cluster.places import partition_of
from dyclu.service.cluster.registry import PartitionShard, SharedRegistry
from dyclu.service.disk.journal import StoreError
from dyclu.service.disk.postgres.database import Claim, Database, OwnershipLost
from dyclu.service.engine.lines import OTHERS
from dyclu.service.spec import PolicySpec
from dyclu.service.tenant import erasures, sharing
from dyclu.service.tenant.tenant import Tenant
from tests.service.bench import bits
from tests.service.cluster.test_cluster import PATIENCE, insist, member
from tests.service.crash import saved, serial
from tests.service.postgres import Postgres
from tests.service.running import Running, wait_until

TASTES = np.array([[1.0, -0.6], [-0.4, 1.0]])
ATLAS: dict[str, Any] = {"policy": "atlas", "options": {"noise": 0.1}}
LINUCB: dict[str, Any] = {"policy": "linucb", "options": {"alpha": 0.5, "shared": True}}


def users(partition: int, count: int, of: int = 2) -> list[str]:
    """Return users of a partition."""
    names = (f"user-{n}" for n in range(10_000))
    return [name for name in names if partition_of(name, of) == partition][:count]


def tenant(made: Running, partition: int) -> Tenant:
    keeper = made.service.keeper
    assert keeper is not None
    return keeper.serving["default", partition].tenant


def learn(made: Running, user: str, rounds: int, *, taste: int = 0, seed: int = 0) -> None:
    rng = np.random.default_rng([seed, taste, *user.encode()])
    X = rng.normal(size=(rounds, 2))
    y = X @ TASTES[taste] + 0.1 * rng.normal(size=rounds)
    rows = [
        {"user": user, "features": x, "reward": reward}
        for x, reward in zip(X.tolist(), y.tolist(), strict=True)
    ]
    answer = insist(lambda: made.http.post("/v1/observations", json={"observations": rows}))
    assert answer.status_code == 200, answer.text


def table(store: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(store) as rows:
        return rows.execute(
            "SELECT shard, model, built, number, bytes FROM dyclu.contribution "
            "ORDER BY shard, model"
        ).fetchall()


def lines(store: str, partition: int) -> list[str]:
    with psycopg.connect(store) as rows:
        found = rows.execute(
            "SELECT body FROM dyclu.journal WHERE partition = %s AND kind = 'absorbed' "
            "ORDER BY seq",
            (partition,),
        )
        return [body for (body,) in found]


def knows_all(made: Running, store: str) -> bool:
    """Whether each partition has published its news, and absorbed what the others have."""
    rows = [(Contribution.from_bytes(data), shard) for shard, *_, data in table(store)]
    owned = [tenant(made, number) for number in range(2)]
    spoken = all(
        not one.state.policy.contributions(
            f"{number}@{one.rules.policy}",
            since=[c for c, of in rows if of[0] == f"{number}"],
        )
        for number, one in enumerate(owned)
    )
    return spoken and not any(
        one.state.absorbed.is_news(c.shard, c.model, c.age)
        for number, one in enumerate(owned)
        for c, shard in rows
        if shard[0] != f"{number}"
    )


def settle(made: Running, store: str) -> None:
    wait_until(lambda: knows_all(made, store), seconds=PATIENCE)


def replayed(store: str, partition: int, spec: PolicySpec, folder: Path) -> bytes:
    """Return what the lines of the database give, without state, engine and service."""
    rows = sqlite3.connect(":memory:")
    rows.execute("CREATE TABLE journal (seq PRIMARY KEY, at, kind, ref, user, of, body)")
    rows.execute("CREATE TABLE meta (name, value)")
    rows.execute("INSERT INTO meta VALUES ('base', 0)")
    with psycopg.connect(store) as journal:
        rows.executemany(
            "INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?, ?)",
            journal.execute(
                'SELECT seq, at, kind, ref, "user", of, body FROM dyclu.journal '
                "WHERE partition = %s ORDER BY seq",
                (partition,),
            ).fetchall(),
        )
    return saved(serial(rows, spec, folder), folder)


def follows_from_its_journal(made: Running, store: str, partition: int, folder: Path) -> bool:
    one = tenant(made, partition)
    return replayed(store, partition, one.rules.spec(), folder) == saved(one.state.policy, folder)


def rewards_until_located(made: Running, partition: int) -> int:
    (user,) = users(partition, 1, of=4)
    policy = tenant(made, partition).state.policy
    for count in range(1, 40):
        learn(made, user, 1, seed=count)
        if policy.locate(user).located:
            return count
    return 40


def test_a_taste_learnt_in_one_partition_locates_new_users_of_others_sooner(
    store: str, server: Postgres, tmp_path: Path
) -> None:
    """One new user in each of partitions 1 to 3, whose taste is known in partition 0 only."""
    needed: dict[bool, list[int]] = {}
    for share, where in ((True, store), (False, server.fresh())):
        with member(where, tmp_path, name="a", share=share, partitions=4, **ATLAS) as a:
            for user in users(0, 4, of=4):
                learn(a, user, 25)
            if share:
                wait_until(lambda: all(lines(store, n) for n in (1, 2, 3)), seconds=PATIENCE)
            needed[share] = [rewards_until_located(a, partition) for partition in (1, 2, 3)]
            assert bool(table(where)) == bool(lines(where, 1)) == share
            if share:
                wait_until(
                    lambda: follows_from_its_journal(a, store, 1, tmp_path), seconds=PATIENCE
                )
    assert np.mean(needed[True]) < 0.75 * np.mean(needed[False]), needed


def test_what_was_absorbed_and_published_is_known_after_a_restart_and_a_take_over(
    store: str, tmp_path: Path
) -> None:
    with member(store, tmp_path, name="a", **LINUCB) as a:
        # So many more that they are news also where the others have been absorbed.
        for partition, rounds in ((0, 20), (1, 150)):
            for user in users(partition, 3):
                learn(a, user, rounds)
        settle(a, store)
        for partition in range(2):
            assert follows_from_its_journal(a, store, partition, tmp_path)
        expected = [bits(tenant(a, n).state, tmp_path) for n in range(2)]
        published, absorbed = table(store), [lines(store, n) for n in range(2)]
        assert {shard for shard, *_ in published} == {"0@linucb", "1@linucb"}
        assert all(absorbed)
    # Without snapshots it replays the absorbed lines.
    with psycopg.connect(store) as tables:
        tables.execute("DELETE FROM dyclu.snapshot WHERE partition = 0")
        tables.execute("DELETE FROM dyclu.fact WHERE name = 'snapshot' AND partition = 0")
    with member(store, tmp_path, name="b", **LINUCB) as b:
        assert [bits(tenant(b, n).state, tmp_path) for n in range(2)] == expected
        settle(b, store)
        learn(b, users(0, 1)[0], 1)
        # Nothing is published or absorbed a second time.
        assert table(store) == published
        assert [lines(store, n) for n in range(2)] == absorbed


def test_late_rows_and_repeated_rows_are_not_absorbed_again(store: str, tmp_path: Path) -> None:
    def put_again(data: bytes) -> None:
        with psycopg.connect(store) as rows:
            rows.execute(
                "UPDATE dyclu.contribution SET bytes = %s, "
                "number = nextval('dyclu.contribution_numbers') WHERE shard = '0@linucb'",
                (data,),
            )
            rows.execute("SELECT pg_notify('dyclu_contribution', '')")

    with member(store, tmp_path, name="a", **LINUCB) as a:
        learn(a, users(0, 1)[0], 20)
        settle(a, store)
        old = table(store)[0][-1]
        learn(a, users(0, 1)[0], 400, seed=1)
        wait_until(lambda: table(store)[0][-1] != old, seconds=PATIENCE)
        settle(a, store)
        new, absorbed = table(store)[0][-1], lines(store, 1)
        registry = a.service.keeper.registry  # type: ignore[union-attr]
        for data in (old, new, new):
            put_again(data)
            wait_until(
                lambda data=data: registry.after("default", 0)[-1].data == data, seconds=PATIENCE
            )
        learn(a, users(1, 1)[0], 1)
        assert lines(store, 1) == absorbed
        assert follows_from_its_journal(a, store, 1, tmp_path)


def test_without_the_registry_partitions_go_on_and_say_how_old_their_knowledge_is(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dyclu.service.cluster.registry.STALE", 4.0)

    def rename(old: str, new: str) -> None:
        with psycopg.connect(store) as tables:
            tables.execute(f"ALTER TABLE dyclu.{old} RENAME TO {new}")

    with member(store, tmp_path, name="a", **LINUCB) as a:
        rename("contribution", "away")
        wait_until(lambda: a.http.get("/readyz").json()["status"] == "degraded", seconds=PATIENCE)
        assert "other partitions" in a.http.get("/readyz").json()["reason"]
        learn(a, users(0, 1)[0], 20)
        assert insist(lambda: a.decide(users(1, 1)[0])).status_code == 200
        told = a.http.get("/v1/cluster").json()["shared"]
        assert told["age"] >= 4.0
        assert "refuses" in told["trouble"]
        assert not lines(store, 1)
        wait_until(lambda: tenant(a, 0).sharing.trouble is not None, seconds=PATIENCE)  # type: ignore[union-attr]
        rename("away", "contribution")
        wait_until(lambda: lines(store, 1), seconds=PATIENCE)
        wait_until(lambda: a.http.get("/readyz").json()["status"] == "ok", seconds=PATIENCE)
        told = a.http.get("/v1/cluster").json()["shared"]
        assert (told["trouble"], told["contributions"]) == (None, 1)


def test_an_erasure_replaces_what_was_published_and_reaches_journals_of_other_partitions(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "OUTDATED", 10.0**6)
    gone, stays = users(0, 2)
    with member(store, tmp_path, name="a", **LINUCB) as a:
        learn(a, gone, 30)
        learn(a, stays, 30)
        learn(a, users(1, 1)[0], 600)
        settle(a, store)
        before, absorbed = table(store), lines(store, 1)
        old = Contribution.from_bytes(before[0][-1])
        assert a.http.delete(f"/v1/users/{gone}").status_code == 202
        wait_until(lambda: table(store)[0][2] > 0, seconds=PATIENCE)
        now = Contribution.from_bytes(table(store)[0][-1])
        # The newer sums are those of the other user alone.
        assert (now.count, now.epoch > old.epoch) == (30, True)
        settle(a, store)
        wait_until(lambda: tenant(a, 1).state.absorbed.outdated, seconds=PATIENCE)
        assert lines(store, 1)[: len(absorbed)] == absorbed
        others = table(store)[1]
        monkeypatch.setattr(sharing, "OUTDATED", 0.0)
        wait_until(lambda: not set(lines(store, 1)) & set(absorbed), seconds=PATIENCE)
        wait_until(lambda: len(lines(store, 1)) == 1, seconds=PATIENCE)
        wait_until(lambda: not tenant(a, 1).rebuilding, seconds=PATIENCE)
        wait_until(lambda: follows_from_its_journal(a, store, 1, tmp_path), seconds=PATIENCE)
        assert tenant(a, 1).state.absorbed.outdated is None
        # Nobody of partition 1 was erased: what it has published stays, and nothing goes round.
        assert table(store)[1] == others
        copy = tenant(a, 1).files
        for folder in (copy.folder / "snapshots",):
            assert not any(old.gram.tobytes() in path.read_bytes() for path in folder.iterdir())
        with psycopg.connect(store) as tables:
            names = tables.execute('SELECT DISTINCT "user" FROM dyclu.erasing').fetchall()
        assert names == []


def test_what_was_erased_is_absorbed_again_also_if_the_erasure_failed_at_first(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "OUTDATED", 0.0)
    monkeypatch.setattr(erasures, "RETRY", 0.5)
    gone, stays = users(0, 2)
    with member(store, tmp_path, name="a", **LINUCB) as a:
        learn(a, gone, 30)
        learn(a, stays, 30)
        settle(a, store)
        files, failed = tenant(a, 1).files, list[str]()
        without = files.without

        def once(user: str, decisions: list[int]) -> Iterator[Any]:
            if not failed:
                failed.append(user)
                raise OSError("the disk is away for a moment")
            yield from without(user, decisions)

        monkeypatch.setattr(files, "without", once)
        assert a.http.delete(f"/v1/users/{gone}").status_code == 202
        wait_until(lambda: failed == [OTHERS], seconds=PATIENCE)
        wait_until(lambda: len(lines(store, 1)) == 1, seconds=PATIENCE)
        wait_until(lambda: not tenant(a, 1).rebuilding, seconds=PATIENCE)
        wait_until(lambda: follows_from_its_journal(a, store, 1, tmp_path), seconds=PATIENCE)


def test_a_registry_that_takes_nothing_delays_nothing_else(store: str, tmp_path: Path) -> None:
    """Erasures need threads, and commits connections: waiting publishers must not have them all."""
    count = 12
    with (
        psycopg.connect(store) as other,
        member(store, tmp_path, name="a", partitions=count, **LINUCB) as a,
    ):
        other.execute("SELECT pg_advisory_xact_lock(%s)", (registries.LOCK,))
        for partition in range(count):
            learn(a, users(partition, 1, of=count)[0], 20)
        shared = [tenant(a, partition).sharing for partition in range(count)]
        # Each has news: it waits, or has waited for too long.
        wait_until(lambda: all(one.trouble or one._asked >= 20 for one in shared), seconds=PATIENCE)  # type: ignore[union-attr]
        assert not table(store)
        assert a.http.delete(f"/v1/users/{users(0, 1, of=count)[0]}").status_code == 202
        learn(a, users(1, 1, of=count)[0], 1)
        other.rollback()
        # Not all: where the first ones have been absorbed, the rest is no news.
        wait_until(lambda: table(store), seconds=PATIENCE)


def test_what_is_in_a_base_is_erased_too(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Absorbed lines are retired like others; a base without its foreign sums replaces it."""
    with member(store, tmp_path, name="a", keep="20 lines", **LINUCB) as a:
        learn(a, users(0, 1)[0], 30)
        learn(a, users(1, 1)[0], 4)
        settle(a, store)
        for turn in range(15):
            learn(a, users(1, 1)[0], 4, seed=turn)
        wait_until(lambda: not lines(store, 1), seconds=PATIENCE)
        old = next(Contribution.from_bytes(row[-1]) for row in table(store) if row[0][0] == "0")
        base = (
            "SELECT string_agg(bytes, '' ORDER BY file, part) FROM dyclu.base WHERE partition = 1"
        )

        def in_base() -> bool:
            with psycopg.connect(store) as tables:
                return old.gram.tobytes() in tables.execute(base).fetchone()[0]  # type: ignore[index]

        assert in_base()
        monkeypatch.setattr(sharing, "OUTDATED", 0.0)
        assert a.http.delete(f"/v1/users/{users(0, 1)[0]}").status_code == 202
        wait_until(lambda: not in_base(), seconds=PATIENCE)


def test_a_former_owner_publishes_nothing(store: str) -> None:
    database = Database(store)
    database.begin()
    Leases(database, "me", "me", lease=10.0).set_up({"shop": 1})
    leases = Leases(database, "me", "me", lease=10.0)
    leases.register("http://127.0.0.1:1")
    (claim,) = leases.claim(["shop"], 1)
    registry = SharedRegistry(database)
    shard = PartitionShard(registry, database, claim, "linucb")
    one = Contribution("0@linucb", 0, 0, "linucb", np.eye(2), np.ones(2), 2.0, 2)
    shard.publish(0, [one])
    assert [row.contribution for row in shard.own()] == [one]
    leases.release(claim)
    leases.claim(["shop"], 1)
    newer = Contribution("0@linucb", 0, 0, "linucb", np.eye(2), np.ones(2), 2.0, 9)
    for job in (lambda: shard.publish(0, [newer]), shard.own, lambda: shard.leave(stays=True)):
        with pytest.raises(OwnershipLost):
            job()
    assert [Contribution.from_bytes(data) for *_, data in table(store)] == [one]
    wrong = PartitionShard(registry, database, Claim("shop", 0, claim.epoch, "you"), "linucb")
    with pytest.raises(OwnershipLost):
        wrong.publish(0, [newer])
    registry.close()
    database.close()


def test_who_waits_for_a_locked_partition_does_not_keep_others_from_publishing(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A former owner that wakes up waits for the next one, which copies a long journal."""
    monkeypatch.setattr(registries, "PATIENCE", "300ms")
    database = Database(store)
    database.begin()
    leases = Leases(database, "me", "me", lease=10.0)
    leases.set_up({"shop": 2})
    leases.register("http://127.0.0.1:1")
    registry = SharedRegistry(database)
    claims = leases.claim(["shop"], 2)
    late, other = (PartitionShard(registry, database, claim, "linucb") for claim in claims)
    told, ended = Contribution("x", 0, 0, "linucb", np.eye(2), np.ones(2), 2.0, 2), list[str]()

    def publish() -> None:
        with pytest.raises(StoreError):
            late.publish(0, [told])
        ended.append("late")

    with psycopg.connect(store) as holder:
        holder.execute(
            "SELECT 1 FROM dyclu.partition WHERE partition = %s FOR UPDATE", (claims[0].partition,)
        )
        waiting = threading.Thread(target=publish, daemon=True)
        waiting.start()
        wait_until(lambda: _waits(store), seconds=PATIENCE)
        publishing = threading.Thread(target=other.publish, args=(0, [told]), daemon=True)
        publishing.start()
        publishing.join(PATIENCE)
        assert not publishing.is_alive()
        waiting.join(PATIENCE)
    assert ended == ["late"]
    assert [shard for shard, *_ in table(store)] == [other.name]
    registry.close()
    database.close()


def _waits(store: str) -> bool:
    with psycopg.connect(store) as server:
        found = server.execute(
            "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
            "AND datname = current_database()"
        )
        return found.fetchone() is not None


def test_a_partition_that_shares_no_more_withdraws_what_it_had_published_and_absorbed(
    store: str, tmp_path: Path
) -> None:
    with member(store, tmp_path, name="a", **LINUCB) as a:
        for partition, rounds in ((0, 20), (1, 200)):
            learn(a, users(partition, 1)[0], rounds)
        settle(a, store)
        assert lines(store, 0)
        assert lines(store, 1)
    with member(store, tmp_path, name="a", share=False, **LINUCB) as a:
        wait_until(lambda: not table(store), seconds=PATIENCE)
        wait_until(lambda: not lines(store, 0) + lines(store, 1), seconds=PATIENCE)
        alone = load(_saved(a, tmp_path))
        wait_until(lambda: not tenant(a, 1).rebuilding, seconds=PATIENCE)
        assert alone.contributions("x", threshold=0.0)[0].count == 200
        assert follows_from_its_journal(a, store, 1, tmp_path)


def _saved(made: Running, folder: Path) -> Path:
    tenant(made, 1).state.policy.save(folder / "alone")
    return folder / "alone"


def test_no_user_can_have_the_name_that_stands_for_other_shards(store: str, tmp_path: Path) -> None:
    with member(store, tmp_path, name="a", **LINUCB) as a:
        rows = [{"user": OTHERS, "features": [1.0, 0.0], "reward": 1.0}]
        answer = a.http.post("/v1/observations", json={"observations": rows})
        assert answer.status_code == 422
        learn(a, users(0, 1)[0], 20)
        settle(a, store)
        absorbed = lines(store, 1)
        assert absorbed
        for number in range(2):
            path = f"/v1/users/{OTHERS}?partition={number}"
            assert a.http.delete(path).status_code in (404, 422)
        assert lines(store, 1) == absorbed


def test_shards_erase_what_is_outdated_at_different_times_within_a_day() -> None:
    waits = [sharing.outdated_after(sharing.name_of(n, "atlas")) for n in range(64)]
    assert min(waits) >= 0.9 * sharing.OUTDATED
    assert max(waits) <= sharing.OUTDATED
    # A replay of each in turn: minutes apart on average, and never all in one minute.
    minutes = [int(wait // 60) for wait in waits]
    assert max(map(minutes.count, minutes)) <= 4
