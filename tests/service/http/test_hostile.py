"""What nobody should send: always refused with a reason that names the field, never learnt."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from dyclu.service.engine.lines import Line
from tests.service.running import ARMS, Running, running, told

GOOD = '{"user": "ana", "arms": [{"id": "a", "features": [1.0, 0.5]}]}'


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    given = told(tmp_path_factory.mktemp("hostile"), body_timeout=0.5, max_body=200_000)
    with running(given) as made:
        made.decide("ana", decision_id="known")
        yield made


@pytest.fixture(autouse=True)
def _nothing_is_learnt(service: Running) -> Iterator[None]:
    before = lines(service)
    yield
    assert lines(service) == before


def lines(service: Running) -> list[Line]:
    with service.service.tenants["default"].files.another_reader() as reader:
        return list(reader.after(0))


def post(service: Running, path: str, body: bytes, **headers: str) -> Any:
    told = {"Content-Type": "application/json", **headers}
    return service.http.post(path, content=body, headers=told)


def features(value: str) -> str:
    return GOOD.replace("0.5", value)


def user(value: str) -> str:
    return GOOD.replace('"ana"', value)


DECISIONS = {
    "NaN": (features("NaN"), "body"),
    "Infinity": (features("Infinity"), "body"),
    "1e999": (features("1e999"), "arms[0].features[1]"),
    "-1e999": (features("-1e999"), "arms[0].features[1]"),
    "1e200": (features("1e200"), "arms[0].features"),
    "beyond the norm": (features("1000.1"), "arms[0].features"),
    "huge whole number": (features("1" + "0" * 400), "arms[0].features[1]"),
    "huge whole number that is a double": (features("1" + "0" * 300), "arms[0].features"),
    "text for a number": (features('"1"'), "arms[0].features[1]"),
    "a truth for a number": (features("true"), "arms[0].features[1]"),
    "nothing for a number": (features("null"), "arms[0].features[1]"),
    "a list for a number": (features("[1]"), "arms[0].features[1]"),
    "deep nesting": (features("[" * 50_000 + "]" * 50_000), "arms[0].features[1]"),
    "deep nesting instead of a body": ("[" * 100_000, "body"),
    "deep objects": ('{"user":' * 20_000, "user"),
    "no features": (GOOD.replace("1.0, 0.5", ""), "arms[0].features"),
    "too few features": (GOOD.replace("1.0, 0.5", "1"), "arms[0].features"),
    "too many features": (features("0.5, 1"), "arms[0].features"),
    "no arms": ('{"user": "ana", "arms": []}', "arms"),
    "too many arms": (
        json.dumps(
            {"user": "a", "arms": [{"id": str(i), "features": [1, 0]} for i in range(1001)]}
        ),
        "arms",
    ),
    "arms of one name": (
        '{"user":"a","arms":[{"id":"a","features":[1,0]},{"id":"a","features":[0,1]}]}',
        "arms",
    ),
    "no user": ('{"arms": [{"id": "a", "features": [1, 0]}]}', "user"),
    "a number for a user": (user("7"), "user"),
    "an empty user": (user('""'), "user"),
    "a long user": (user(f'"{"a" * 129}"'), "user"),
    "a path for a user": (user('"../../etc/passwd"'), "user"),
    "dots for a user": (user('".."'), "user"),
    "a null byte": (user('"a\\u0000b"'), "user"),
    "a raw null byte": (user('"a\x00b"'), "body"),
    "a line's end": (user('"ana\\n"'), "user"),
    "half a character": (user('"\\ud800"'), "body"),
    "markup": (user('"<script>"'), "user"),
    "a quotation mark": (user('"a\\"b"'), "user"),
    "SQL": (user('"a\'; DROP TABLE journal"'), "user"),
    "an unknown field": (GOOD.replace("{", '{"policy": "os.system", ', 1), "policy"),
    "a field twice": (GOOD.replace("{", '{"user": "bea", ', 1), "user"),
    "an arm's field twice": (GOOD.replace('"id"', '"id": "b", "id"'), "id"),
    "an escaped field twice": (GOOD.replace("{", '{"us\\u0065r": "bea", ', 1), "user"),
    "a truth for a rank": (GOOD.replace("{", '{"rank": 1, ', 1), "rank"),
    "nothing for an id": (GOOD.replace("{", '{"decision_id": null, ', 1), "decision_id"),
    "an object for an id": (GOOD.replace("{", '{"decision_id": {}, ', 1), "decision_id"),
    "nothing": ("", "body"),
    "a word": ("null", "body"),
    "half": (GOOD[:-4], "body"),
    "more": (GOOD + "x", "body"),
    "two": (GOOD + GOOD, "body"),
}


@pytest.mark.parametrize(("body", "field"), DECISIONS.values(), ids=DECISIONS.keys())
def test_invalid_decision_requests_are_refused(service: Running, body: str, field: str) -> None:
    response = post(service, "/v1/decisions", body.encode())
    assert response.status_code in (400, 422), response.text
    problem = response.json()["error"]
    assert problem["field"] == field
    assert problem["message"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (features("NaN"), "JSON has no NaN and no Infinity"),
        (user('"Ana Müller"'), "Expected an id of 1 to 128 letters"),
    ],
)
def test_a_refusal_says_what_is_expected(service: Running, body: str, said: str) -> None:
    answer = post(service, "/v1/decisions", body.encode())
    assert said in answer.json()["error"]["message"]


@pytest.mark.parametrize(("body", "field"), DECISIONS.values(), ids=DECISIONS.keys())
def test_an_invalid_decision_in_a_batch_is_refused(service: Running, body: str, field: str) -> None:
    """An item beyond a limit is refused separately; other faults refuse the whole batch."""
    both = b'{"decisions": [' + body.encode() + b"]}"
    response = post(service, "/v1/decisions:batch", both)
    if response.status_code == 200:
        (result,) = response.json()["results"]
        assert (result["status"], result["http"]) == ("refused", 422)
        assert result["error"]["field"] == field
    else:
        assert response.status_code in (400, 422)
        assert response.json()["error"]["field"]


@pytest.mark.parametrize(
    "value",
    ["NaN", "-Infinity", "1e999", "1e7", "1" + "0" * 400, '"1"', "true", "null", "[1]", "{}", ""],
)
def test_invalid_rewards_are_refused(service: Running, value: str) -> None:
    response = post(service, "/v1/decisions/known/reward", f'{{"value": {value}}}'.encode())
    assert response.status_code in (400, 422), response.text
    assert response.json()["error"]["field"] in ("value", "body")


@pytest.mark.parametrize(
    "body", [b'{"value": 1, "value": 2}', b"{}", b'{"value": 1, "x": 1}', b"1"]
)
def test_invalid_reward_bodies_are_refused(service: Running, body: bytes) -> None:
    assert post(service, "/v1/decisions/known/reward", body).status_code == 422


@pytest.mark.parametrize(
    "id",
    ["..%2f..%2fetc", "%00", "a%0a", "a" * 129, "%ff%fe", "a%20b", "%3Cscript%3E", "-x", "ä"],
)
def test_invalid_ids_in_paths_are_refused(service: Running, id: str) -> None:
    for path in (f"/v1/decisions/{id}/reward", f"/v1/users/{id}"):
        method, body = ("GET", None) if "users" in path else ("POST", {"value": 1.0})
        response = service.http.request(method, path, json=body)
        assert response.status_code in (404, 422), response.text
        assert response.json()["error"]["field"] in ("id", "path", "decision_id")


def test_invalid_observations_are_refused(service: Running) -> None:
    for row in (
        {"user": "ana", "features": [1.0, 1e200], "reward": 1.0},
        {"user": "ana", "features": [1.0], "reward": 1.0},
        {"user": "ana", "features": [1.0, 0.0], "reward": 1e300},
    ):
        response = service.http.post("/v1/observations", json={"observations": [row]})
        assert response.status_code == 422
        assert response.json()["error"]["field"].startswith("observations[0].")
    many = {"observations": [{"user": "a", "features": [1, 0], "reward": 1}] * 1001}
    response = service.http.post("/v1/observations", json=many)
    assert response.status_code == 422
    assert "max_batch" in response.json()["error"]["message"]


@pytest.mark.parametrize("since", ["-1", "x", "1e3", "9" * 17, "", "0x10"])
def test_invalid_numbers_in_queries_are_refused(service: Running, since: str) -> None:
    for name in ("since", "epoch"):
        response = service.http.get("/v1/changes", params={name: since})
        assert response.status_code == 422
        assert response.json()["error"]["field"] == name


@pytest.mark.parametrize("kind", ["text/plain", "application/xml", "", "application/jsonp"])
def test_other_content_types_are_refused(service: Running, kind: str) -> None:
    response = post(service, "/v1/decisions", GOOD.encode(), **{"Content-Type": kind})
    assert response.status_code == 415
    assert response.json()["error"]["field"] == "content-type"


def test_invalid_utf8_is_refused(service: Running) -> None:
    for bad in (b"\xff\xfe", b"\xc3\x28", b"\xed\xa0\x80"):
        response = post(service, "/v1/decisions", GOOD.encode().replace(b"ana", bad))
        assert response.status_code in (400, 422)
        response = post(service, "/v1/decisions", bad)
        assert response.status_code == 400


MILLION = b'{"user":"a","arms":[%s]}' % b",".join(
    b'{"id":"%d","features":[1,0]}' % number for number in range(1_000_000)
)


def test_a_million_arms_are_refused(service: Running, tmp_path: Path) -> None:
    """Too long a body; and where that is allowed, too many arms."""
    assert post(service, "/v1/decisions", MILLION).status_code == 413
    with running(told(tmp_path, max_body=100_000_000)) as roomy:
        roomy.http.timeout = httpx.Timeout(60.0)  # decoding takes seconds on a busy machine
        response = post(roomy, "/v1/decisions", MILLION)
        assert response.status_code == 422
        assert response.json()["error"]["field"] == "arms"
        assert "max_arms" in response.json()["error"]["message"]
        assert lines(roomy) == []


def test_an_oversized_body_is_refused(service: Running) -> None:
    response = post(service, "/v1/decisions", b" " * 200_001)
    assert response.status_code == 413
    assert "max_body" in response.json()["error"]["message"]


def test_an_oversized_chunked_body_is_refused(service: Running) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(30):
            yield b" " * 10_000

    response = service.http.post(
        "/v1/decisions", content=chunks(), headers={"Content-Type": "application/json"}
    )
    assert response.status_code == 413


def raw(service: Running, content: bytes, *, more: bytes = b"") -> bytes:
    host, port = service.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(content)
        if more:
            connection.sendall(more)
        return connection.recv(65536)


HEAD = b"POST /v1/decisions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


def test_a_body_that_is_too_slow_is_refused(service: Running) -> None:
    answer = raw(service, HEAD + b"Content-Length: 100\r\n\r\n" + b'{"user"')
    assert answer.startswith(b"HTTP/1.1 408")
    assert b'"field":"body"' in answer
    assert b"\r\nconnection: close\r\n" in answer
    assert service.http.get("/healthz").status_code == 200


def test_a_chunked_body_is_accepted(service: Running) -> None:
    """Refused for what it says, not for how it comes; a chunk that lies is no HTTP."""
    chunked = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    body = features("NaN").encode()
    answer = raw(service, chunked + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
    assert answer.startswith(b"HTTP/1.1 400")
    assert b'"field":"body"' in answer
    assert raw(service, chunked + b"zz\r\n{}\r\n0\r\n\r\n").startswith(b"HTTP/1.1 400")
    both = HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert raw(service, both + b"0\r\n\r\n").startswith(b"HTTP/1.1 4")


def test_a_wrong_content_length_is_refused(service: Running) -> None:
    for length in (b"-1", b"99999999999999999999999", b"ten", b"1e3"):
        answer = raw(service, HEAD + b"Content-Length: " + length + b"\r\n\r\n{}")
        assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 413")), answer


def test_bytes_that_are_not_http_are_refused(service: Running) -> None:
    assert raw(service, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n").startswith(b"HTTP/1.1 400")


def test_minus_zero_is_treated_as_zero(service: Running, tmp_path: Path) -> None:
    with running(told(tmp_path)) as other:
        plain = post(other, "/v1/decisions", features("0").encode()).json()
        minus = post(other, "/v1/decisions", features("-0.0").encode()).json()
        assert {**plain, "decision_id": 0, "expires": 0} == {
            **minus,
            "decision_id": 0,
            "expires": 0,
        }
        bodies = [line.body for line in lines(other)]
        assert all("-0.0" not in msgspec.json.encode(body).decode() for body in bodies)


def test_the_valid_requests_that_hostile_ones_are_made_from_are_accepted(tmp_path: Path) -> None:
    with running(told(tmp_path)) as other:
        assert post(other, "/v1/decisions", GOOD.encode()).status_code == 200
        assert other.decide("ana", arms=ARMS, rank=True).status_code == 200
        escaped = GOOD.replace("ana", "\\u0061n\\u0061")
        assert post(other, "/v1/decisions", escaped.encode()).status_code == 200
