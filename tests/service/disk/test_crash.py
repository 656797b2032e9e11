"""Killed at any moment, nothing acknowledged is lost or learnt twice; `make crashtest` is long."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.service.crash import BROKEN, Ordeal
from tests.service.crowd import IN_DOUBT, REPEATED, Client, Witness


@pytest.mark.parametrize(
    ("policy", "kills"),
    [
        ("atlas", 4),
        pytest.param("dyclu", 3, marks=pytest.mark.long),
        pytest.param("atlas", 200, marks=pytest.mark.long),
    ],
)
def test_nothing_acknowledged_is_lost(tmp_path: Path, policy: str, kills: int) -> None:
    found = Ordeal(tmp_path, policy, seed=kills).suffer(kills)
    assert {what: found[what] for what in BROKEN} == dict.fromkeys(BROKEN, 0)
    # A life lasts for 40 answers on average, a third of them to rewards.
    assert found["reward"] + found["reward in a batch"] > 3 * kills
    assert found[REPEATED] > 0


def test_a_refusal_in_doubt_is_not_counted_as_a_request_without_an_answer() -> None:
    refusal = {"error": {"code": "unavailable", "message": "the journal cannot be written"}}
    answers = iter([httpx.Response(503, json=refusal), httpx.ConnectError("refused"), None])

    def answer(_: httpx.Request) -> httpx.Response:
        client.up.set()
        told = next(answers)
        if isinstance(told, Exception):
            raise told
        return told or httpx.Response(404)

    client = Client(1, "key", Witness())
    client.url = "http://service"
    with httpx.Client(transport=httpx.MockTransport(answer)) as client.http:
        assert client.insist("GET", "/v1/users/ana").status_code == 404
    assert client.witness.counts == {REPEATED: 1, IN_DOUBT: 1}
    assert client.witness.doubts == 2
