"""One round trip from Python while the service is killed; clients/typescript does the same."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dyclu.client import Client
from tests.clients.serving import command, free_port

ARMS = {"red": [1.0, 0.0], "blue": [0.0, 1.0]}


@contextmanager
def serving(data: Path, port: int) -> Iterator[None]:
    """Run a service; at the end it is killed with SIGKILL."""
    child = subprocess.Popen(command(data, port), stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    try:
        assert any(line.startswith("listening on ") for line in child.stdout)
        yield
    finally:
        child.kill()
        child.communicate()


@pytest.fixture
def port() -> int:
    return free_port()


def test_a_reward_survives_kill_9_and_is_learnt_once_however_often_it_is_sent(
    tmp_path: Path, port: int
) -> None:
    with Client(f"http://127.0.0.1:{port}", attempts=40) as client:
        with serving(tmp_path, port):
            decided = client.decide("ana", ARMS)

        # Sent while nobody listens; the service starts while the client waits.
        answers: list[dict[str, object]] = []
        late = threading.Thread(
            target=lambda: answers.append(client.reward(decided.decision_id, 1.0, reward_id="r-1"))
        )
        late.start()
        with serving(tmp_path, port):
            late.join(60)
            assert [answer["repeated"] for answer in answers] == [False]

        with serving(tmp_path, port):
            assert client.reward(decided.decision_id, 1.0, reward_id="r-1")["repeated"] is True
            policy = client.policy()
            assert (policy["version"], policy["rewards"], policy["pending"]) == (1, 1, 0)
            same = client.decide("ana", ARMS, decision_id=decided.decision_id)
            assert same.more == decided.more
