"""`Router`: finds the owner of what a request is about, and asks it, here or in another process.

A batch is cut by partitions, and its answers are put together in their order. A view of a whole
tenant is the sum of what all owners answer. A request that another process passed on is answered
here or refused; it is never passed on again.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

import httpx
import msgspec
from msgspec import UNSET
from starlette.datastructures import QueryParams

from dyclu.client.owners import OWNER
from dyclu.errors import OptionError
from dyclu.service import schema
from dyclu.service.cluster.keeper import Keeper, not_here
from dyclu.service.cluster.places import partition_of, told_by
from dyclu.service.http.answers import Answer, answered, encode
from dyclu.service.http.calls import Asked, Call, problem
from dyclu.service.http.naming import checked_observations
from dyclu.service.http.views.metrics import Requests
from dyclu.service.http.views.whole import WHOLE, Share
from dyclu.service.http.views.window import Window
from dyclu.service.refusal import Refusal, over_limit
from dyclu.service.settings import Settings, TenantSettings
from dyclu.service.tenant.tenant import Tenant

KEY, PARTITION = "x-dyclu-cluster", "x-dyclu-partition"
"""Headers of a request that another process passed on: the secret, and the partition it is for."""

PARTITIONS = "x-dyclu-partitions"
"""Header of a request for the sum of several partitions, instead of `PARTITION`: their numbers."""

REQUEST_ID = "x-request-id"
"""Header of the request's id: whoever answers logs the same one."""

TIMEOUT = httpx.Timeout(30.0, connect=2.0)
BATCHES = {
    "decide_batch": "decisions",
    "reward_batch": "rewards",
    "observe": "observations",
}
"""Calls whose body is a list, and the name of the list."""

NAMED = 32
"""Owners that an answer to a batch names at most; it is sent with the headers."""

MOVED = "moved"
"""Code of the refusal of a process that does not own the partition."""

VERSIONS = (
    ", and nobody has taken it over; if this stays, the process may be of another version: bring "
    "all processes to the same one"
)
"""What the refusal of a whole tenant's view adds if the owner is the same after a second look."""


@dataclass(frozen=True, slots=True)
class Routed:
    """A request: its id, the call, its tenant, and everything that the caller sent."""

    id: bytes
    call: Call
    tenant: str
    path: Mapping[str, str]
    query: bytes
    headers: Mapping[bytes, bytes]
    body: Any

    def with_body(self, body: Any) -> Routed:
        """Return the request with another body."""
        return replace(self, body=body)


class Router:
    """Answers requests of all tenants of a cluster."""

    def __init__(
        self, keeper: Keeper, requests: Mapping[str, Requests], *, trust: ssl.SSLContext | bool
    ) -> None:
        self._keeper, self._requests = keeper, requests
        self._http = httpx.AsyncClient(
            verify=trust,
            timeout=TIMEOUT,
            limits=httpx.Limits(max_connections=200),
            trust_env=False,
        )
        self._windows: dict[Tenant, Window] = {}

    async def close(self) -> None:
        """Close the connections to other processes."""
        await self._http.aclose()

    async def answer(self, asked: Routed) -> Answer:
        """Return the answer to a request, or refuse it."""
        passed_on = self._passed_on(asked.headers)
        if passed_on is not None:
            if (told := asked.headers.get(PARTITIONS.encode())) is not None:
                return answered(self._sum(asked, [int(number) for number in told.split(b",")]))
            return await self._here(asked, passed_on)
        if (field := BATCHES.get(asked.call.name)) is not None:
            return await self._batch(asked, field)
        if self._is_whole(asked):
            return await self._whole(asked)
        partition = await self._partition(asked)
        answer = await self._ask(asked, partition)
        return self._naming_owners(answer, asked, [partition])

    def _passed_on(self, headers: Mapping[bytes, bytes]) -> int | None:
        """Return the partition for which another process passed a request on; None if none did."""
        key = headers.get(KEY.encode())
        if key is None:
            return None
        if not hmac.compare_digest(key, self._keeper.key.encode()):
            raise Refusal(403, "cluster", "the key is not that of this cluster", field=KEY)
        return int(headers.get(PARTITION.encode(), b"-1"))

    def _naming_owners(self, answer: Answer, asked: Routed, partitions: Sequence[int]) -> Answer:
        """Tell the caller who gave the answer, or parts of it, if it was another process."""
        told = []
        for partition in partitions:
            place = (asked.tenant, partition)
            owner = self._keeper.overview.owner(place)
            if place not in self._keeper.serving and owner is not None:
                told.append(f"{partition}/{self._rules(asked).partitions} {owner.url}")
        if not told:
            return answer
        return replace(answer, more={**answer.more, OWNER: ", ".join(told[:NAMED])})

    # --- which partition ---------------------------------------------------------------------

    async def _partition(self, asked: Routed) -> int:
        """Return the partition that a request is about."""
        count = self._rules(asked).partitions
        match asked.call.name:
            case "decide":
                _check_id(asked.body, count)
                return partition_of(asked.body.user, count)
            case "user" | "erase":
                return partition_of(asked.path["id"], count)
            case "reward" | "activate":
                return await self._of_decision(asked.tenant, asked.path["id"], count)
            case "features":
                return next((n for (name, n) in self._keeper.serving if name == asked.tenant), 0)
            case _:
                return _chosen(asked.query, count)

    async def _of_decision(self, tenant: str, id: str, count: int) -> int:
        found = told_by(id)
        # PostgreSQL does not take every text.
        if found is None and len(id) <= schema.LONGEST_ID and re.fullmatch(schema.ID, id):
            found = await self._keeper.find(tenant, id)
        if found is None or found >= count:
            raise Refusal(404, "unknown", "no decision has this id", field="decision_id")
        return found

    def _rules(self, asked: Routed) -> TenantSettings:
        return self._keeper.settings.tenants[asked.tenant]

    # --- whom to ask -------------------------------------------------------------------------

    async def _ask(self, asked: Routed, partition: int) -> Answer:
        """Ask the owner of a partition; look once more who that is if it has moved."""
        place = (asked.tenant, partition)
        if self._keeper.local(place) is not None:
            return await self._here(asked, partition)
        try:
            return await self._there(asked, self._keeper.owner_url(place), {PARTITION: partition})
        except Refusal as refusal:
            if refusal.code != MOVED:
                raise
        await self._refresh()
        if self._keeper.local(place) is not None:
            return await self._here(asked, partition)
        return await self._there(asked, self._keeper.owner_url(place), {PARTITION: partition})

    async def _refresh(self) -> None:
        """Look again who owns what, or refuse."""
        try:
            await self._keeper.refresh()
        except OSError as error:
            raise not_here(str(error)) from None

    async def _here(self, asked: Routed, partition: int) -> Answer:
        """Answer a request from a partition that this process owns."""
        serving = self._keeper.local((asked.tenant, partition))
        if serving is None:
            raise not_here(f"partition {partition} of {asked.tenant} is not owned here")
        with serving.request() as tenant:
            tenant.check_serving(writing=asked.call.writes)
            known = Asked(
                tenant, self._window(tenant), asked.path, QueryParams(asked.query), asked.body
            )
            done = 202 if asked.call.method == "DELETE" else 200
            return answered(await asked.call.answer(known), done)

    def _window(self, tenant: Tenant) -> Window:
        if tenant not in self._windows:
            owned = {one.tenant for one in self._keeper.serving.values()}
            self._windows = {one: w for one, w in self._windows.items() if one in owned}
            self._windows[tenant] = Window(tenant, partitions=tenant.rules.partitions)
        return self._windows[tenant]

    async def _there(
        self, asked: Routed, url: str, about: Mapping[str, object], hint: str = ""
    ) -> Answer:
        """Pass a request on to another process; the headers say which partitions it is about.

        Only if it surely did nothing may it be asked again: it could not be reached, or says that
        it does not own the partition. `hint` says more about the latter.
        """
        path = asked.call.path.format(**{k: quote(v, safe="") for k, v in asked.path.items()})
        headers = {KEY: self._keeper.key, REQUEST_ID: asked.id.decode()}
        headers |= {name: str(value) for name, value in about.items()}
        if (told := asked.headers.get(b"authorization")) is not None:
            headers["authorization"] = told.decode("latin-1")
        content = None
        if asked.body is not None:
            content, headers["content-type"] = encode(asked.body), "application/json"
        query = asked.query.decode("latin-1")
        self._requests[asked.tenant].passed_on[asked.call.name] += 1
        try:
            got = await self._http.request(
                asked.call.method,
                f"{url}{path}{'?' if query else ''}{query}",
                content=content,
                headers=headers,
            )
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise not_here(f"the owner at {url} cannot be reached ({error})") from None
        except httpx.HTTPError as error:
            raise Refusal(
                503, "unavailable", f"the owner at {url} did not answer ({error})", retry_after=1
            ) from None
        if got.status_code == 503 and _code(got.content) == MOVED:
            raise not_here(f"the process at {url} does not own the partition any more{hint}")
        more = {name: got.headers[name] for name in ("retry-after",) if name in got.headers}
        return Answer(got.content, got.status_code, more)

    # --- whole tenants -----------------------------------------------------------------------

    def _is_whole(self, asked: Routed) -> bool:
        """Return whether a request is about a tenant as a whole, and that is more than a part."""
        named = "partition" in QueryParams(asked.query)
        return asked.call.name in WHOLE and self._rules(asked).partitions > 1 and not named

    async def _whole(self, asked: Routed) -> Answer:
        """Return the sum over all partitions; refuse if one of them cannot be asked."""
        before = self._owners(asked)
        try:
            sums = await self._sums(asked)
        except Refusal as refusal:
            if refusal.code != MOVED:
                raise
            await self._refresh()
            hint = VERSIONS if self._owners(asked) == before else ""
            sums = await self._sums(asked, hint)
        return answered(WHOLE[asked.call.name].joined(sums, self._rules(asked)))

    def _owners(self, asked: Routed) -> list[Any]:
        """Return who holds each partition of the tenant, and since which epoch."""
        held = self._keeper.overview.partitions
        places = [(asked.tenant, number) for number in range(self._rules(asked).partitions)]
        return [(held[place].epoch, held[place].owner) for place in places if place in held]

    async def _sums(self, asked: Routed, hint: str = "") -> list[Any]:
        """Ask each owner once, for the sum over its partitions."""
        here: list[int] = []
        there: dict[str, list[int]] = {}
        for number in range(self._rules(asked).partitions):
            place = (asked.tenant, number)
            if self._keeper.local(place) is not None:
                here.append(number)
            else:
                there.setdefault(self._keeper.owner_url(place), []).append(number)
        # One's own first: it may be refused without asking others.
        own = [self._sum(asked, here)] if here else []
        jobs = (self._sum_there(asked, url, numbers, hint) for url, numbers in there.items())
        return [*own, *await asyncio.gather(*jobs)]

    def _sum(self, asked: Routed, numbers: Sequence[int]) -> Any:
        """Return the sum over partitions that this process owns; none of them may be starting."""
        shares = []
        for number in numbers:
            serving = self._keeper.local((asked.tenant, number))
            if serving is None:
                raise not_here(f"partition {number} of {asked.tenant} is not owned here")
            with serving.request() as tenant:
                # It must write too: while it starts it shows an earlier state.
                tenant.check_serving(writing=True)
                shares.append(Share(number, tenant, self._window(tenant)))
        return WHOLE[asked.call.name].here(shares)

    async def _sum_there(
        self, asked: Routed, url: str, numbers: Sequence[int], hint: str = ""
    ) -> Any:
        """Return the sum over partitions that another process owns."""
        got = await self._there(asked, url, {PARTITIONS: ",".join(map(str, numbers))}, hint)
        try:
            if got.status == 200:
                return msgspec.json.decode(got.body, type=WHOLE[asked.call.name].kind)
            why = msgspec.json.decode(got.body, type=schema.Refused).error.message
        except msgspec.DecodeError:
            why = "its answer cannot be read; it may be of another version"
        wait = int(got.more.get("retry-after", 1))
        raise Refusal(503, "unavailable", f"the owner at {url}: {why}", retry_after=wait)

    # --- batches -----------------------------------------------------------------------------

    async def _batch(self, asked: Routed, field: str) -> Answer:
        """Cut a batch by partitions, ask their owners, and put the answers in order."""
        items, rules = getattr(asked.body, field), self._rules(asked)
        if len(items) > rules.limits.max_batch:
            raise over_limit(field, "max_batch", f"{len(items)} long", rules.limits.max_batch)
        if asked.call.name == "observe":
            # All or none: each owner would check its own only.
            await checked_observations(items, rules)
        results: list[Any] = [None] * len(items)
        places: dict[int, list[int]] = {}
        answering: list[int] = []
        for index, item in enumerate(items):
            try:
                places.setdefault(await self._of_item(asked, item), []).append(index)
            except Refusal as refusal:
                results[index] = schema.Failed(refusal.status, problem(refusal))

        async def ask(partition: int, indexes: Sequence[int]) -> None:
            part = type(asked.body)(**{field: [items[index] for index in indexes]})
            found = await self._part(asked.with_body(part), partition, len(indexes))
            for index, result in zip(indexes, found, strict=True):
                results[index] = result
            if not isinstance(found[0], schema.Failed):
                answering.append(partition)

        await asyncio.gather(*(ask(*place) for place in places.items()))
        return self._naming_owners(answered({"results": results}), asked, answering)

    async def _of_item(self, asked: Routed, item: Any) -> int:
        count = self._rules(asked).partitions
        if asked.call.name == "reward_batch":
            return await self._of_decision(asked.tenant, item.decision_id, count)
        if asked.call.name == "decide_batch":
            _check_id(item, count)
        return partition_of(item.user, count)

    async def _part(self, asked: Routed, partition: int, count: int) -> list[Any]:
        """Return the answers to the items of one partition; the same refusal for all, if any."""
        try:
            answer = await self._ask(asked, partition)
        except Refusal as refusal:
            return [schema.Failed(refusal.status, problem(refusal))] * count
        told = msgspec.json.decode(answer.body)
        if answer.status == 200:
            results: list[Any] = told["results"]
            return results
        return [{"status": "refused", "http": answer.status, "error": told["error"]}] * count


def trusted(settings: Settings) -> ssl.SSLContext | bool:
    """Return which certificates are trusted: of authorities in `tls_ca`, or of public ones."""
    if settings.tls_ca is None:
        return True
    try:
        return ssl.create_default_context(cafile=settings.tls_ca)
    except OSError as error:  # ssl.SSLError is one, too
        raise OptionError(
            f"tls_ca {settings.tls_ca} cannot be used ({error.strerror or error}); name a file "
            "with certificates of authorities in PEM format"
        ) from None


def _check_id(request: Any, count: int) -> None:
    """Refuse an id of a decision that tells another partition than that of the user."""
    if request.decision_id is UNSET:
        return
    told = told_by(request.decision_id)
    if told is not None and told != partition_of(request.user, count):
        raise Refusal(
            422,
            "invalid",
            "ids of this form are made by the service; choose another one, or leave it out",
            field="decision_id",
        )


def _chosen(query: bytes, count: int) -> int:
    """Return the partition that ``?partition=`` names, 0 without it."""
    text = QueryParams(query).get("partition", "0")
    if not text.isascii() or not text.isdigit() or len(text) > 6 or int(text) >= count:
        raise Refusal(
            422, "invalid", f"expected a partition from 0 to {count - 1}", field="partition"
        )
    return int(text)


def _code(content: bytes) -> str | None:
    try:
        return str(msgspec.json.decode(content, type=schema.Refused).error.code)
    except msgspec.DecodeError:
        return None
