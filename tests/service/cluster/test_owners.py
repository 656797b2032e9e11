"""The client asks owners directly, and outlives them: retries, not errors, and nothing twice."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from dyclu.client import AsyncClient, Client
from dyclu.client.owners import OWNER, Owners
from dyclu.client.partitions import partition_of, told_by
from dyclu.client.requests import Request
from dyclu.service.tools.loadtest import Load, load
from tests.service.running import process, wait_until

ARMS = {"a0": [1.0, 0.0], "a1": [0.0, 1.0]}
USERS = [f"user-{number}" for number in range(24)]
LEASE, PARTITIONS, PATIENCE = 2.0, 4, 60.0
CONFIG = """
lease = {lease}
store = {store}
[tenants.default]
dim = 2
policy = "linucb"
partitions = {partitions}
"""

Member = tuple[subprocess.Popen[str], str]


@contextmanager
def two_members(folder: Path, store: str) -> Iterator[list[Member]]:
    """Yield processes that share all partitions evenly."""
    config = folder / "cluster.toml"
    config.write_text(
        CONFIG.format(
            lease=LEASE,
            partitions=PARTITIONS,
            store=json.dumps(store),
        )
    )
    flags = (folder / "data", f"--config={config}")
    with process(*flags) as a, process(*flags) as b:
        for _, url in (a, b):
            wait_until(lambda u=url: shares(u) == [PARTITIONS // 2] * 2, seconds=PATIENCE)
            wait_until(lambda u=url: _ready(u), seconds=PATIENCE)
        yield [a, b]


def shares(url: str) -> list[int]:
    told = httpx.get(f"{url}/v1/cluster").json()
    return [one["partitions"] for one in told["processes"] if one["lease"] > 0]


def _ready(url: str) -> bool:
    return bool(httpx.get(f"{url}/readyz").json()["status"] == "ok")


def passed_on(members: list[Member]) -> int:
    """Return how many requests processes have passed on to each other."""
    texts = [httpx.get(f"{url}/metrics").text for _, url in members]
    found = re.findall(r"^dyclu_passed_on_total\{.*\} (\d+)$", "\n".join(texts), re.MULTILINE)
    return sum(map(int, found))


@pytest.fixture
def pair(store: str, tmp_path: Path) -> Iterator[list[Member]]:
    with two_members(tmp_path, store) as made:
        yield made


def test_after_a_warm_up_requests_go_to_the_owners(pair: list[Member]) -> None:
    with Client(pair[0][1]) as client:
        for user in USERS:
            client.reward(client.decide(user, ARMS).decision_id, 1.0)
        before = passed_on(pair)
        assert 0 < before <= 2 * PARTITIONS
        for user in USERS:
            made = client.decide(user, ARMS)
            assert told_by(made.decision_id) == partition_of(user, PARTITIONS)
            client.reward(made.decision_id, 1.0)
            client.observe(user, [1.0, 0.0], 0.5)
            assert client.user(user)["rewards"] == 3
        assert passed_on(pair) == before
    _async_too(pair)


def test_after_one_batch_the_parts_of_batches_go_to_the_owners(pair: list[Member]) -> None:
    rows = [{"user": user, "arms": ARMS} for user in USERS]
    with Client(pair[0][1]) as client:
        client.decide_many(rows)
        before = passed_on(pair)
        assert before == PARTITIONS // 2
        made = client.decide_many(rows)
        for user, one in zip(USERS, made, strict=True):
            assert told_by(one["decision_id"]) == partition_of(user, PARTITIONS)
        rewards = [{"decision_id": one["decision_id"], "value": 1.0} for one in made]
        assert {one["repeated"] for one in client.reward_many(rewards)} == {False}
        assert passed_on(pair) == before
        assert {client.user(user)["rewards"] for user in USERS} == {1}


def test_batches_outlive_an_owner_that_is_killed_and_nothing_is_counted_twice(
    pair: list[Member],
) -> None:
    rows, rounds = [{"user": user, "arms": ARMS} for user in USERS], 0
    with Client(pair[0][1], timeout=1.0) as client:
        client.decide_many(rows)
        timer = threading.Timer(0.2, pair[1][0].kill)
        timer.start()
        while timer.is_alive() or rounds < 3:
            made = client.decide_many(rows)
            rewards = [{"decision_id": one["decision_id"], "value": 1.0} for one in made]
            assert {one["status"] for one in client.reward_many(rewards)} == {"rewarded"}
            rounds += 1
        timer.join()
        assert {client.user(user)["rewards"] for user in USERS} == {rounds}
        assert {client.user(user)["decisions"] for user in USERS} == {rounds + 1}


def _async_too(pair: list[Member]) -> None:
    async def play() -> None:
        async with AsyncClient(pair[1][1]) as client:
            for user in USERS:
                await client.decide(user, ARMS)
            before = passed_on(pair)
            await asyncio.gather(*(client.user(user) for user in USERS))
            assert passed_on(pair) == before

    asyncio.run(play())


@pytest.mark.parametrize(
    ("how", "victim"),
    [
        (signal.SIGKILL, 0),
        pytest.param(signal.SIGKILL, 1, marks=pytest.mark.long),
        pytest.param(signal.SIGSTOP, 0, marks=pytest.mark.long),
        (signal.SIGSTOP, 1),
        pytest.param(signal.SIGTERM, 0, marks=pytest.mark.long),
        pytest.param(signal.SIGTERM, 1, marks=pytest.mark.long),
    ],
)
def test_an_owner_that_ends_or_hangs_costs_retries_and_no_errors(
    pair: list[Member], how: signal.Signals, victim: int
) -> None:
    child = pair[victim][0]
    rounds = 0
    with Client(pair[0][1], timeout=1.0) as client:
        for user in USERS:
            client.decide(user, ARMS)
        timer = threading.Timer(0.2, child.send_signal, (how,))
        timer.start()
        while timer.is_alive() or rounds < 3:
            for user in USERS:
                client.reward(client.decide(user, ARMS).decision_id, 1.0)
            rounds += 1
        timer.join()
        if how == signal.SIGSTOP:
            child.send_signal(signal.SIGCONT)
        # Also what was sent more than once was counted once.
        assert {client.user(user)["rewards"] for user in USERS} == {rounds}
        assert {client.user(user)["decisions"] for user in USERS} == {rounds + 1}


def _told(place: int, url: str, status: int = 200) -> httpx.Response:
    return httpx.Response(status, headers={OWNER: f"{place}/64 {url}"})


def test_a_key_is_not_sent_without_tls_because_an_answer_says_so() -> None:
    owners, request = Owners("https://a"), Request("GET", "/v1/users/ana", user="ana")
    place = partition_of("ana", 64)
    owners.learn("https://a", _told(place, "http://b"))
    assert owners.url(request) == "https://a"
    owners.learn("https://a", _told(place, "https://b/"))
    assert owners.url(request) == "https://b"


@pytest.mark.parametrize("told", ["", "5", "5/64", "5/64 ftp://b", "x/64 http://b", "5/64 http://"])
def test_a_header_of_another_form_is_left_alone(told: str) -> None:
    owners = Owners("http://a")
    owners.learn("http://a", httpx.Response(200, headers={OWNER: told}))
    assert told_by(owners.new_id("ana")) is None


def test_an_answer_to_a_batch_names_several_owners() -> None:
    owners = Owners("http://a")
    owners.learn("http://a", httpx.Response(200, headers={OWNER: "59/64 http://b, 13/64 http://c"}))
    for user, owner in (("ana", "http://b"), ("bea", "http://c"), ("cid", "http://a")):
        assert owners.url(Request("GET", "/", user=user)) == owner


def test_an_owner_that_cannot_be_reached_from_here_is_not_believed_in_at_once_again() -> None:
    owners, request = Owners("http://a"), Request("GET", "/v1/users/ana", user="ana")
    place = partition_of("ana", 64)
    owners.learn("http://a", _told(place, "http://inside"))
    owners.learn("http://inside", httpx.ConnectTimeout("no way"))
    owners.learn("http://a", _told(place, "http://inside"))
    assert owners.url(request) == "http://a"


def test_what_an_owner_refuses_for_a_moment_another_process_is_asked() -> None:
    owners, request = Owners("http://a"), Request("GET", "/v1/users/ana", user="ana")
    place = partition_of("ana", 64)
    owners.learn("http://a", _told(place, "http://b"))
    owners.learn("http://b", httpx.Response(429))
    assert owners.url(request) == "http://b"
    owners.learn("http://b", httpx.Response(503))
    assert owners.url(request) == "http://a"
    owners.learn("http://a", httpx.Response(503))
    assert owners.url(request) == "http://b"
    owners.learn("http://b", _told(place, "http://a"))
    assert owners.url(request) == "http://a"


def test_a_process_that_did_not_answer_is_not_asked_while_another_one_refuses() -> None:
    owners, request = Owners("http://a"), Request("GET", "/v1/users/ana", user="ana")
    owners.learn("http://a", _told(partition_of("ana", 64), "http://b"))
    owners.learn("http://a", httpx.ConnectError("killed"))
    for _ in range(9):
        # Nobody owns the partition until the lease of the other one is over.
        assert owners.url(request) == "http://b"
        owners.learn("http://b", httpx.Response(503))
    # If nobody answers, all are tried in turn.
    owners.learn("http://b", httpx.ConnectError("killed"))
    assert owners.url(request) == "http://a"
    owners.learn("http://a", httpx.ConnectError("killed"))
    assert owners.url(request) == "http://b"


def test_a_load_test_asks_owners_too(pair: list[Member]) -> None:
    wanted = Load(users=40, clients=2, seconds=60.0, rounds=300, arms=3)
    served = asyncio.run(load(pair[0][1], wanted))
    assert served.errors == {}
    assert len(served.rewards) >= 300
    # Each client begins knowing nothing.
    assert 0 < passed_on(pair) < 40
