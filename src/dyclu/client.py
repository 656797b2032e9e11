"""A client of the decision service: blocking (`Client`) and for asyncio (`AsyncClient`).

::

    with Client("http://127.0.0.1:8321") as client:
        decision = client.decide("ana", {"red": [1.0, 0.0], "blue": [0.0, 1.0]})
        client.reward(decision.decision_id, 1.0)

A request that gets no answer, or a refusal that may be temporary, is sent again after a pause. That
is safe: every request has an id, made here if the caller gives none, and the service executes it
once.
"""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any
from urllib.parse import quote

import httpx

from dyclu.errors import DycluError

TEMPORARY = frozenset({429, 502, 503, 504})
"""Statuses after which the same request may succeed later."""

NOT_FOUND = 404

LONGEST_PAUSE = 10.0


class ServiceError(DycluError):
    """The service refused, or could not be reached.

    Attributes
    ----------
    status : int or None
        The HTTP status; None if there was no answer.
    code, field : str or None
        The service's code for the refusal, and the part of the request that is wrong.
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
    """The service's answer to `decide`.

    Attributes
    ----------
    decision_id : str
        Pass it to `reward`.
    arm : str
        Id of the chosen arm; in shadow mode, of the arm that the service would have chosen.
    mean, width : float
        The expected reward, and the half-width of its confidence interval.
    more : dict
        The whole answer.
    """

    decision_id: str
    arm: str
    mean: float
    width: float
    more: dict[str, Any] = field(repr=False, compare=False)


_Result = httpx.Response | httpx.TransportError
"""What became of one attempt to send a request."""


@dataclass(frozen=True, slots=True)
class _Request:
    """A request that may be sent any number of times.

    `single` says that it is a batch of one. `if_gone` is the answer if an earlier attempt may have
    succeeded and this one finds nothing left to do.
    """

    method: str
    path: str
    body: Any = None
    single: bool = False
    if_gone: dict[str, Any] | None = None

    def attempts(self, most: int, url: str) -> Generator[float, _Result, dict[str, Any]]:
        """Yield the pause before each attempt, receive its result; return the answer, or raise."""
        pause, attempt = 0.0, 0
        while True:
            result = yield pause
            attempt += 1
            if isinstance(result, httpx.Response):
                if attempt >= most or not self._is_temporary(result):
                    return self._answer(result, repeated=attempt > 1)
            elif attempt >= most:
                reason = result or type(result).__name__
                raise ServiceError(f"{url} does not answer ({reason}); is it running?") from None
            pause = _pause(attempt, result)

    def _is_temporary(self, response: httpx.Response) -> bool:
        status = response.status_code
        if self.single and response.is_success:
            status = response.json()["results"][0].get("http", status)
        return status in TEMPORARY

    def _answer(self, response: httpx.Response, *, repeated: bool) -> dict[str, Any]:
        if repeated and self.if_gone is not None and response.status_code == NOT_FOUND:
            return self.if_gone
        try:
            answer = response.json()
        except ValueError:
            answer = {"error": {"message": response.text[:200] or response.reason_phrase}}
        if not response.is_success:
            raise _error(response.status_code, answer.get("error", {}))
        found: dict[str, Any] = answer
        return found


def _pause(attempt: int, result: _Result) -> float:
    """Return the seconds to wait: longer each time, partly random, at least Retry-After."""
    own = min(LONGEST_PAUSE, 0.1 * 2.0 ** (attempt - 1)) * (0.5 + random.random())
    asked: str = result.headers.get("retry-after", "") if isinstance(result, httpx.Response) else ""
    return max(own, min(LONGEST_PAUSE, float(asked))) if asked.isdigit() else own


def _decision(
    user: str, arms: Mapping[str, Sequence[float]], decision_id: str | None, options: dict[str, Any]
) -> _Request:
    rows = [{"id": id, "features": [float(value) for value in row]} for id, row in arms.items()]
    body = {"user": user, "arms": rows, "decision_id": decision_id or uuid.uuid4().hex, **options}
    return _Request("POST", "/v1/decisions", body)


def _observation(
    user: str, features: Sequence[float], reward: float, event_id: str | None
) -> _Request:
    row = {
        "user": user,
        "features": [float(value) for value in features],
        "reward": float(reward),
        "event_id": event_id or uuid.uuid4().hex,
    }
    return _Request("POST", "/v1/observations", {"observations": [row]}, single=True)


def _reward(
    decision_id: str,
    value: float | None,
    slot: int | None,
    values: Mapping[int, float] | None,
    reward_id: str | None,
) -> _Request:
    body: dict[str, Any] = {"reward_id": reward_id or uuid.uuid4().hex}
    if value is not None:
        body["value"] = float(value)
    if slot is not None:
        body["slot"] = slot
    if values is not None:
        body["values"] = {str(number): float(one) for number, one in values.items()}
    return _Request("POST", f"/v1/decisions/{_quoted(decision_id)}/reward", body)


def _activation(decision_id: str) -> _Request:
    return _Request("POST", f"/v1/decisions/{_quoted(decision_id)}/activate")


def _question(user: str) -> _Request:
    return _Request("GET", f"/v1/users/{_quoted(user)}")


def _erasure(user: str) -> _Request:
    # If an earlier attempt erased the user, its answer, with the number of lines, was lost.
    gone = {"user": user, "erased_records": None, "rebuilding": None}
    return _Request("DELETE", f"/v1/users/{_quoted(user)}", if_gone=gone)


def _changes(since: int, epoch: int | None) -> _Request:
    held = "" if epoch is None else f"&epoch={epoch}"
    return _Request("GET", f"/v1/changes?since={since}{held}")


def _quoted(id: str) -> str:
    """Return an id as one part of a path, with special characters escaped: `ana?x` is not `ana`."""
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


def _headers(key: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


class Client:
    """A blocking client of a decision service.

    Parameters
    ----------
    url : str
        Address of the service.
    key : str or None
        The API key, if the service needs one.
    timeout : float
        Seconds that one attempt may take.
    attempts : int
        How often a request is sent at most.
    """

    def __init__(
        self, url: str, *, key: str | None = None, timeout: float = 5.0, attempts: int = 6
    ) -> None:
        self._url, self._attempts = url, attempts
        self._http = httpx.Client(base_url=url, headers=_headers(key), timeout=timeout)

    def decide(
        self,
        user: str,
        arms: Mapping[str, Sequence[float]],
        *,
        decision_id: str | None = None,
        **options: Any,
    ) -> Choice:
        """Choose one of the arms; options are `slots`, `rank`, `active` and `chosen`."""
        return _chosen(self._ask(_decision(user, arms, decision_id, options)))

    def reward(
        self,
        decision_id: str,
        value: float | None = None,
        *,
        slot: int | None = None,
        values: Mapping[int, float] | None = None,
        reward_id: str | None = None,
    ) -> dict[str, Any]:
        """Send the reward of a decision, of one of its slots, or of several (`values` by slot).

        Where rewards of a decision add up, each call is another reward; it is counted once.
        """
        return self._ask(_reward(decision_id, value, slot, values, reward_id))

    def activate(self, decision_id: str) -> dict[str, Any]:
        """Activate a decision that was made with ``active=False``."""
        return self._ask(_activation(decision_id))

    def observe(
        self, user: str, features: Sequence[float], reward: float, *, event_id: str | None = None
    ) -> dict[str, Any]:
        """Send an observation that did not come from a decision of the service."""
        return _only(self._ask(_observation(user, features, reward, event_id)))

    def user(self, user: str) -> dict[str, Any]:
        """Return what the service knows about a user."""
        return self._ask(_question(user))

    def erase(self, user: str) -> dict[str, Any]:
        """Erase a user; values of the answer are None if the first answer was lost."""
        return self._ask(_erasure(user))

    def models(self) -> dict[str, Any]:
        """Return the models, one per taste."""
        return self._ask(_Request("GET", "/v1/models"))

    def changes(self, since: int = 0, *, epoch: int | None = None) -> dict[str, Any]:
        """Return the first changes after number `since`; pass its `next` and `epoch` next time."""
        return self._ask(_changes(since, epoch))

    def policy(self) -> dict[str, Any]:
        """Return the policy that serves, its settings, its counters and its `warnings`."""
        return self._ask(_Request("GET", "/v1/policy"))

    def lift(self) -> dict[str, Any]:
        """Return how the policy compares with the control group, per day and in all."""
        return self._ask(_Request("GET", "/v1/lift"))

    def _ask(self, request: _Request) -> dict[str, Any]:
        attempts = request.attempts(self._attempts, self._url)
        pause = next(attempts)
        while True:
            time.sleep(pause)
            try:
                result: _Result = self._http.request(
                    request.method, request.path, json=request.body
                )
            except httpx.TransportError as error:
                result = error
            try:
                pause = attempts.send(result)
            except StopIteration as done:
                answer: dict[str, Any] = done.value
                return answer

    def close(self) -> None:
        """Close the connections."""
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
    """The same for asyncio: every method is awaited."""

    def __init__(
        self, url: str, *, key: str | None = None, timeout: float = 5.0, attempts: int = 6
    ) -> None:
        self._url, self._attempts = url, attempts
        self._http = httpx.AsyncClient(base_url=url, headers=_headers(key), timeout=timeout)

    async def decide(
        self,
        user: str,
        arms: Mapping[str, Sequence[float]],
        *,
        decision_id: str | None = None,
        **options: Any,
    ) -> Choice:
        """Choose one of the arms; options are `slots`, `rank`, `active` and `chosen`."""
        return _chosen(await self._ask(_decision(user, arms, decision_id, options)))

    async def reward(
        self,
        decision_id: str,
        value: float | None = None,
        *,
        slot: int | None = None,
        values: Mapping[int, float] | None = None,
        reward_id: str | None = None,
    ) -> dict[str, Any]:
        """Send the reward of a decision, of one of its slots, or of several (`values` by slot).

        Where rewards of a decision add up, each call is another reward; it is counted once.
        """
        return await self._ask(_reward(decision_id, value, slot, values, reward_id))

    async def activate(self, decision_id: str) -> dict[str, Any]:
        """Activate a decision that was made with ``active=False``."""
        return await self._ask(_activation(decision_id))

    async def observe(
        self, user: str, features: Sequence[float], reward: float, *, event_id: str | None = None
    ) -> dict[str, Any]:
        """Send an observation that did not come from a decision of the service."""
        return _only(await self._ask(_observation(user, features, reward, event_id)))

    async def user(self, user: str) -> dict[str, Any]:
        """Return what the service knows about a user."""
        return await self._ask(_question(user))

    async def erase(self, user: str) -> dict[str, Any]:
        """Erase a user; values of the answer are None if the first answer was lost."""
        return await self._ask(_erasure(user))

    async def models(self) -> dict[str, Any]:
        """Return the models, one per taste."""
        return await self._ask(_Request("GET", "/v1/models"))

    async def changes(self, since: int = 0, *, epoch: int | None = None) -> dict[str, Any]:
        """Return the first changes after number `since`; pass its `next` and `epoch` next time."""
        return await self._ask(_changes(since, epoch))

    async def policy(self) -> dict[str, Any]:
        """Return the policy that serves, its settings, its counters and its `warnings`."""
        return await self._ask(_Request("GET", "/v1/policy"))

    async def lift(self) -> dict[str, Any]:
        """Return how the policy compares with the control group, per day and in all."""
        return await self._ask(_Request("GET", "/v1/lift"))

    async def _ask(self, request: _Request) -> dict[str, Any]:
        attempts = request.attempts(self._attempts, self._url)
        pause = next(attempts)
        while True:
            await asyncio.sleep(pause)
            try:
                result: _Result = await self._http.request(
                    request.method, request.path, json=request.body
                )
            except httpx.TransportError as error:
                result = error
            try:
                pause = attempts.send(result)
            except StopIteration as done:
                answer: dict[str, Any] = done.value
                return answer

    async def close(self) -> None:
        """Close the connections."""
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
