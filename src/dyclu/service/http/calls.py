"""All calls of the HTTP API: one table, from which routes, OpenAPI document and tests are made."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from dyclu.service import schema
from dyclu.service.http.naming import as_vectors, checked_observations
from dyclu.service.http.views.window import Window
from dyclu.service.refusal import Refusal, over_limit
from dyclu.service.tenant.tenant import Tenant

LARGEST_NUMBER = 2**53

A = TypeVar("A")


@dataclass(slots=True)
class Asked:
    """A request of a known caller: its tenant, path, query and body."""

    tenant: Tenant
    window: Window
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Any

    def id(self, name: str) -> str:
        """Return an id from the path."""
        id = self.path[name]
        if len(id) > schema.LONGEST_ID or not re.fullmatch(schema.ID, id):
            raise Refusal(
                422,
                "invalid",
                f"expected up to {schema.LONGEST_ID} letters, digits and _.:@+=~-",
                field=name,
            )
        return id

    def number(self, name: str) -> int | None:
        """Return the number that ``?name=`` gives, None without it."""
        text = self.query.get(name)
        if text is None:
            return None
        if not re.fullmatch(r"[0-9]{1,16}", text) or int(text) > LARGEST_NUMBER:
            raise Refusal(422, "invalid", "expected a whole number ≥ 0", field=name)
        return int(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of the HTTP surface.

    Attributes
    ----------
    name : str
        What metrics and the OpenAPI document call it.
    method, path : str
        How it is reached.
    answer : callable
        Computes the answer.
    takes, gives : type or None
        Types of the bodies of request and answer.
    takes_named : type or None
        Type of the request's body for tenants that declare features, if it is another one.
    refuses : tuple of int
        Statuses of refusals that only this call gives.
    query : dict of str to str
        Parameters after the question mark, and what they mean.
    """

    name: str
    method: str
    path: str
    answer: Callable[[Asked], Awaitable[Any]]
    summary: str
    gives: type[Any]
    takes: type[Any] | None = None
    takes_named: type[Any] | None = None
    refuses: tuple[int, ...] = ()
    query: Mapping[str, str] = field(default_factory=dict)

    @property
    def writes(self) -> bool:
        """Whether it needs a key that may write."""
        return self.method != "GET"


def _decide(asked: Asked) -> Awaitable[schema.Decided]:
    request, reasons = as_vectors(asked.body, asked.tenant.rules)
    return asked.tenant.decide(request, reasons=reasons)


async def _decide_batch(asked: Asked) -> schema.DecisionResults:
    wanted = _bounded(asked, asked.body.decisions, "decisions")
    turn = asyncio.Lock()

    async def decide(one: schema.DecisionRequest | schema.NamedDecisionRequest) -> schema.Decided:
        request, reasons = as_vectors(one, asked.tenant.rules)
        # One ranking of a batch at a time, so that other callers' rankings get a turn.
        async with turn:
            order = await asked.tenant.ranked(request)
        return await asked.tenant.decide(request, order, reasons)

    answers = await all_settled(decide(one) for one in wanted)
    return schema.DecisionResults([_or_failed(one) for one in answers])


def _reward(asked: Asked) -> Awaitable[schema.Rewarded]:
    return asked.tenant.reward(asked.id("id"), asked.body)


async def _reward_batch(asked: Asked) -> schema.RewardResults:
    given = _bounded(asked, asked.body.rewards, "rewards")
    jobs = (asked.tenant.reward(one.decision_id, one) for one in given)
    return schema.RewardResults([_or_failed(one) for one in await all_settled(jobs)])


def _activate(asked: Asked) -> Awaitable[schema.Activated]:
    return asked.tenant.activate(asked.id("id"))


async def _observe(asked: Asked) -> schema.ObservationResults:
    given = _bounded(asked, asked.body.observations, "observations")
    told = await checked_observations(given, asked.tenant.rules)
    answers = await all_settled(asked.tenant.observe(one) for one in told)
    return schema.ObservationResults([_or_failed(one) for one in answers])


async def _user(asked: Asked) -> schema.UserView:
    return asked.window.user(asked.id("id"))


def _erase(asked: Asked) -> Awaitable[schema.Erased]:
    return asked.tenant.erase(asked.id("id"))


async def _models(asked: Asked) -> schema.Models:
    return asked.window.models()


async def _features(asked: Asked) -> schema.FeaturesView:
    return asked.window.features()


async def _changes(asked: Asked) -> schema.Changes:
    return asked.window.changes(asked.number("since") or 0, asked.number("epoch"))


async def _policy(asked: Asked) -> schema.PolicyView:
    return asked.window.policy()


async def _activity(asked: Asked) -> schema.Activity:
    return asked.window.activity()


async def _lift(asked: Asked) -> schema.LiftView:
    return asked.window.lift()


async def all_settled(jobs: Iterable[Coroutine[Any, Any, A]]) -> list[A | Refusal]:
    """Return the answers to the requests of a batch in their order, refusals included.

    Each request is a separate task, so that other callers are served in between.

    >>> async def half(number: int) -> int:
    ...     if number % 2:
    ...         raise Refusal(422, "odd", f"{number} is odd")
    ...     return number // 2
    >>> asyncio.run(all_settled(half(number) for number in (4, 5)))
    [2, Refusal('5 is odd')]
    """
    begun = []
    for job in jobs:
        begun.append(asyncio.create_task(_settled(job)))
        # The task starts now; all of them wait for the disk together.
        await asyncio.sleep(0)
    return list(await asyncio.gather(*begun))


async def _settled(job: Coroutine[Any, Any, A]) -> A | Refusal:
    try:
        return await job
    except Refusal as refusal:
        return refusal


def _bounded(asked: Asked, items: list[Any], field: str) -> list[Any]:
    most = asked.tenant.rules.limits.max_batch
    if len(items) > most:
        raise over_limit(field, "max_batch", f"{len(items)} long", most)
    return items


def _or_failed(answer: Any) -> Any:
    if isinstance(answer, Refusal):
        return schema.Failed(answer.status, problem(answer))
    return answer


def problem(refusal: Refusal) -> schema.Problem:
    """Return a refusal as a value for JSON."""
    return schema.Problem(refusal.code, str(refusal), refusal.field)


OF_WHOLE = {"partition": "In a cluster: of this partition only; of the whole tenant without it."}
OF_ONE = {"partition": "In a cluster: of this partition; of partition 0 without it."}

CALLS = (
    Call(
        name="decide",
        method="POST",
        path="/v1/decisions",
        answer=_decide,
        takes=schema.DecisionRequest,
        takes_named=schema.NamedDecisionRequest,
        gives=schema.Decided,
        refuses=(409, 429),
        summary="Choose one of several arms for a user.",
    ),
    Call(
        name="decide_batch",
        method="POST",
        path="/v1/decisions:batch",
        answer=_decide_batch,
        takes=schema.DecisionBatch,
        takes_named=schema.NamedDecisionBatch,
        gives=schema.DecisionResults,
        summary="Choose for several users in one call.",
    ),
    Call(
        name="reward",
        method="POST",
        path="/v1/decisions/{id}/reward",
        answer=_reward,
        takes=schema.RewardRequest,
        gives=schema.Rewarded,
        refuses=(404, 409, 410),
        summary="Send the reward of a decision or of its slots, now or days later.",
    ),
    Call(
        name="activate",
        method="POST",
        path="/v1/decisions/{id}/activate",
        answer=_activate,
        gives=schema.Activated,
        refuses=(404, 410),
        summary="Activate a decision that was made inactive, once its arm has been shown.",
    ),
    Call(
        name="reward_batch",
        method="POST",
        path="/v1/rewards:batch",
        answer=_reward_batch,
        takes=schema.RewardBatch,
        gives=schema.RewardResults,
        summary="Send the rewards of several decisions.",
    ),
    Call(
        name="observe",
        method="POST",
        path="/v1/observations",
        answer=_observe,
        takes=schema.ObservationBatch,
        takes_named=schema.NamedObservationBatch,
        gives=schema.ObservationResults,
        summary="Learn observations from another source, such as a log; all of them, or none.",
    ),
    Call(
        name="user",
        method="GET",
        path="/v1/users/{id}",
        answer=_user,
        gives=schema.UserView,
        refuses=(404,),
        summary="Show what the service knows about a user.",
    ),
    Call(
        name="erase",
        method="DELETE",
        path="/v1/users/{id}",
        answer=_erase,
        gives=schema.Erased,
        refuses=(404,),
        summary="Erase a user from journal and snapshots, and rebuild the policy without them.",
    ),
    Call(
        name="models",
        method="GET",
        path="/v1/models",
        answer=_models,
        gives=schema.Models,
        query=OF_ONE,
        summary="Show the models: what each of them likes, and how many users follow it.",
    ),
    Call(
        name="features",
        method="GET",
        path="/v1/features",
        answer=_features,
        gives=schema.FeaturesView,
        summary="Show the declared features, from which clients can make the same vectors.",
    ),
    Call(
        name="changes",
        method="GET",
        path="/v1/changes",
        answer=_changes,
        gives=schema.Changes,
        refuses=(409,),
        query={
            "since": "Number of the last change already seen: `next` of the answer before.",
            "epoch": "Epoch of the answer before; refused (409) if its numbers no longer hold.",
            **OF_ONE,
        },
        summary="Show the changes of users, 500 at a time.",
    ),
    Call(
        name="policy",
        method="GET",
        path="/v1/policy",
        answer=_policy,
        gives=schema.PolicyView,
        query=OF_WHOLE,
        summary="Show the policy that serves, its settings and its counters.",
    ),
    Call(
        name="activity",
        method="GET",
        path="/v1/activity",
        answer=_activity,
        gives=schema.Activity,
        query=OF_WHOLE,
        summary="Show how many decisions, rewards and changes there were, and when.",
    ),
    Call(
        name="lift",
        method="GET",
        path="/v1/lift",
        answer=_lift,
        gives=schema.LiftView,
        query=OF_WHOLE,
        summary="Compare the policy with the control group, per day and in all.",
    ),
)
