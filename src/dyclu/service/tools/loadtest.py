"""`load`: simulated users send requests to a running service; latencies and regret are measured."""

from __future__ import annotations

import asyncio
import math
import random
import ssl
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import msgspec
import numpy as np

from dyclu.client.owners import OWNER, Owners
from dyclu.client.requests import Request
from dyclu.errors import OptionError
from dyclu.validation import FloatArray

TABLE = 1000
"""Number of different arms; each is encoded as JSON once."""

TINY = 1e-6
"""Share of a round that is due to rounding."""

NOT_BEGUN = "not begun"
"""Error of rounds that were due before the end of the test, and were never sent."""

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Options of a load test.

    Attributes
    ----------
    users, tastes, arms : int
        Number of users, number of tastes they share, and arms per decision.
    slots : int
        Slots per decision; each is rewarded.
    noise : float
        Standard deviation of the rewards.
    clients : int
        Number of connections.
    seconds : float
        Duration of the test.
    rounds : int or None
        Number of decisions at most.
    rate : float or None
        Rounds per second; None starts each round as soon as the one before is answered. The
        latency of a decision is then measured from the time at which it was due.
    rewarded : float
        Share of the decisions that are rewarded.
    seed : int
        The same seed gives the same population.
    turn : int
        Another turn gives the same users in another order, with other arms.
    """

    users: int = 1000
    tastes: int = 10
    arms: int = 10
    slots: int = 1
    noise: float = 0.1
    clients: int = 64
    seconds: float = 10.0
    rounds: int | None = None
    rate: float | None = None
    rewarded: float = 1.0
    seed: int = 0
    turn: int = 0


@dataclass(slots=True)
class LoadResult:
    """The result of a load test: latencies in seconds, counts of errors, and regrets in order."""

    decisions: list[float] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    regrets: list[float] = field(default_factory=list)
    seconds: float = 0.0

    def numbers(self) -> dict[str, Any]:
        """Return the result as plain values."""
        tenth = max(1, len(self.regrets) // 10)
        return {
            "seconds": round(self.seconds, 2),
            "decisions_per_second": round(len(self.decisions) / self.seconds, 1),
            "rewards_per_second": round(len(self.rewards) / self.seconds, 1),
            "decision_ms": _percentiles(self.decisions),
            "reward_ms": _percentiles(self.rewards),
            "regret_first_tenth": _mean(self.regrets[:tenth]),
            "regret_last_tenth": _mean(self.regrets[-tenth:]),
            "errors": dict(self.errors),
        }


def _percentiles(seconds: list[float]) -> dict[str, float]:
    if not seconds:
        return {}
    found = np.percentile(np.array(seconds) * 1000, (50, 90, 99, 100))
    return dict(zip(("p50", "p90", "p99", "max"), np.round(found, 2).tolist(), strict=True))


def _mean(values: list[float]) -> float | None:
    return round(float(np.mean(values)), 4) if values else None


class SimulatedUsers:
    """Simulated users with tastes, and arms encoded as JSON."""

    def __init__(self, load: Load, dim: int) -> None:
        drawn = np.random.default_rng(load.seed)
        tastes = _unit(drawn.standard_normal((load.tastes, dim)))
        table = _unit(drawn.standard_normal((TABLE, dim)))
        # Faster than NumPy for one number at a time.
        self.chance = random.Random(f"{load.seed} {load.turn}")
        self.worth = table @ tastes.T
        self.written = [
            b'{"id":"%d","features":%s}' % (i, _encode(row)) for i, row in enumerate(table.tolist())
        ]
        self.load = load
        self.count = 0

    @property
    def done(self) -> bool:
        """Whether the wanted number of rounds has been sent."""
        return self.load.rounds is not None and self.count >= self.load.rounds

    def round(self, new_id: Callable[[str], str]) -> tuple[str, str, FloatArray, bytes]:
        """Return user and id of a decision, its arms' expected rewards, and the request's body."""
        self.count += 1
        user = self.chance.randrange(self.load.users)
        taste = user % self.load.tastes
        offered = self.chance.sample(range(TABLE), self.load.arms)
        arms = b",".join([self.written[i] for i in offered])
        id = new_id(f"u{user}")
        slots = b',"slots":%d' % self.load.slots if self.load.slots > 1 else b""
        told = (user, id.encode(), arms, slots)
        body = b'{"user":"u%d","decision_id":"%s","arms":[%s]%s}' % told
        return f"u{user}", id, self.worth[offered, taste], body


class HttpConnection:
    """One HTTP/1.1 connection that is kept open; one request at a time.

    A general HTTP client takes longer per request than the service does: a load test on one
    machine would measure the client.
    """

    def __init__(self, host: str, port: int, key: str | None, *, tls: bool = False) -> None:
        self._host, self._port = host, port
        self._tls = ssl.create_default_context() if tls else None
        bearer = f"Authorization: Bearer {key}\r\n" if key else ""
        self._head = f"Host: {host}:{port}\r\nContent-Type: application/json\r\n{bearer}"
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self.owner = ""

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Send a body and return status and answer; raises OSError if the connection breaks."""
        return await self._ask("POST", path, body)

    async def get(self, path: str) -> tuple[int, bytes]:
        """Return status and answer."""
        return await self._ask("GET", path, b"")

    async def _ask(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        if self._writer is None or self._reader is None:
            self._reader, self._writer = await asyncio.open_connection(
                self._host, self._port, ssl=self._tls
            )
        head = f"{method} {path} HTTP/1.1\r\n{self._head}Content-Length: {len(body)}\r\n\r\n"
        try:
            self._writer.write(head.encode() + body)
            answer = await self._reader.readuntil(b"\r\n\r\n")
            self.owner = _header(answer, OWNER)
            length = answer.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
            return int(answer[9:12]), await self._reader.readexactly(int(length))
        except (asyncio.IncompleteReadError, ValueError) as error:
            self.close()
            raise ConnectionError(f"the answer broke off ({error})") from None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None

    async def end(self) -> None:
        """Close the connection, and wait until it is closed; TLS says goodbye."""
        writer = self._writer
        self.close()
        if writer is not None:
            with suppress(OSError):
                await writer.wait_closed()


class Processes:
    """Connections of one client to the processes of a service, to the owners as far as known."""

    def __init__(self, url: str, key: str | None, owners: Owners) -> None:
        self._url, self._key, self._owners = url, key, owners
        self._open: dict[str, HttpConnection] = {}
        self.new_id = owners.new_id

    async def post(self, path: str, body: bytes, user: str) -> tuple[int, bytes]:
        """Send a body that is about a user; raises OSError if the connection breaks."""
        url = self._owners.url(Request("POST", path, user=user))
        if url not in self._open:
            self._open[url] = connection_to(url, self._key)
        connection = self._open[url]
        try:
            status, answer = await connection.post(path, body)
        except OSError:
            self._owners.lost(url)
            raise
        self._owners.heard(url, status, connection.owner)
        return status, answer

    async def end(self) -> None:
        """Close all connections."""
        for connection in self._open.values():
            await connection.end()


def connection_to(url: str, key: str | None) -> HttpConnection:
    """Return a connection to an address, which is opened by the first request."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or parts.hostname is None:
        raise OptionError(
            f"url is {url!r}, expected http://host:port or https://host:port; put no path behind it"
        )
    tls = parts.scheme == "https"
    return HttpConnection(parts.hostname, parts.port or (443 if tls else 80), key, tls=tls)


def _header(head: bytes, name: str) -> str:
    """Return a header of an answer, empty if it has none."""
    low = head.lower()
    start = low.find(f"\r\n{name}: ".encode())
    if start < 0:
        return ""
    start += len(name) + 4
    return head[start : head.index(b"\r\n", start)].decode("latin-1")


def _unit(rows: FloatArray) -> FloatArray:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


async def load(
    url: str,
    wanted: Load,
    *,
    key: str | None = None,
    dim: int | None = None,
    owners: Owners | None = None,
    progress: Callable[[float], None] = lambda _: None,
) -> LoadResult:
    """Run a load test; the service is asked for its dimension unless `dim` is given.

    In a cluster it learns who owns what, unless it knows the `owners` from an earlier test.
    """
    first = connection_to(url, key)
    users = SimulatedUsers(wanted, dim or await _dim(first))
    owners = Owners(url) if owners is None else owners
    served = LoadResult()
    began = time.perf_counter()
    pace = None if wanted.rate is None else wanted.clients / wanted.rate
    jobs = [
        _client(Processes(url, key, owners), users, served, began, pace, number / wanted.clients)
        for number in range(wanted.clients)
    ]
    watching = asyncio.create_task(_watch(began, wanted.seconds, progress))
    await asyncio.gather(*jobs)
    served.seconds = time.perf_counter() - began
    watching.cancel()
    return served


async def _dim(connection: HttpConnection) -> int:
    try:
        status, answer = await connection.get("/v1/policy")
    except OSError as error:
        raise OptionError(
            f"the service does not answer ({error}); start it with dyclu serve"
        ) from None
    await connection.end()
    if status != 200:
        raise OptionError(f"the service answers {status}: {answer.decode(errors='replace')}")
    policy = msgspec.json.decode(answer)
    if policy["mode"] != "online":
        raise OptionError("the service is in shadow mode; the load test needs it online")
    return int(policy["dim"])


async def _watch(began: float, seconds: float, progress: Callable[[float], None]) -> None:
    while True:
        progress(min(seconds, time.perf_counter() - began))
        await asyncio.sleep(0.2)


async def _client(
    processes: Processes,
    users: SimulatedUsers,
    served: LoadResult,
    began: float,
    pace: float | None,
    offset: float,
) -> None:
    end = began + users.load.seconds
    due, last = began + (pace or 0.0) * offset, end - TINY * (pace or 0.0)
    while (now := time.perf_counter()) < end and due < last and not users.done:
        if pace is not None:
            await asyncio.sleep(max(0.0, due - now))
        try:
            await _round(processes, users, served, now if pace is None else due)
        except OSError as error:
            served.errors[type(error).__name__] += 1
            await asyncio.sleep(0.05)
        due += pace or 0.0
    if pace is not None and not users.done:
        missed = math.ceil((end - due) / pace - TINY)
        if missed > 0:
            served.errors[NOT_BEGUN] += missed
    await processes.end()


async def _round(
    processes: Processes, users: SimulatedUsers, served: LoadResult, began: float
) -> None:
    """Ask for a decision and reward it; the decision's latency is measured from `began`.

    At a fixed rate this is when it was due: if the service stands still, the rounds that should
    have begun meanwhile have waited, too.
    """
    user, id, worth, body = users.round(processes.new_id)
    status, answer = await processes.post("/v1/decisions", body, user)
    if status != 200:
        served.errors[str(status)] += 1
        return
    served.decisions.append(time.perf_counter() - began)
    shown = msgspec.json.decode(answer, type=_Shown)
    arms = [shown.arm] if shown.slots is None else [one.arm for one in shown.slots]
    places = [_place(body, arm) for arm in arms]
    best = np.sort(worth)[::-1][: len(places)]
    served.regrets.append(float(np.mean(best - worth[places])))
    if users.chance.random() >= users.load.rewarded:
        return
    rewards = [float(worth[one]) + users.chance.gauss(0.0, users.load.noise) for one in places]
    given: dict[str, Any] = {"value": rewards[0]}
    if shown.slots is not None:
        given = {"values": {str(slot): value for slot, value in enumerate(rewards, 1)}}
    began = time.perf_counter()
    status, _ = await processes.post(f"/v1/decisions/{id}/reward", _encode(given), user)
    if status == 200:
        served.rewards.append(time.perf_counter() - began)
    else:
        served.errors[str(status)] += 1


class _Arm(msgspec.Struct):
    arm: str


class _Shown(msgspec.Struct):
    arm: str
    slots: list[_Arm] | None = None


def _place(body: bytes, arm: str) -> int:
    """Return the index of an arm in a request."""
    before = body.partition(b'"id":"%s"' % arm.encode())[0]
    return before.count(b'"features":')
