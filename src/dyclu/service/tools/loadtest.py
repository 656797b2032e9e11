"""`load`: a simulated population talks HTTP to a running service, and tells how it was served."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import msgspec
import numpy as np

from dyclu.errors import OptionError
from dyclu.service.tools.wire import Wire
from dyclu.validation import FloatArray

TABLE = 1000
"""Arms there are; each is written as JSON once."""

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How much is asked of the service.

    Attributes
    ----------
    users, tastes, arms : int
        Size of the population, how many tastes it shares, and arms offered at a time.
    noise : float
        Standard deviation of the rewards.
    clients : int
        Connections that ask at the same time.
    seconds : float
        How long.
    rounds : int or None
        How many decisions are asked for at most.
    rate : float or None
        Rounds per second that are begun; None lets every client begin as soon as it is answered.
    rewarded : float
        Share of the decisions that are rewarded.
    seed : int
        The same seed gives the same population.
    turn : int
        In another turn the same population comes in another order, and is offered other arms.
    """

    users: int = 1000
    tastes: int = 10
    arms: int = 10
    noise: float = 0.1
    clients: int = 64
    seconds: float = 10.0
    rounds: int | None = None
    rate: float | None = None
    rewarded: float = 1.0
    seed: int = 0
    turn: int = 0


@dataclass(slots=True)
class Served:
    """What was seen from outside: latencies in seconds, what went wrong, and regrets in order."""

    decisions: list[float] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    regrets: list[float] = field(default_factory=list)
    seconds: float = 0.0

    def numbers(self) -> dict[str, Any]:
        """Return the findings as plain values."""
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


class People:
    """Users with tastes, and arms as they go over the wire."""

    def __init__(self, load: Load, dim: int) -> None:
        drawn = np.random.default_rng(load.seed)
        tastes = _unit(drawn.standard_normal((load.tastes, dim)))
        table = _unit(drawn.standard_normal((TABLE, dim)))
        # For one number at a time quicker than NumPy's.
        self.chance = random.Random(f"{load.seed} {load.turn}")
        self.worth = table @ tastes.T
        self.written = [
            b'{"id":"%d","features":%s}' % (i, _encode(row)) for i, row in enumerate(table.tolist())
        ]
        self.load = load
        self.run = f"{time.time_ns():x}"
        self.count = 0

    @property
    def done(self) -> bool:
        """Whether enough has been asked."""
        return self.load.rounds is not None and self.count >= self.load.rounds

    def round(self) -> tuple[int, FloatArray, bytes]:
        """Return the round's number, what its arms are worth to the user, and the request."""
        self.count += 1
        user = self.chance.randrange(self.load.users)
        taste = user % self.load.tastes
        offered = self.chance.sample(range(TABLE), self.load.arms)
        arms = b",".join([self.written[i] for i in offered])
        id = f"{self.run}-{self.count}".encode()
        body = b'{"user":"u%d","decision_id":"%s","arms":[%s]}' % (user, id, arms)
        return self.count, self.worth[offered, taste], body


def _unit(rows: FloatArray) -> FloatArray:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


async def load(
    url: str,
    wanted: Load,
    *,
    key: str | None = None,
    dim: int | None = None,
    progress: Callable[[float], None] = lambda _: None,
) -> Served:
    """Put a running service under load; it is asked for its dimension unless that is given."""
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.hostname is None:
        raise OptionError(f"url is {url!r}, expected http://host:port; put no path behind it")
    host, port = parts.hostname, parts.port or 80
    people = People(wanted, dim or await _dim(Wire(host, port, key)))
    served = Served()
    began = time.perf_counter()
    pace = None if wanted.rate is None else wanted.clients / wanted.rate
    jobs = [
        _client(Wire(host, port, key), people, served, began, pace, number / wanted.clients)
        for number in range(wanted.clients)
    ]
    watching = asyncio.create_task(_watch(began, wanted.seconds, progress))
    await asyncio.gather(*jobs)
    served.seconds = time.perf_counter() - began
    watching.cancel()
    return served


async def _dim(wire: Wire) -> int:
    try:
        status, answer = await wire.get("/v1/policy")
    except OSError as error:
        raise OptionError(
            f"the service does not answer ({error}); start it with dyclu serve"
        ) from None
    wire.close()
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
    wire: Wire, people: People, served: Served, began: float, pace: float | None, offset: float
) -> None:
    due = began + (pace or 0.0) * offset
    while (now := time.perf_counter()) - began < people.load.seconds and not people.done:
        if pace is not None:
            await asyncio.sleep(max(0.0, due - now))
            due += pace
        try:
            await _round(wire, people, served)
        except OSError as error:
            served.errors[type(error).__name__] += 1
            await asyncio.sleep(0.05)
    wire.close()


async def _round(wire: Wire, people: People, served: Served) -> None:
    number, worth, body = people.round()
    began = time.perf_counter()
    status, answer = await wire.post("/v1/decisions", body)
    if status != 200:
        served.errors[str(status)] += 1
        return
    served.decisions.append(time.perf_counter() - began)
    arm = msgspec.json.decode(answer, type=_Arm).arm
    place = _place(body, arm)
    served.regrets.append(float(worth.max() - worth[place]))
    if people.chance.random() >= people.load.rewarded:
        return
    reward = float(worth[place]) + people.chance.gauss(0.0, people.load.noise)
    began = time.perf_counter()
    path = f"/v1/decisions/{people.run}-{number}/reward"
    status, _ = await wire.post(path, _encode({"value": reward}))
    if status == 200:
        served.rewards.append(time.perf_counter() - began)
    else:
        served.errors[str(status)] += 1


class _Arm(msgspec.Struct):
    arm: str


def _place(body: bytes, arm: str) -> int:
    """Return which of the arms of a request this is."""
    before = body.partition(b'"id":"%s"' % arm.encode())[0]
    return before.count(b'"features":')
