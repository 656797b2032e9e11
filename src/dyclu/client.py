"""A client of the decision service, blocking (`Client`) and not (`AsyncClient`).

::

    with Client("http://127.0.0.1:8321") as client:
        decision = client.decide("ana", {"red": [1.0, 0.0], "blue": [0.0, 1.0]})
        client.reward(decision.decision_id, 1.0)

Whatever fails on the way, or is refused for the moment, is sent again after a pause. That is safe:
every request carries an id, made here if the caller gives none, and the service does it once.
"""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any
from urllib.parse import quote

import httpx

from dyclu.errors import DycluError

PASSING = frozenset({429, 502, 503, 504})
"""Statuses that another attempt may overcome."""

NOT_FOUND = 404

LONGEST_PAUSE = 10.0


class ServiceError(DycluError):
    """The service refused, or could not be reached.

    Attributes
    ----------
    status : int or None
        The HTTP status; None if there was no answer.
    code, field : str or None
        The service's one word for it, and the part of the request it objects to.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        code: str | None = None,
        field: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.field = status, code, field


@dataclass(frozen=True, slots=True)
class Choice:
    """What the service chose.

    Attributes
    ----------
    decision_id : str
        What to reward it by.
    arm : str
        Id of the chosen arm; in shadow mode, of the one the service would have chosen.
    mean, width : float
        The expected reward, and half the width of its confidence interval.
    more : dict
        Everything else the service told.
    """

    decision_id: str
    arm: str
    mean: float
    width: float
    more: dict[str, Any] = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class _Ask:
    """A request that may be sent any number of times.

    `alone` says that it is a batch of one, `gone` what a repetition that finds nothing left to do
    is answered with.
    """

    method: str
    path: str
    body: Any = None
    alone: bool = False
    gone: dict[str, Any] | None = None

    def may_pass(self, response: httpx.Response) -> bool:
        """Tell whether another attempt may overcome this refusal."""
        status = response.status_code
        if self.alone and response.is_success:
            status = response.json()["results"][0].get("http", status)
        return status in PASSING

    def judged(self, response: httpx.Response, *, lost: bool) -> dict[str, Any]:
        """Return the answer, or raise; `lost` if the answer to an earlier attempt may be."""
        if lost and self.gone is not None and response.status_code == NOT_FOUND:
            return self.gone
        return _judged(response)


class _Pauses:
    """How long to wait between attempts: longer each time, and never all clients together."""

    def __init__(self, attempts: int, chance: Callable[[], float] = random.random) -> None:
        self._attempts, self._chance = attempts, chance

    def __iter__(self) -> Iterator[float]:
        for attempt in range(self._attempts - 1):
            yield min(LONGEST_PAUSE, 0.1 * 2**attempt) * (0.5 + self._chance())


def _decision(
    user: str, arms: Mapping[str, Sequence[float]], decision_id: str | None, options: dict[str, Any]
) -> _Ask:
    rows = [{"id": id, "features": [float(value) for value in row]} for id, row in arms.items()]
    body = {"user": user, "arms": rows, "decision_id": decision_id or uuid.uuid4().hex, **options}
    return _Ask("POST", "/v1/decisions", body)


def _observation(user: str, features: Sequence[float], reward: float, event_id: str | None) -> _Ask:
    row = {
        "user": user,
        "features": [float(value) for value in features],
        "reward": float(reward),
        "event_id": event_id or uuid.uuid4().hex,
    }
    return _Ask("POST", "/v1/observations", {"observations": [row]}, alone=True)


def _reward(decision_id: str, value: float) -> _Ask:
    return _Ask("POST", f"/v1/decisions/{_quoted(decision_id)}/reward", {"value": float(value)})


def _activation(decision_id: str) -> _Ask:
    return _Ask("POST", f"/v1/decisions/{_quoted(decision_id)}/activate")


def _question(user: str) -> _Ask:
    return _Ask("GET", f"/v1/users/{_quoted(user)}")


def _erasure(user: str) -> _Ask:
    # How many lines there were was in the answer that was lost.
    gone = {"user": user, "erased_records": None, "rebuilding": None}
    return _Ask("DELETE", f"/v1/users/{_quoted(user)}", gone=gone)


def _changes(since: int, epoch: int | None) -> _Ask:
    held = "" if epoch is None else f"&epoch={epoch}"
    return _Ask("GET", f"/v1/changes?since={since}{held}")


def _quoted(id: str) -> str:
    """Return an id as one part of a path, whatever it holds: `ana?x` is not `ana`."""
    return quote(id, safe="")


def _chosen(answer: dict[str, Any]) -> Choice:
    return Choice(answer["decision_id"], answer["arm"], answer["mean"], answer["width"], answer)


def _only(answer: dict[str, Any]) -> dict[str, Any]:
    (result,) = answer["results"]
    if result["status"] == "refused":
        raise _error(result["http"], result["error"])
    found: dict[str, Any] = result
    return found


def _error(status: int, problem: Mapping[str, Any]) -> ServiceError:
    message = str(problem.get("message", "refused"))
    return ServiceError(
        message, status=status, code=problem.get("code"), field=problem.get("field")
    )


def _judged(response: httpx.Response) -> dict[str, Any]:
    """Return the answer, or raise what the service refused for."""
    try:
        answer = response.json()
    except ValueError:
        answer = {"error": {"message": response.text[:200] or response.reason_phrase}}
    if not response.is_success:
        raise _error(response.status_code, answer.get("error", {}))
    found: dict[str, Any] = answer
    return found


def _again(response: httpx.Response, pause: float) -> float:
    """Return how long to wait before the next attempt: what the service asks for, or our own."""
    asked = response.headers.get("retry-after", "")
    return max(pause, min(LONGEST_PAUSE, float(asked))) if asked.isdigit() else pause


def _headers(key: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


def _unreachable(url: str, error: Exception) -> ServiceError:
    return ServiceError(f"{url} does not answer ({error or type(error).__name__}); is it running?")


class Client:
    """Talks to a decision service.

    Parameters
    ----------
    url : str
        Where it listens.
    key : str or None
        The API key, if it needs one.
    timeout : float
        Seconds an attempt may take.
    attempts : int
        How often a request is sent at most.
    """

    def __init__(
        self, url: str, *, key: str | None = None, timeout: float = 5.0, attempts: int = 6
    ) -> None:
        self._url, self._pauses = url, _Pauses(attempts)
        self._http = httpx.Client(base_url=url, headers=_headers(key), timeout=timeout)

    def decide(
        self,
        user: str,
        arms: Mapping[str, Sequence[float]],
        *,
        decision_id: str | None = None,
        **options: Any,
    ) -> Choice:
        """Choose one of the arms; options are `rank`, `active` and `chosen`."""
        return _chosen(self._ask(_decision(user, arms, decision_id, options)))

    def reward(self, decision_id: str, value: float) -> dict[str, Any]:
        """Tell what a decision was worth."""
        return self._ask(_reward(decision_id, value))

    def activate(self, decision_id: str) -> dict[str, Any]:
        """Let a decision that began inactive count."""
        return self._ask(_activation(decision_id))

    def observe(
        self, user: str, features: Sequence[float], reward: float, *, event_id: str | None = None
    ) -> dict[str, Any]:
        """Tell of something that happened elsewhere."""
        return _only(self._ask(_observation(user, features, reward, event_id)))

    def user(self, user: str) -> dict[str, Any]:
        """Return what is known of a user."""
        return self._ask(_question(user))

    def erase(self, user: str) -> dict[str, Any]:
        """Have a user forgotten; None for what was told in an answer that was lost."""
        return self._ask(_erasure(user))

    def models(self) -> dict[str, Any]:
        """Return which tastes there are."""
        return self._ask(_Ask("GET", "/v1/models"))

    def changes(self, since: int = 0, *, epoch: int | None = None) -> dict[str, Any]:
        """Return who has changed: the first after number `since`; pass on `next` and `epoch`."""
        return self._ask(_changes(since, epoch))

    def policy(self) -> dict[str, Any]:
        """Return what serves, and how it is doing."""
        return self._ask(_Ask("GET", "/v1/policy"))

    def _ask(self, ask: _Ask) -> dict[str, Any]:
        lost = False
        for pause in self._pauses:
            try:
                response = self._http.request(ask.method, ask.path, json=ask.body)
            except httpx.TransportError:
                lost = True
                time.sleep(pause)
                continue
            if not ask.may_pass(response):
                return ask.judged(response, lost=lost)
            lost = True
            time.sleep(_again(response, pause))
        try:
            response = self._http.request(ask.method, ask.path, json=ask.body)
            return ask.judged(response, lost=lost)
        except httpx.TransportError as error:
            raise _unreachable(self._url, error) from None

    def close(self) -> None:
        """Let go of the connections."""
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()


class AsyncClient:
    """The same, to be awaited."""

    def __init__(
        self, url: str, *, key: str | None = None, timeout: float = 5.0, attempts: int = 6
    ) -> None:
        self._url, self._pauses = url, _Pauses(attempts)
        self._http = httpx.AsyncClient(base_url=url, headers=_headers(key), timeout=timeout)

    async def decide(
        self,
        user: str,
        arms: Mapping[str, Sequence[float]],
        *,
        decision_id: str | None = None,
        **options: Any,
    ) -> Choice:
        """Choose one of the arms; options are `rank`, `active` and `chosen`."""
        return _chosen(await self._ask(_decision(user, arms, decision_id, options)))

    async def reward(self, decision_id: str, value: float) -> dict[str, Any]:
        """Tell what a decision was worth."""
        return await self._ask(_reward(decision_id, value))

    async def activate(self, decision_id: str) -> dict[str, Any]:
        """Let a decision that began inactive count."""
        return await self._ask(_activation(decision_id))

    async def observe(
        self, user: str, features: Sequence[float], reward: float, *, event_id: str | None = None
    ) -> dict[str, Any]:
        """Tell of something that happened elsewhere."""
        return _only(await self._ask(_observation(user, features, reward, event_id)))

    async def user(self, user: str) -> dict[str, Any]:
        """Return what is known of a user."""
        return await self._ask(_question(user))

    async def erase(self, user: str) -> dict[str, Any]:
        """Have a user forgotten; None for what was told in an answer that was lost."""
        return await self._ask(_erasure(user))

    async def models(self) -> dict[str, Any]:
        """Return which tastes there are."""
        return await self._ask(_Ask("GET", "/v1/models"))

    async def changes(self, since: int = 0, *, epoch: int | None = None) -> dict[str, Any]:
        """Return who has changed: the first after number `since`; pass on `next` and `epoch`."""
        return await self._ask(_changes(since, epoch))

    async def policy(self) -> dict[str, Any]:
        """Return what serves, and how it is doing."""
        return await self._ask(_Ask("GET", "/v1/policy"))

    async def _ask(self, ask: _Ask) -> dict[str, Any]:
        lost = False
        for pause in self._pauses:
            try:
                response = await self._http.request(ask.method, ask.path, json=ask.body)
            except httpx.TransportError:
                lost = True
                await asyncio.sleep(pause)
                continue
            if not ask.may_pass(response):
                return ask.judged(response, lost=lost)
            lost = True
            await asyncio.sleep(_again(response, pause))
        try:
            response = await self._http.request(ask.method, ask.path, json=ask.body)
            return ask.judged(response, lost=lost)
        except httpx.TransportError as error:
            raise _unreachable(self._url, error) from None

    async def close(self) -> None:
        """Let go of the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        await self.close()
