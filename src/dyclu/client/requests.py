"""Requests of a client: what is sent, how often, and what becomes of the answers."""

from __future__ import annotations

import random
import uuid
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx

from dyclu.data import Features
from dyclu.errors import DycluError

TEMPORARY = frozenset({429, 502, 503, 504})
"""Statuses after which the same request may succeed later."""

NOT_FOUND = 404

LONGEST_PAUSE = 10.0

Row = Sequence[float] | Mapping[str, Any]
"""An arm: a vector, or values by declared columns."""


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


class BatchError(ServiceError):
    """One request of a call with many rows failed; others may have been answered.

    Mend what the message says in `rows`, and send all of them again: they have ids, so whatever was
    done before is answered as then, and nothing is counted twice.

    Attributes
    ----------
    results : list of dict or None
        The result of each row; None if there was no answer about it. Without an answer the service
        may have done what the row asked for.
    rows : list of dict
        The rows as they were given, with the ids that were made for them.
    """

    def __init__(
        self,
        error: ServiceError,
        *,
        results: list[dict[str, Any] | None],
        rows: list[dict[str, Any]],
    ) -> None:
        super().__init__(str(error), status=error.status, code=error.code, field=error.field)
        self.results, self.rows = results, rows


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


Result = httpx.Response | httpx.TransportError
"""What became of one attempt to send a request."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request that may be sent any number of times.

    `batch` says that it is a batch, which is sent again if any of its items is refused
    temporarily. `if_gone` is the answer if an earlier attempt may have
    succeeded and this one finds nothing left to do. `user` or `decision` is what it is about.
    """

    method: str
    path: str
    body: Any = None
    batch: bool = False
    if_gone: dict[str, Any] | None = None
    user: str | None = None
    decision: str | None = None

    def attempts(self, most: int, url: str) -> Generator[float, Result, dict[str, Any]]:
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
        if self.batch and response.is_success:
            results = _told(response).get("results", ())
            return any(one.get("http") in TEMPORARY for one in results)
        return response.status_code in TEMPORARY

    def _answer(self, response: httpx.Response, *, repeated: bool) -> dict[str, Any]:
        if repeated and self.if_gone is not None and response.status_code == NOT_FOUND:
            return self.if_gone
        answer = _told(response)
        if not response.is_success or (self.batch and "results" not in answer):
            raise service_error(response.status_code, answer.get("error", {}))
        return answer


def _told(response: httpx.Response) -> dict[str, Any]:
    """Return an answer; what is not of the service, such as a proxy's page, as an error."""
    with suppress(ValueError):
        if isinstance(answer := response.json(), dict):
            return answer
    return {"error": {"message": response.text[:200] or response.reason_phrase}}


def _pause(attempt: int, result: Result) -> float:
    """Return the seconds to wait: longer each time, partly random, at least Retry-After."""
    own = min(LONGEST_PAUSE, 0.1 * 2.0 ** (attempt - 1)) * (0.5 + random.random())
    asked: str = result.headers.get("retry-after", "") if isinstance(result, httpx.Response) else ""
    return max(own, min(LONGEST_PAUSE, float(asked))) if asked.isdigit() else own


def decision_request(
    user: str,
    arms: Mapping[str, Row],
    context: Mapping[str, Any] | None,
    decision_id: str,
    options: dict[str, Any],
) -> Request:
    """Return the request for a decision."""
    body = decision_body(user, arms, context, decision_id, options)
    return Request("POST", "/v1/decisions", body, user=user)


def decision_body(
    user: str,
    arms: Mapping[str, Row],
    context: Mapping[str, Any] | None,
    decision_id: str,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the body of the request for a decision."""
    rows = [
        {**row, "id": id}
        if isinstance(row, Mapping)
        else {"id": id, "features": [float(value) for value in row]}
        for id, row in arms.items()
    ]
    body = {"user": user, "arms": rows, "decision_id": decision_id, **options}
    return body if context is None else body | {"context": context}


def observation_row(
    user: str, arm: Row, reward: float, context: Mapping[str, Any] | None, more: dict[str, Any]
) -> dict[str, Any]:
    """Return an observation as the service takes it, without what is not known."""
    columns: dict[str, Any] = {"arm": arm}
    if not isinstance(arm, Mapping):
        columns = {"features": [float(value) for value in arm]}
    if context is not None:
        columns["context"] = context
    known = {name: value for name, value in more.items() if value is not None}
    return {"user": user, **columns, "reward": float(reward), **known}


def with_event_ids(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return observations that have ids, made here where none is given."""
    return [{"event_id": uuid.uuid4().hex, **row} for row in rows]


def observations_request(rows: Iterable[Mapping[str, Any]]) -> Request:
    """Return the request that sends observations; each has an id."""
    named = with_event_ids(rows)
    # One user's can go to their owner; others are cut by whoever is asked.
    users = {row.get("user") for row in named}
    user = users.pop() if len(users) == 1 else None
    return Request(
        "POST",
        "/v1/observations",
        {"observations": named},
        batch=True,
        user=user if isinstance(user, str) else None,
    )


def declared_features(answer: dict[str, Any]) -> Features | None:
    """Return the features of an answer; None if there are none."""
    if answer["declaration"] is None:
        return None
    return Features(**answer["declaration"], loadings=answer["loadings"])


def reward_request(
    decision_id: str,
    value: float | None,
    slot: int | None,
    values: Mapping[int, float] | None,
    reward_id: str | None,
) -> Request:
    """Return the request that sends a reward, or rewards of several slots."""
    body = reward_body(value, slot, values, reward_id)
    return Request(
        "POST", f"/v1/decisions/{_quoted(decision_id)}/reward", body, decision=decision_id
    )


def reward_body(
    value: float | None,
    slot: int | None,
    values: Mapping[int, float] | None,
    reward_id: str | None,
) -> dict[str, Any]:
    """Return the body of the request that sends a reward; it has an id."""
    body: dict[str, Any] = {"reward_id": reward_id or uuid.uuid4().hex}
    if value is not None:
        body["value"] = float(value)
    if slot is not None:
        body["slot"] = slot
    if values is not None:
        body["values"] = {str(number): float(one) for number, one in values.items()}
    return body


def activation_request(decision_id: str) -> Request:
    """Return the request that activates a decision."""
    return Request("POST", f"/v1/decisions/{_quoted(decision_id)}/activate", decision=decision_id)


def user_request(user: str) -> Request:
    """Return the question about a user."""
    return Request("GET", f"/v1/users/{_quoted(user)}", user=user)


def erasure_request(user: str) -> Request:
    """Return the request that erases a user."""
    # If an earlier attempt erased the user, its answer, with the number of lines, was lost.
    gone = {"user": user, "erased_records": None, "rebuilding": None, "exact": None}
    return Request("DELETE", f"/v1/users/{_quoted(user)}", if_gone=gone, user=user)


def changes_request(since: int, epoch: int | None) -> Request:
    """Return the question about changes."""
    held = "" if epoch is None else f"&epoch={epoch}"
    return Request("GET", f"/v1/changes?since={since}{held}")


def _quoted(id: str) -> str:
    """Return an id as one part of a path, with special characters escaped: `ana?x` is not `ana`."""
    return quote(id, safe="")


def choice_of(answer: dict[str, Any]) -> Choice:
    """Return the answer to a decision."""
    return Choice(answer["decision_id"], answer["arm"], answer["mean"], answer["width"], answer)


def only_result(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the only result of a batch, or raise its refusal."""
    (result,) = answer["results"]
    if result["status"] == "refused":
        raise service_error(result["http"], result["error"])
    found: dict[str, Any] = result
    return found


def service_error(status: int, problem: Mapping[str, Any]) -> ServiceError:
    """Return the error for a refusal."""
    message = str(problem.get("message", "refused"))
    return ServiceError(
        message, status=status, code=problem.get("code"), field=problem.get("field")
    )


def headers_for(key: str | None) -> dict[str, str]:
    """Return the headers of all requests."""
    return {"Authorization": f"Bearer {key}"} if key else {}
