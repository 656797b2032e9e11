"""`dyclu.client`: safe to try again, and clear about what was refused."""

from __future__ import annotations

import asyncio
import inspect
import random
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest

from dyclu.client import AsyncClient, Client, ServiceError, requests
from dyclu.service.http.calls import CALLS
from tests.service.running import Running, process, running, told

ARMS = {"a0": [1, 0], "a1": [0, 1]}


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
        assert client.erase("ana")["user"] == "ana"


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
    """Batches are for other languages: here, what is awaited together goes together."""
    single = {call.name for call in CALLS if not call.name.endswith("_batch")} - {"activity"}
    for kind in (Client, AsyncClient):
        assert single <= {name for name, _ in inspect.getmembers(kind)}


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
