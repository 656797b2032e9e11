"""Raw requests, cut into packets at every kind of place: the answer is always the same.

What follows a request that was refused is never executed: each request of the corpus is followed by
one that erases a user, and it is checked that the user stays.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import pytest

from dyclu.service.http.keys import digest, new_key
from tests.service.http.raw import DECIDE, all_of, reach
from tests.service.running import ARMS, Running, running, told

KEY = new_key().encode()
BEARER = b"Authorization: Bearer %s\r\n" % KEY
HOST = b"Host: 127.0.0.1\r\n"
JSON = b"Content-Type: application/json\r\n"
ERASE = b"DELETE /v1/users/keeper HTTP/1.1\r\n" + HOST + BEARER + b"\r\n"
MAX_HEADERS = 32_768

CUTS = 30
"""Cuts of one request at random places; one cut each."""

BUFFERS = (8192, 16_384, 2 * MAX_HEADERS)
"""Sizes of buffers of servers, ours among them, at which a request is cut."""

AROUND = 40
"""Bytes before and after the end of a buffer; a long request is cut at each of these places."""


@dataclass(frozen=True)
class Case:
    """A request, and the statuses it gets; `or_closed`: or the connection just ends.

    `framed` requests have a clear end: what follows them is another request. If such a request is
    refused and the connection stays open, the next one is executed, as it should be.
    """

    content: bytes
    statuses: tuple[int, ...]
    framed: bool = False
    or_closed: bool = False


def line(text: bytes, *headers: bytes) -> bytes:
    return text + b"\r\n" + b"".join(headers) + b"\r\n"


def decision(*headers: bytes, body: bytes = DECIDE, length: int | None = None) -> bytes:
    told = b"Content-Length: %d\r\n" % (len(body) if length is None else length)
    return line(b"POST /v1/decisions HTTP/1.1", *headers, told) + body


def chunked(*headers: bytes, trailers: bytes = b"", body: bytes = DECIDE) -> bytes:
    head = line(b"POST /v1/decisions HTTP/1.1", *headers, b"Transfer-Encoding: chunked\r\n")
    return head + b"%x\r\n%s\r\n0\r\n%s\r\n" % (len(body), body, trailers)


def reading(path: bytes, *headers: bytes) -> bytes:
    """A request for something to read, with a request in its body."""
    told = b"Content-Length: %d\r\n" % len(ERASE)
    return line(b"GET %s HTTP/1.1" % path, *headers, told) + ERASE


def padded_to(size: int, *headers: bytes) -> bytes:
    """Headers, the last of which begins five bytes before byte number `size`."""
    start = b"POST /v1/decisions HTTP/1.1\r\n" + b"".join(headers)
    filler = b"X-Filler: %s\r\n"
    return filler % (b"y" * (size - 5 - len(start) - len(filler % b"")))


SMUGGLED = ERASE
"""A whole request, as the body of another one."""

SPLIT = padded_to(16_384, HOST, JSON)

CORPUS = {
    "valid": Case(decision(HOST, JSON, BEARER), (200,), framed=True),
    "valid, chunked": Case(chunked(HOST, JSON, BEARER), (200,), framed=True),
    "no key": Case(decision(HOST, JSON, body=SMUGGLED), (401,)),
    "wrong key": Case(decision(HOST, JSON, b"Authorization: Bearer x\r\n", body=SMUGGLED), (401,)),
    "key in a trailer": Case(chunked(HOST, JSON, trailers=BEARER), (401,)),
    "content type in a trailer": Case(
        chunked(HOST, b"Content-Type: text/plain\r\n", BEARER, trailers=JSON), (415,)
    ),
    "host in a trailer": Case(chunked(HOST, JSON, BEARER, trailers=b"Host: x\r\n"), (200,), True),
    "two hosts": Case(decision(HOST, b"Host: evil\r\n", JSON, BEARER), (400,)),
    "one host twice": Case(decision(HOST, HOST, JSON, BEARER), (400,)),
    "two keys": Case(decision(HOST, JSON, BEARER, b"Authorization: Bearer x\r\n"), (400,)),
    "two content types": Case(decision(HOST, JSON, JSON, BEARER), (400,)),
    "two lengths": Case(decision(HOST, JSON, BEARER, b"Content-Length: 3\r\n"), (400,)),
    "one length twice": Case(
        decision(HOST, JSON, BEARER, b"Content-Length: %d\r\n" % len(DECIDE)), (200,), framed=True
    ),
    "length and chunks": Case(chunked(HOST, JSON, BEARER, b"Content-Length: 3\r\n"), (200,)),
    "chunks twice": Case(
        line(
            b"POST /v1/decisions HTTP/1.1",
            HOST,
            JSON,
            BEARER,
            b"Transfer-Encoding: chunked, identity\r\n",
        )
        + SMUGGLED,
        (400,),
    ),
    "split upgrade": Case(
        decision(HOST, JSON, SPLIT, b"Upgrade: h2c\r\nConnection: upgrade\r\n", body=SMUGGLED),
        (401,),
    ),
    "upgrade": Case(
        decision(HOST, JSON, b"Upgrade: websocket\r\nConnection: upgrade\r\n", body=SMUGGLED),
        (401,),
    ),
    "upgrade with key": Case(
        decision(HOST, JSON, BEARER, b"Upgrade: h2c\r\nConnection: Upgrade\r\n"), (200,), True
    ),
    "bad chunk": Case(chunked(HOST, JSON, BEARER).replace(b"0\r\n\r\n", b"zz\r\n\r\n"), (400,)),
    "bad chunk's end": Case(
        line(b"POST /v1/decisions HTTP/1.1", HOST, JSON, BEARER, b"Transfer-Encoding: chunked\r\n")
        + b"2\r\n{}x\r\n0\r\n\r\n",
        (400,),
    ),
    "negative length": Case(decision(HOST, JSON, BEARER, length=-1), (400,)),
    "length as a sum": Case(
        line(b"POST /v1/decisions HTTP/1.1", HOST, JSON, BEARER, b"Content-Length: +62\r\n")
        + DECIDE,
        (400,),
    ),
    "space before the colon": Case(
        decision(HOST, JSON, BEARER, b"Transfer-Encoding : chunked\r\n"), (400,)
    ),
    "folded header": Case(decision(HOST, JSON, b"X: a\r\n b\r\n", BEARER), (400,)),
    "null byte": Case(decision(HOST, JSON, b"X: a\x00b\r\n", BEARER), (400,)),
    "bare return": Case(decision(HOST, JSON, b"X: a\rY: b\r\n", BEARER), (400,)),
    "version 0.9": Case(decision(HOST, JSON, BEARER).replace(b"/1.1", b"/0.9"), (400,)),
    "version 2.0": Case(decision(HOST, JSON, BEARER).replace(b"/1.1", b"/2.0"), (400,)),
    "no version": Case(b"GET /healthz\r\n\r\n", (400,)),
    # hyper knows the preface if it comes in one piece.
    "preface of HTTP/2": Case(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", (400,), or_closed=True),
    "TLS": Case(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", (400,)),
    "words": Case(b"hello there\r\n\r\n", (400,)),
    "headers too long": Case(
        line(b"GET /healthz HTTP/1.1", HOST, b"X: %s\r\n" % (b"y" * (MAX_HEADERS + 100))), (431,)
    ),
    "body too long": Case(decision(HOST, JSON, BEARER, body=b" " * 20_001), (413,)),
    "not JSON": Case(decision(HOST, JSON, BEARER, body=SMUGGLED), (400,)),
    "text": Case(decision(HOST, b"Content-Type: text/plain\r\n", BEARER, body=SMUGGLED), (415,)),
    "no such path": Case(line(b"GET /nothing HTTP/1.1", HOST, BEARER), (404,), framed=True),
    "no such path, with a body": Case(
        decision(HOST, JSON, BEARER, body=SMUGGLED).replace(b"/v1/decisions", b"/nothing", 1),
        (404,),
        framed=True,
    ),
    "no such path, chunked": Case(
        chunked(HOST, JSON, body=SMUGGLED).replace(b"/v1/decisions", b"/nothing", 1),
        (404,),
        framed=True,
    ),
    "no such method": Case(
        decision(HOST, body=SMUGGLED).replace(b"/v1/decisions", b"/healthz", 1), (405,), framed=True
    ),
    "a body that nobody reads": Case(reading(b"/healthz", HOST), (200,), framed=True),
    "a body of a call that takes none": Case(
        reading(b"/v1/policy", HOST, BEARER), (200,), framed=True
    ),
    "metrics without a key": Case(reading(b"/metrics", HOST), (401,)),
    "a tunnel": Case(line(b"CONNECT evil:80 HTTP/1.1", HOST), (404,), framed=True),
    "no host": Case(decision(JSON, BEARER), (400,)),
    "chunks of HTTP/1.0": Case(chunked(HOST, JSON, BEARER).replace(b"/1.1", b"/1.0", 1), (400,)),
    "list of lengths": Case(
        line(b"POST /v1/decisions HTTP/1.1", HOST, JSON, BEARER, b"Content-Length: 62, 62\r\n")
        + DECIDE,
        (400,),
    ),
    "length beyond 64 bits": Case(decision(HOST, JSON, BEARER, length=2**64 + 62), (400,)),
    "no known encoding": Case(
        line(b"POST /v1/decisions HTTP/1.1", HOST, JSON, BEARER, b"Transfer-Encoding: x\r\n")
        + SMUGGLED,
        (400,),
    ),
    "chunk beyond 64 bits": Case(
        chunked(HOST, JSON, BEARER).replace(b"\r\n3e\r\n", b"\r\n1000000000000003e\r\n"), (400,)
    ),
    "long extension of a chunk": Case(
        chunked(HOST, JSON, BEARER).replace(b"\r\n3e\r\n", b"\r\n3e;%s\r\n" % (b"y" * 40_000)),
        (400,),
    ),
    "bad trailer": Case(chunked(HOST, JSON, BEARER, trailers=b"no colon\r\n"), (400,)),
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    keys = f"{digest(KEY.decode())} read-write"
    given = told(tmp_path_factory.mktemp("corpus"), keys=keys, max_body=20_000, body_timeout=5.0)
    assert given.max_headers == MAX_HEADERS
    # Each request has a connection of its own; beyond this limit answers close theirs.
    limits = msgspec.structs.replace(given.tenants["default"].limits, max_connections=5000)
    rules = msgspec.structs.replace(given.tenants["default"], limits=limits)
    given = msgspec.structs.replace(given, tenants={"default": rules})
    with running(given, headers={"Authorization": f"Bearer {KEY.decode()}"}) as made:
        yield made


def answer(service: Running, parts: list[bytes]) -> bytes:
    """What comes back if these parts are sent as one packet each."""
    with reach(service.url) as connection:
        try:
            for number, part in enumerate(parts):
                connection.sendall(part)
                if 1 < len(parts) < 10 and number + 1 < len(parts):
                    time.sleep(0.002)
        except ConnectionError:
            pass  # refused and closed before all of it was sent
        return all_of(connection)


def statuses(answer: bytes) -> tuple[int, ...]:
    return tuple(int(one) for one in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer))


def parts_of(content: bytes, chance: random.Random) -> Iterator[list[bytes]]:
    """Yield ways to cut a request: whole, at buffers' sizes, at random places, into bytes."""
    yield [content]
    places = [size for size in BUFFERS if size < len(content)]
    places += [chance.randrange(1, len(content)) for _ in range(CUTS)]
    for place in places:
        yield [content[:place], content[place:]]
    if len(content) < 2000:
        yield single_bytes(content)
    else:
        # A long one byte by byte at its beginning and its end, and in one piece in between.
        first, last = single_bytes(content[:200]), single_bytes(content[-200:])
        yield [*first, content[200:-200], *last]
        yield from parts_around_buffers(content)


def parts_around_buffers(content: bytes) -> Iterator[list[bytes]]:
    """Yield ways to cut a request near the ends of buffers: at each byte, and at all of them."""
    for size in BUFFERS:
        if size + AROUND < len(content):
            first, last = size - AROUND, size + AROUND
            for place in range(first, last + 1):
                yield [content[:place], content[place:]]
            yield [content[:first], *single_bytes(content[first:last]), content[last:]]


def single_bytes(content: bytes) -> list[bytes]:
    return [content[i : i + 1] for i in range(len(content))]


@pytest.mark.parametrize("name", CORPUS)
def test_a_request_gets_the_same_answer_however_it_is_cut(service: Running, name: str) -> None:
    case, chance = CORPUS[name], random.Random(name)
    if case.framed:
        end = line(b"GET /healthz HTTP/1.1", HOST, b"Connection: close\r\n")
        expected = (*case.statuses, 200)
    else:
        service.decide("keeper", arms=ARMS).raise_for_status()
        end, expected = ERASE, case.statuses
    for parts in parts_of(case.content + end, chance):
        got = statuses(answer(service, parts))
        assert got == expected or (case.or_closed and not got), [len(part) for part in parts][:5]
    if not case.framed:
        assert service.http.get("/v1/users/keeper").status_code == 200


def test_requests_that_are_longer_than_a_buffer_are_cut_at_each_byte_around_its_end() -> None:
    """A header that straddles the end of a buffer was missed once."""
    long = {name: case.content for name, case in CORPUS.items() if len(case.content) > 16_500}
    assert long.keys() >= {"split upgrade", "headers too long", "body too long"}
    for content in long.values():
        cuts = {len(parts[0]) for parts in parts_of(content, random.Random(1)) if len(parts) == 2}
        assert cuts >= set(range(16_384 - 40, 16_384 + 41))
    begins = long["split upgrade"].index(b"Upgrade: h2c")
    assert 16_384 - 40 < begins < 16_384 < begins + len(b"Upgrade: h2c")


def test_the_request_that_must_not_be_executed_is_executed_alone(service: Running) -> None:
    """Otherwise the test above could not fail."""
    service.decide("keeper", arms=ARMS).raise_for_status()
    closing = ERASE.replace(HOST, HOST + b"Connection: close\r\n")
    assert statuses(answer(service, [closing])) == (202,)
    assert service.http.get("/v1/users/keeper").status_code == 404
