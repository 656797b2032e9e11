"""`Client` and `AsyncClient`: the same calls, blocking and awaited."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any

import httpx

from dyclu.client.batches import (
    Answers,
    Batch,
    Item,
    batches,
    check_json,
    decision_items,
    observation_batches,
    reward_items,
    rows_of,
)
from dyclu.client.logs import Loaded, checked_log, learnt_before, log_requests, renumbered
from dyclu.client.owners import Owners
from dyclu.client.requests import (
    Choice,
    Request,
    Result,
    Row,
    ServiceError,
    activation_request,
    changes_request,
    choice_of,
    decision_request,
    declared_features,
    erasure_request,
    headers_for,
    observation_row,
    observations_request,
    only_result,
    reward_request,
    user_request,
    with_event_ids,
)
from dyclu.data import Features, Log


class Client:
    """A blocking client of a decision service.

    Parameters
    ----------
    url : str
        Address of the service. In a cluster, of any of its processes: the others are learnt from
        answers, and asked directly for what they own.
    key : str or None
        The API key, if the service needs one.
    timeout : float
        Seconds that one attempt may take.
    attempts : int
        How often a request is sent at most. The pauses between ten attempts (16 s or more) outlast
        the lease of a process that was killed (10 s by default), and the take-over.
    """

    def __init__(
        self, url: str, *, key: str | None = None, timeout: float = 5.0, attempts: int = 10
    ) -> None:
        self._url, self._attempts = url, attempts
        self._owners = Owners(url)
        self._http = httpx.Client(headers=headers_for(key), timeout=timeout)

    def decide(
        self,
        user: str,
        arms: Mapping[str, Row],
        *,
        context: Mapping[str, Any] | None = None,
        decision_id: str | None = None,
        **options: Any,
    ) -> Choice:
        """Choose one of the arms, by id: vectors, or dicts of declared columns.

        Options are `slots`, `rank`, `active`, `explain`, and in shadow mode `chosen`, `propensity`
        and `at`.
        """
        id = decision_id or self._owners.new_id(user)
        return choice_of(self._ask(decision_request(user, arms, context, id, options)))

    def decide_many(self, rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Ask for several decisions: dicts with `user`, `arms` and the options of `decide`.

        Each is answered separately, in their order: `status` is decided or refused. They are sent
        in batches, in a cluster one or more to each process. If one is refused as a whole or gets
        no answer, `BatchError` has the results of the others and the rows with their ids.
        """
        items = decision_items(rows, self._owners)
        return self._ask_many("/v1/decisions:batch", "decisions", items)

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
        return self._ask(reward_request(decision_id, value, slot, values, reward_id))

    def reward_many(self, rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Send several rewards: dicts with `decision_id` and the arguments of `reward`.

        Each is answered separately, in their order: `status` is rewarded or refused. They are sent
        in batches, in a cluster one or more to each process. If one is refused as a whole or gets
        no answer, `BatchError` has the results of the others and the rows with their ids.
        """
        return self._ask_many("/v1/rewards:batch", "rewards", reward_items(rows))

    def activate(self, decision_id: str) -> dict[str, Any]:
        """Activate a decision that was made with ``active=False``."""
        return self._ask(activation_request(decision_id))

    def observe(
        self,
        user: str,
        arm: Row,
        reward: float,
        *,
        context: Mapping[str, Any] | None = None,
        event_id: str | None = None,
        at: float | None = None,
        propensity: float | None = None,
    ) -> dict[str, Any]:
        """Send an observation that did not come from a decision of the service.

        The arm is a vector, or a dict of declared columns.
        """
        more = {"event_id": event_id, "at": at, "propensity": propensity}
        row = observation_row(user, arm, reward, context, more)
        return only_result(self._ask(observations_request([row])))

    def observe_many(self, rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Send observations, as dicts with the fields of ``POST /v1/observations``, in batches.

        Of a batch with an invalid row nothing is learnt, and nothing after it is sent; `BatchError`
        has the results of the batches before, and the rows with their ids.
        """
        named = with_event_ids(rows)
        check_json(named)
        return self._ask_all(named, list(observation_batches(named)))

    def load(
        self, log: Log, *, name: str, progress: Callable[[int], None] = lambda rows: None
    ) -> Loaded:
        """Let the service learn a log, in its order.

        The log is read as a whole before anything is sent. A row has an id, made of `name` and its
        decision id, or its number: what was learnt before is not learnt again. So after an
        interruption, load the same log once more, with the same name.

        Parameters
        ----------
        log : Log
            Read it with ``features=client.features()``, if the service declares features.
        name : str
            Name of the log.
        progress : callable
            Is called with the number of rows learnt so far.
        """
        checked_log(log, name, self._ask(Request("GET", "/v1/features")))
        rows = repeated = 0
        for request in log_requests(log, name):
            try:
                known = learnt_before(self._ask(request), rows)
            except ServiceError as error:
                raise renumbered(error, rows) from None
            rows, repeated = rows + len(known), repeated + sum(known)
            progress(rows)
        return Loaded(rows, repeated)

    def features(self) -> Features | None:
        """Return the features that the service declares; None if it takes vectors only."""
        return declared_features(self._ask(Request("GET", "/v1/features")))

    def user(self, user: str) -> dict[str, Any]:
        """Return what the service knows about a user."""
        return self._ask(user_request(user))

    def erase(self, user: str) -> dict[str, Any]:
        """Erase a user; values of the answer are None if the first answer was lost."""
        return self._ask(erasure_request(user))

    def models(self) -> dict[str, Any]:
        """Return the models, one per taste."""
        return self._ask(Request("GET", "/v1/models"))

    def changes(self, since: int = 0, *, epoch: int | None = None) -> dict[str, Any]:
        """Return the first changes after number `since`; pass its `next` and `epoch` next time."""
        return self._ask(changes_request(since, epoch))

    def policy(self) -> dict[str, Any]:
        """Return the policy that serves, its settings, its counters and its `warnings`."""
        return self._ask(Request("GET", "/v1/policy"))

    def lift(self) -> dict[str, Any]:
        """Return how the policy compares with the control group, per day and in all."""
        return self._ask(Request("GET", "/v1/lift"))

    def _ask_many(self, path: str, field: str, items: list[Item]) -> list[dict[str, Any]]:
        check_json(item.body for item in items)
        sent = batches(path, field, items, self._owners)
        return self._ask_all(rows_of(items), sent)

    def _ask_all(self, rows: list[dict[str, Any]], sent: Iterable[Batch]) -> list[dict[str, Any]]:
        answers = Answers(rows)
        for batch in sent:
            try:
                answers.take(batch, self._ask(batch.request))
            except ServiceError as error:
                raise answers.without(batch, error) from None
        return answers.all()

    def _ask(self, request: Request) -> dict[str, Any]:
        attempts = request.attempts(self._attempts, self._url)
        pause = next(attempts)
        while True:
            time.sleep(pause)
            url = self._owners.url(request)
            try:
                result: Result = self._http.request(
                    request.method, f"{url}{request.path}", json=request.body
                )
            except httpx.TransportError as error:
                result = error
            self._owners.learn(url, result)
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
        self, url: str, *, key: str | None = None, timeout: float = 5.0, attempts: int = 10
    ) -> None:
        self._url, self._attempts = url, attempts
        self._owners = Owners(url)
        self._http = httpx.AsyncClient(headers=headers_for(key), timeout=timeout)

    async def decide(
        self,
        user: str,
        arms: Mapping[str, Row],
        *,
        context: Mapping[str, Any] | None = None,
        decision_id: str | None = None,
        **options: Any,
    ) -> Choice:
        """Choose one of the arms, by id: vectors, or dicts of declared columns.

        Options are `slots`, `rank`, `active`, `explain`, and in shadow mode `chosen`, `propensity`
        and `at`.
        """
        id = decision_id or self._owners.new_id(user)
        return choice_of(await self._ask(decision_request(user, arms, context, id, options)))

    async def decide_many(self, rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Ask for several decisions: dicts with `user`, `arms` and the options of `decide`.

        Each is answered separately, in their order: `status` is decided or refused. They are sent
        in batches, in a cluster one or more to each process. If one is refused as a whole or gets
        no answer, `BatchError` has the results of the others and the rows with their ids.
        """
        items = decision_items(rows, self._owners)
        return await self._ask_many("/v1/decisions:batch", "decisions", items)

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
        return await self._ask(reward_request(decision_id, value, slot, values, reward_id))

    async def reward_many(self, rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Send several rewards: dicts with `decision_id` and the arguments of `reward`.

        Each is answered separately, in their order: `status` is rewarded or refused. They are sent
        in batches, in a cluster one or more to each process. If one is refused as a whole or gets
        no answer, `BatchError` has the results of the others and the rows with their ids.
        """
        return await self._ask_many("/v1/rewards:batch", "rewards", reward_items(rows))

    async def activate(self, decision_id: str) -> dict[str, Any]:
        """Activate a decision that was made with ``active=False``."""
        return await self._ask(activation_request(decision_id))

    async def observe(
        self,
        user: str,
        arm: Row,
        reward: float,
        *,
        context: Mapping[str, Any] | None = None,
        event_id: str | None = None,
        at: float | None = None,
        propensity: float | None = None,
    ) -> dict[str, Any]:
        """Send an observation that did not come from a decision of the service.

        The arm is a vector, or a dict of declared columns.
        """
        more = {"event_id": event_id, "at": at, "propensity": propensity}
        row = observation_row(user, arm, reward, context, more)
        return only_result(await self._ask(observations_request([row])))

    async def observe_many(self, rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Send observations, as dicts with the fields of ``POST /v1/observations``, in batches.

        Of a batch with an invalid row nothing is learnt, and nothing after it is sent; `BatchError`
        has the results of the batches before, and the rows with their ids.
        """
        named = with_event_ids(rows)
        check_json(named)
        return await self._ask_all(named, list(observation_batches(named)))

    async def load(
        self, log: Log, *, name: str, progress: Callable[[int], None] = lambda rows: None
    ) -> Loaded:
        """Let the service learn a log, in its order.

        The log is read as a whole before anything is sent. A row has an id, made of `name` and its
        decision id, or its number: what was learnt before is not learnt again. So after an
        interruption, load the same log once more, with the same name.

        Parameters
        ----------
        log : Log
            Read it with ``features=client.features()``, if the service declares features.
        name : str
            Name of the log.
        progress : callable
            Is called with the number of rows learnt so far.
        """
        checked_log(log, name, await self._ask(Request("GET", "/v1/features")))
        rows = repeated = 0
        for request in log_requests(log, name):
            try:
                known = learnt_before(await self._ask(request), rows)
            except ServiceError as error:
                raise renumbered(error, rows) from None
            rows, repeated = rows + len(known), repeated + sum(known)
            progress(rows)
        return Loaded(rows, repeated)

    async def features(self) -> Features | None:
        """Return the features that the service declares; None if it takes vectors only."""
        return declared_features(await self._ask(Request("GET", "/v1/features")))

    async def user(self, user: str) -> dict[str, Any]:
        """Return what the service knows about a user."""
        return await self._ask(user_request(user))

    async def erase(self, user: str) -> dict[str, Any]:
        """Erase a user; values of the answer are None if the first answer was lost."""
        return await self._ask(erasure_request(user))

    async def models(self) -> dict[str, Any]:
        """Return the models, one per taste."""
        return await self._ask(Request("GET", "/v1/models"))

    async def changes(self, since: int = 0, *, epoch: int | None = None) -> dict[str, Any]:
        """Return the first changes after number `since`; pass its `next` and `epoch` next time."""
        return await self._ask(changes_request(since, epoch))

    async def policy(self) -> dict[str, Any]:
        """Return the policy that serves, its settings, its counters and its `warnings`."""
        return await self._ask(Request("GET", "/v1/policy"))

    async def lift(self) -> dict[str, Any]:
        """Return how the policy compares with the control group, per day and in all."""
        return await self._ask(Request("GET", "/v1/lift"))

    async def _ask_many(self, path: str, field: str, items: list[Item]) -> list[dict[str, Any]]:
        check_json(item.body for item in items)
        sent = batches(path, field, items, self._owners)
        return await self._ask_all(rows_of(items), sent)

    async def _ask_all(
        self, rows: list[dict[str, Any]], sent: Iterable[Batch]
    ) -> list[dict[str, Any]]:
        answers = Answers(rows)
        for batch in sent:
            try:
                answers.take(batch, await self._ask(batch.request))
            except ServiceError as error:
                raise answers.without(batch, error) from None
        return answers.all()

    async def _ask(self, request: Request) -> dict[str, Any]:
        attempts = request.attempts(self._attempts, self._url)
        pause = next(attempts)
        while True:
            await asyncio.sleep(pause)
            url = self._owners.url(request)
            try:
                result: Result = await self._http.request(
                    request.method, f"{url}{request.path}", json=request.body
                )
            except httpx.TransportError as error:
                result = error
            self._owners.learn(url, result)
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
