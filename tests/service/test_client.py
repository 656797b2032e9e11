"""`dyclu.client`: safe to try again, and clear about what was refused."""

from __future__ import annotations

import asyncio
import inspect
import json
import random
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from dyclu.client import AsyncClient, BatchError, Client, ServiceError, requests
from dyclu.client.logs import BATCH
from dyclu.client.partitions import told_by, with_partition
from dyclu.errors import OptionError
from dyclu.service.http.calls import CALLS
from dyclu.service.schema import Erased
from dyclu.service.settings import Limits
from tests.service.running import Running, process, running, told

ARMS = {"a0": [1, 0], "a1": [0, 1]}
MADE = "0005f6c1a2b3c4-00112233445566ff"
"""An id of a decision as the service makes it, without its partition."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    given = told(tmp_path_factory.mktemp("client"), policy="dyclu", options={"noise": 0.1})
    with running(given) as made:
        yield made


def test_every_call_of_the_blocking_client_works(service: Running) -> None:
    with Client(service.url) as client:
        choice = client.decide("ana", ARMS, rank=True)
        assert choice.arm in ARMS
        assert choice.more["rank"][0] == choice.arm
        assert client.reward(choice.decision_id, 0.5)["repeated"] is False
        assert client.observe("ana", [1, 0], 0.5, event_id="e")["repeated"] is False
        assert client.observe("ana", [1, 0], 0.5, event_id="e")["repeated"] is True
        asleep = client.decide("ana", ARMS, active=False)
        assert client.activate(asleep.decision_id)["decision_id"] == asleep.decision_id
        assert client.user("ana")["rewards"] == 2
        assert client.policy()["dim"] == 2
        assert client.lift()["share"] == 0.0
        assert client.models()["models"]
        page = client.changes(0)
        assert page["changes"] == []
        assert client.changes(page["next"], epoch=page["epoch"]) == page
        with pytest.raises(ServiceError, match="since=0"):
            client.changes(epoch=page["epoch"] + 1)
        assert client.erase("ana")["erased_records"] == 5


def test_every_call_of_the_async_client_works(service: Running) -> None:
    async def play() -> None:
        async with AsyncClient(service.url) as client:
            choices = await asyncio.gather(*(client.decide(f"u{i}", ARMS) for i in range(20)))
            await asyncio.gather(*(client.reward(one.decision_id, 1.0) for one in choices))
            assert (await client.user("u3"))["rewards"] == 1
            assert not (await client.observe("u3", [0, 1], 0.1))["repeated"]
            asleep = await client.decide("u3", ARMS, active=False)
            await client.activate(asleep.decision_id)
            assert (await client.policy())["users"] >= 20
            assert (await client.models())["models"]
            page = await client.changes()
            assert page["latest"] == 0
            assert await client.changes(page["next"], epoch=page["epoch"]) == page
            assert (await client.erase("u3"))["erased_records"] == 5

    asyncio.run(play())


def test_a_refusal_raises_an_error_with_status_and_field(service: Running) -> None:
    with Client(service.url) as client:
        with pytest.raises(ServiceError, match="2") as refused:
            client.decide("ana", {"a": [1.0, 2.0, 3.0]})
        assert (refused.value.status, refused.value.field) == (422, "arms[0].features")
        with pytest.raises(ServiceError) as unknown:
            client.reward("nobody", 1.0)
        assert unknown.value.status == 404
        with pytest.raises(ServiceError) as item:
            client.observe("ana", [1.0], 1.0)
        assert item.value.status == 422


def test_special_characters_of_an_id_are_escaped_in_the_path(service: Running) -> None:
    with Client(service.url) as client:
        client.observe("zoe", [1, 0], 0.5)
        for ask in (client.erase, client.user):
            for id in ("zoe?of=bob", "zoe#2"):
                with pytest.raises(ServiceError):
                    ask(id)
        assert client.user("zoe")["rewards"] == 1


def test_an_observation_is_sent_again_while_the_disk_is_busy(service: Running) -> None:
    committer = service.service.tenants["default"].committer
    committer.trouble = "the journal cannot be written"
    healed = threading.Timer(0.2, lambda: setattr(committer, "trouble", None))
    healed.start()
    with Client(service.url) as client:
        assert client.observe("yan", [1, 0], 0.5)["repeated"] is False
    healed.join()


def test_an_erasure_is_answered_although_its_first_answer_was_lost() -> None:
    lost = iter([True])

    def answer(_: httpx.Request) -> httpx.Response:
        if next(lost, False):
            raise httpx.ReadTimeout("lost")
        return httpx.Response(404, json={"error": {}})

    with Client("http://service") as client:
        client._http = httpx.Client(
            base_url="http://service", transport=httpx.MockTransport(answer)
        )
        known = {"user": "ana"}
        assert client.erase("ana") == dict.fromkeys(Erased.__struct_fields__) | known


def test_an_unreachable_service_raises_an_error() -> None:
    with (
        Client("http://127.0.0.1:9", attempts=2) as client,
        pytest.raises(ServiceError, match="does not answer"),
    ):
        client.policy()


class Moody(BaseHTTPRequestHandler):
    """Busy twice, then ill, then well; remembers which decision ids it was sent."""

    answers = iter((503, 429, None, 200))
    bodies: tuple[bytes, ...] = ()

    def do_POST(self) -> None:
        Moody.bodies += (self.rfile.read(int(self.headers["content-length"])),)
        status = next(Moody.answers)
        if status is None:
            self.connection.close()
            return
        body = b'{"decision_id": "d", "arm": "a0", "mean": 0, "width": 0}'
        self.send_response(status)
        if status != 200:
            self.send_header("Retry-After", "0")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def test_the_same_request_is_sent_again_until_it_succeeds() -> None:
    server = HTTPServer(("127.0.0.1", 0), Moody)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with Client(f"http://127.0.0.1:{server.server_port}") as client:
            assert client.decide("ana", ARMS).arm == "a0"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert len(Moody.bodies) == 4
    assert len(set(Moody.bodies)) == 1


def test_a_reward_is_sent_again_until_a_restarted_service_answers(tmp_path: Path) -> None:
    with process(tmp_path, "--dim=2") as (first, url), Client(url, attempts=10) as client:
        choice = client.decide("ana", ARMS)
        first.kill()
        first.wait()
        port = url.rpartition(":")[2]
        with process(tmp_path, "--dim=2", f"--port={port}"):
            assert client.reward(choice.decision_id, 1.0)["repeated"] is False


def test_both_clients_have_every_call() -> None:
    names = {call.name.replace("_batch", "_many") for call in CALLS} - {"activity"}
    for kind in (Client, AsyncClient):
        assert names <= {name for name, _ in inspect.getmembers(kind)}


def test_many_decisions_and_rewards_are_answered_one_by_one_in_their_order(
    service: Running,
) -> None:
    with Client(service.url) as client:
        rows = [{"user": f"many-{i % 7}", "arms": ARMS, "rank": True} for i in range(20)]
        rows[4] |= {"decision_id": "many-4"}
        made = client.decide_many(rows)
        assert [one["status"] for one in made] == ["decided"] * 20
        assert made[4]["decision_id"] == "many-4"
        assert len({one["decision_id"] for one in made}) == 20
        assert all(sorted(one["rank"]) == ["a0", "a1"] for one in made)
        rewards = [{"decision_id": one["decision_id"], "value": i} for i, one in enumerate(made)]
        rewards[3]["decision_id"] = "never-made"
        given = client.reward_many(rewards)
        assert [one["status"] for one in given] == ["rewarded"] * 3 + ["refused"] + [
            "rewarded"
        ] * 16
        assert [one["value"] for one in given if one["status"] == "rewarded"] == [
            i for i in range(20) if i != 3
        ]
        assert {one["repeated"] for one in client.reward_many(rewards) if "value" in one} == {True}
        assert client.decide_many([]) == client.reward_many([]) == []


def test_many_slots_are_rewarded_by_slot(service: Running) -> None:
    with Client(service.url) as client:
        (made,) = client.decide_many([{"user": "slots", "arms": ARMS, "slots": 2}])
        id = made["decision_id"]
        (given,) = client.reward_many([{"decision_id": id, "values": {1: 1, 2: 0}, "value": None}])
        assert given["values"] == {"1": 1.0, "2": 0.0}


def test_a_batch_that_cannot_be_read_is_refused_with_the_place_among_all_rows(
    service: Running,
) -> None:
    with Client(service.url) as client:
        rows = [{"user": f"u{i}", "arms": ARMS} for i in range(510)]
        rows[503] = {"user": "u503", "arms": ARMS, "slots": "three"}
        with pytest.raises(ServiceError, match="row 503") as refused:
            client.decide_many(rows)
        assert refused.value.field == "decisions[503].slots"
        for ask, row, missing in (
            (client.decide_many, {"user": "ana"}, "add arms"),
            (client.decide_many, {"arms": ARMS}, "add user"),
            (client.reward_many, {"value": 1.0}, "add decision_id"),
        ):
            with pytest.raises(OptionError, match=f"row 0 has .*; {missing}"):
                ask([row])


def sent(ask: Callable[[Client], object]) -> list[dict[str, Any]]:
    """Return the bodies that a client sends to a service whose every second answer is lost."""
    bodies: list[dict[str, Any]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        bodies.append(json.loads(request.content))
        if len(bodies) % 2:
            raise httpx.ReadTimeout("lost")
        (items,) = bodies[-1].values()
        return httpx.Response(200, json={"results": [{"status": "decided"}] * len(items)})

    with Client("http://service") as client:
        client._http = httpx.Client(transport=httpx.MockTransport(answer))
        ask(client)
    return bodies


NAN = float("nan")


@pytest.mark.parametrize("worth", [NAN, np.float32(1.0), {1}])
def test_a_row_that_json_cannot_hold_is_refused_before_anything_is_sent(worth: object) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        raise AssertionError("something was sent")

    seen = {"user": "ana", "features": [1.0, 0.0], "reward": 1.0}
    with Client("http://service") as client:
        client._http = httpx.Client(transport=httpx.MockTransport(answer))
        for ask, good, bad in (
            (client.observe_many, seen, seen | {"reward": worth}),
            (
                client.reward_many,
                {"decision_id": "d", "value": 1.0},
                {"decision_id": "d", "at": worth},
            ),
            (client.decide_many, {"user": "a", "arms": ARMS}, {"user": "a", "arms": {"x": [NAN]}}),
        ):
            with pytest.raises(OptionError, match=f"row {BATCH} cannot be sent .*nothing was sent"):
                ask([*[good] * BATCH, bad])


def test_an_answer_that_is_none_of_the_service_keeps_what_was_acknowledged() -> None:
    """A proxy's page, say, with status 200."""
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        if len(asked) > 1:
            return httpx.Response(200, text="<html>Sign in</html>")
        (items,) = json.loads(request.content).values()
        return httpx.Response(200, json={"results": [{"status": "learnt"}] * len(items)})

    with Client("http://service") as client:
        client._http = httpx.Client(transport=httpx.MockTransport(answer))
        with pytest.raises(BatchError, match="Sign in") as failed:
            client.observe_many(
                [{"user": "ana", "features": [1.0, 0.0], "reward": 1.0}] * (BATCH + 1)
            )
    assert failed.value.results == [{"status": "learnt"}] * BATCH + [None]


def test_many_are_sent_again_with_the_same_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "_pause", lambda attempt, result: 0.0)
    for field, id, ask in (
        ("decisions", "decision_id", lambda c: c.decide_many([{"user": "ana", "arms": ARMS}] * 3)),
        ("rewards", "reward_id", lambda c: c.reward_many([{"decision_id": "d", "value": 1}] * 3)),
    ):
        first, again = sent(ask)
        assert first == again
        assert len({one[id] for one in first[field]}) == 3


class TwoOwners:
    """A service of two processes; of partition 1 it refuses rewards, or its answers are lost."""

    def __init__(self, fault: str) -> None:
        self.fault, self.learnt = fault, dict[str, float]()

    def answer(self, request: httpx.Request) -> httpx.Response:
        (items,) = json.loads(request.content).values()
        faulty = told_by(items[0]["decision_id"]) == 1
        if faulty and self.fault == "refused":
            problem = {"message": "no number", "code": "invalid", "field": "rewards[0].value"}
            return httpx.Response(422, json={"error": problem})
        results = [self._learn(**one) for one in items]
        if faulty and self.fault == "lost":
            raise httpx.ReadTimeout("lost")
        return httpx.Response(200, json={"results": results})

    def _learn(self, decision_id: str, reward_id: str, value: float) -> dict[str, Any]:
        repeated = reward_id in self.learnt
        self.learnt[reward_id] = value
        return {"status": "rewarded", "decision_id": decision_id, "repeated": repeated}


def reward_twice(kind: type, service: TwoOwners, rows: list[dict[str, Any]]) -> Any:
    """Return the error of the first call, and the results of its rows, sent again."""
    transport = httpx.MockTransport(service.answer)

    async def awaited() -> Any:
        client = kind("http://a", attempts=2)
        client._owners.heard("http://a", 200, "0/2 http://a, 1/2 http://b")
        asynchronous = kind is AsyncClient
        client._http = (httpx.AsyncClient if asynchronous else httpx.Client)(transport=transport)

        async def ask(rows: list[dict[str, Any]]) -> Any:
            return await client.reward_many(rows) if asynchronous else client.reward_many(rows)

        with pytest.raises(BatchError) as failed:
            await ask(rows)
        service.fault = "none"
        return failed.value, await ask(failed.value.rows)

    return asyncio.run(awaited())


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize("fault", ["refused", "lost"])
def test_rows_of_a_call_that_failed_in_part_are_learnt_once_if_they_are_sent_again(
    kind: type, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "_pause", lambda attempt, result: 0.0)
    service, ids = TwoOwners(fault), [with_partition(MADE, owner) for owner in (0, 1, 0)]
    rows = [{"decision_id": id, "value": value} for id, value in zip(ids, (1, 2, 4), strict=True)]
    error, again = reward_twice(kind, service, rows)
    assert [one and one["decision_id"] for one in error.results] == [ids[0], None, ids[2]]
    assert [{**row, **given} for row, given in zip(error.rows, rows, strict=True)] == error.rows
    if fault == "refused":
        assert (error.status, error.field) == (422, "rewards[1].value")
        assert "row 1" in str(error)
    assert [one["repeated"] for one in again] == [True, fault == "lost", True]
    assert sorted(service.learnt.values()) == [1, 2, 4]


def test_decisions_and_observations_that_were_acknowledged_are_not_lost_with_a_later_batch(
    service: Running,
) -> None:
    decisions = [{"user": f"part-{i}", "arms": ARMS} for i in range(BATCH + 1)]
    decisions[BATCH]["slots"] = "three"
    observations = [{"user": "part", "features": [1, 0], "reward": 1.0}] * BATCH
    observations = [*observations, {"user": "part", "features": [1, 0], "reward": "good"}]
    with Client(service.url) as client:
        for ask, rows, mended in (
            (client.decide_many, decisions, {"slots": 1}),
            (client.observe_many, observations, {"reward": 1.0}),
        ):
            with pytest.raises(BatchError, match=f"row {BATCH}") as failed:
                ask(rows)
            results, again = failed.value.results, failed.value.rows
            assert results[BATCH] is None
            assert {one["status"] for one in results[:BATCH] if one} <= {"decided", "observed"}
            again[BATCH] |= mended
            acknowledged = [one for one in results if one]
            repeated = {"repeated": True} if "repeated" in acknowledged[0] else {}
            assert ask(again)[:BATCH] == [one | repeated for one in acknowledged]
        assert client.user("part")["segments"][-1]["observations"] == BATCH + 1


def test_many_are_cut_into_requests_that_the_service_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(requests, "_pause", lambda attempt, result: 0.0)

    def sizes(rows: list[dict[str, Any]]) -> list[int]:
        return [len(one["decisions"]) for one in sent(lambda c: c.decide_many(rows))[1::2]]

    most = min(Limits().max_batch, BATCH)
    small = {"user": "ana", "arms": {"a": [1.0]}}
    assert sizes([small] * (2 * most + 1)) == [most, most, 1]
    # Long vectors: of 20 arms of 100 numbers 25 fit; the longest fits in no request with others.
    long, longest = (
        {"user": "ana", "arms": {f"a{i}": [0.5] * n for i in range(20)}} for n in (100, 9000)
    )
    assert sizes([long] * 60) == [25, 25, 10]
    assert sizes([small, longest, small]) == [1, 1, 1]


def test_the_async_client_sends_many_too(service: Running) -> None:
    async def play() -> None:
        async with AsyncClient(service.url) as client:
            made = await client.decide_many([{"user": "async", "arms": ARMS}] * 3)
            rows = [{"decision_id": one["decision_id"], "value": 1.0} for one in made]
            assert [one["repeated"] for one in await client.reward_many(rows)] == [False] * 3
            assert (await client.user("async"))["rewards"] == 3

    asyncio.run(play())


@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_the_shortest_pauses_outlast_the_lease_of_a_killed_process_and_the_take_over(
    client: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random, "random", lambda: 0.0)
    attempts = inspect.signature(client).parameters["attempts"].default
    lost = httpx.ConnectError("killed")
    pauses = [requests._pause(attempt, lost) for attempt in range(1, attempts)]
    # The default lease, the two seconds of a take-over, and two more.
    assert sum(pauses) > 10 + 2 + 2
