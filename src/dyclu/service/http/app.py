"""The ASGI application: checks the caller, calls the tenant, and sends the answer as JSON."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dyclu.errors import DycluError, OptionError
from dyclu.service import schema
from dyclu.service.cluster.keeper import Keeper
from dyclu.service.disk.locks import locked
from dyclu.service.http.answers import Answer, answered, encode, refused
from dyclu.service.http.calls import CALLS, Asked, Call
from dyclu.service.http.edge.bodies import Body, BodyTimeout, Reader, checked_length
from dyclu.service.http.edge.budgets import BodyBytes, Budget
from dyclu.service.http.keys import Caller, Keyring, Reminders
from dyclu.service.http.log import QUIET, Refusals, log_request
from dyclu.service.http.routing import Routed, Router, trusted
from dyclu.service.http.traces import Traces
from dyclu.service.http.views import openapi
from dyclu.service.http.views.clusters import begun, cluster_health, cluster_view, copies_folder
from dyclu.service.http.views.metrics import OPEN, PLAIN, Edge, Requests, Watched, exposition
from dyclu.service.http.views.window import Window
from dyclu.service.refusal import Refusal
from dyclu.service.settings import Settings, TenantSettings, needing_restart
from dyclu.service.tenant.tenant import Tenant
from dyclu.storage import make_folder

LOG = logging.getLogger("dyclu.service")

ASSETS = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
NOSNIFF = {"X-Content-Type-Options": "nosniff"}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    **NOSNIFF,
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
LOOPBACK = frozenset({b"localhost", b"127.0.0.1", b"[::1]"})
FATAL = 70
"""Exit status of a service without any tenant that serves: a new start may bring them back."""

LOGGED = {"/metrics": "metrics", "/tenants": "tenants", "/v1/cluster": "cluster"}
"""Paths that are no call of a tenant, and what the log calls them."""

UNLOGGED = frozenset({*ASSETS, "/healthz", "/readyz", "/openapi.json"})
"""Paths of the page and of probes, whose requests make no line in the log."""

ONCE = (b"host", b"authorization", b"content-type", b"content-length")
"""Headers that a request may have once."""

_ID = re.compile(rb"[A-Za-z0-9_.:@+=~-]{1,128}")
Headers = Mapping[bytes, bytes]
Handler = Callable[[Request], Awaitable[Any]]


class Service:
    """All tenants of one process, and their keys; one that cannot be opened stops no other."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.keyring = Keyring(settings)
        self.traces = Traces.exporting() if settings.traces else None
        self.keeper: Keeper | None = None
        self.tenants: dict[str, Tenant] = {}
        data = copies_folder(settings) if settings.store else Path(settings.data)
        make_folder(data)
        self._unlock = locked(data / "lock", of=data)
        try:
            if settings.store:
                self._trust = trusted(settings)
                self.keeper = begun(settings, data)
            else:
                self.tenants = _opened(data, settings, self._end_if_broken)
        except BaseException:
            self._unlock()
            raise
        self.windows = {name: Window(tenant) for name, tenant in self.tenants.items()}
        self.requests = {name: Requests() for name in settings.tenants}
        self.budgets = {name: Budget(one.limits) for name, one in settings.tenants.items()}
        self._counted: dict[str, Requests] = {}
        self.refusals, self.reminders = Refusals(), Reminders()
        self.on_ready: Callable[[], None] = lambda: None
        self.die: Callable[[], None] = lambda: os._exit(FATAL)
        self._keyed, self._host = settings.keyed, settings.host.lower().encode()
        self._timeout = BodyTimeout(settings.body_timeout)

    async def start(self) -> None:
        """Start serving; needs a running event loop."""
        if self.keeper is not None:
            self.router = Router(self.keeper, self.requests, trust=self._trust)
        for tenant in self.tenants.values():
            if tenant.stopped is None:
                tenant.begin(snapshot_every=self.settings.snapshot_every)
        self._timeout.start()
        self._summing = asyncio.create_task(self._summarise())
        self._settling = asyncio.create_task(self._settle())

    def _end_if_broken(self) -> None:
        """End if no tenant is left and one broke: a new start computes its state again.

        It is asked when a tenant breaks, and when all starts are over. Tenants whose starts fail,
        as with a line that can never be taken in, do not end it: that would be an endless loop.
        """
        tenants = self.tenants.values()
        if any(one.serving or one.starting for one in tenants):
            return
        if any(one.broke for one in tenants):
            LOG.critical("no tenant is left that serves; ending, to be started again")
            self.die()

    async def listens(self, url: str) -> None:
        """Join the cluster, if there is one, now that requests are heard at this address."""
        if self.keeper is not None:
            await self.keeper.join(self.settings.advertise or url)

    async def _settle(self) -> None:
        """Call `on_ready` when all tenants, or the first partitions, serve or have stopped."""
        while self._starting:
            await asyncio.sleep(0.05)
        self._end_if_broken()
        self.on_ready()

    @property
    def _starting(self) -> bool:
        if self.keeper is None:
            return any(tenant.starting for tenant in self.tenants.values())
        owned = self.keeper.serving.values()
        return not owned or any(one.tenant.starting for one in owned)

    async def stop(self) -> None:
        """Drain and close every tenant."""
        self._timeout.stop()
        self._summing.cancel()
        self._settling.cancel()
        self.refusals.summarise()
        ends = [tenant.stop() for tenant in self.tenants.values()]
        for error in await asyncio.gather(*ends, return_exceptions=True):
            if error is not None:
                # Nothing acknowledged is lost; the other tenants stop in order.
                LOG.error("a tenant did not stop in order", exc_info=error)
        if self.keeper is not None:
            await self.keeper.leave()
            await self.router.close()
        if self.traces is not None:
            await asyncio.to_thread(self.traces.stop)
        self._unlock()

    async def _summarise(self) -> None:
        while True:
            self.reminders.remind(self.keyring)
            await asyncio.sleep(QUIET)
            self.refusals.summarise()

    def reload(self, settings: Settings) -> None:
        """Continue with other keys, limits and settings of tenants, or refuse all of them."""
        if fixed := needing_restart(self.settings, settings):
            raise OptionError(f"{', '.join(fixed)} cannot change while it runs; restart it")
        self.settings, self.keyring = settings, Keyring(settings)
        self._keyed = settings.keyed
        self._timeout.seconds = settings.body_timeout
        for name, rules in settings.tenants.items():
            self.budgets[name].limits = rules.limits
        if self.keeper is not None:
            self.keeper.follow(settings)
        for name, tenant in self.tenants.items():
            tenant.follow(settings.tenants[name])

    def watched(self, caller: Caller) -> list[Watched]:
        """Return the tenants whose metrics a caller may see: their own, or all for an operator."""
        names = self.seen_by(caller)
        if self.keeper is None:
            return [Watched(self.tenants[name], self.requests[name]) for name in names]
        owned = [one.tenant for place, one in self.keeper.serving.items() if place[0] in names]
        return [Watched(one, self._counted.setdefault(one.name, Requests())) for one in owned]

    def edges(self, caller: Caller) -> dict[str, Edge]:
        """Return requests and budgets of the tenants whose metrics a caller may see."""
        return {
            name: Edge(self.requests[name], self.budgets[name]) for name in self.seen_by(caller)
        }

    def seen_by(self, caller: Caller) -> list[str]:
        """Return the names of the tenants that a caller may see: their own, or all."""
        return list(self.settings.tenants) if caller.tenant is None else [caller.tenant]

    def expiring(self, caller: Caller) -> list[tuple[Caller, float]]:
        """Return the keys that expire soon: those of the caller's tenant, or all."""
        found = self.keyring.expiring()
        return [(key, left) for key, left in found if caller.tenant in (None, key.tenant)]

    def rules(self, tenant: str) -> TenantSettings:
        """Return the settings of a tenant."""
        return self.settings.tenants[tenant]

    def health(self) -> schema.Health:
        """Return whether the service is ready, and why not."""
        if self.keeper is not None:
            return cluster_health(self.keeper)
        tenants = self.tenants.values()
        stopped = "; ".join(tenant.stopped for tenant in tenants if tenant.stopped)
        if under_way := [one.progress for one in tenants if one.starting and one.progress]:
            left = [one.seconds_left for one in under_way]
            known = [seconds for seconds in left if seconds is not None]
            return schema.Health(
                "starting",
                "; ".join(filter(None, (*sorted({one.doing for one in under_way}), stopped))),
                sum(one.done for one in under_way),
                sum(one.total for one in under_way),
                round(max(known), 1) if len(known) == len(left) else None,
            )
        troubles = (tenant.trouble for tenant in tenants if tenant.serving)
        if trouble := next((one for one in troubles if one), None):
            return schema.Health("unavailable", trouble)
        if not any(tenant.serving for tenant in tenants):
            return schema.Health("unavailable", stopped)
        return schema.Health("degraded", stopped) if stopped else schema.Health("ok")

    def caller(self, headers: Headers) -> Caller:
        """Return who asks, or refuse them."""
        if not self._keyed:
            self._check_host(headers.get(b"host", b""))
            _check_origin(headers)
        return self.keyring.caller(headers.get(b"authorization", b"").decode("latin-1"))

    def keeps_open(self, tenant: str, scope: Scope, *, now: float) -> bool:
        """Return whether a connection may stay open after the answer to this request."""
        if scope["headers_once"].get(b"connection", b"").lower() == b"close":
            return True  # the client closes it
        idle = self.settings.idle_timeout
        return self.budgets[tenant].keeps_open(scope["client"], now=now, idle=idle)

    def _check_host(self, host: bytes) -> None:
        # Without keys, a web page whose name was made to point here must not get an answer.
        name = host.rpartition(b":")[0] if not host.endswith(b"]") and b":" in host else host
        name = name.lower()
        if name not in LOOPBACK and name != self._host:
            raise Refusal(
                421, "host", "without keys this answers on loopback names only", field="host"
            )

    async def body(self, body: Body, headers: Headers, reader: Reader, held: BodyBytes) -> Any:
        """Return the decoded body of a request, or refuse it."""
        most = self.settings.max_body
        checked_length(headers, most)
        return reader.read(await self._timeout.wait_for(body.read(most, held)))


def _check_origin(headers: Headers) -> None:
    # A page of another site may send a POST without a body here; the browser names its origin.
    origin = headers.get(b"origin")
    if origin is not None and origin.partition(b"://")[2] != headers.get(b"host"):
        raise Refusal(
            403, "origin", "without keys pages of other sites are not answered", field="origin"
        )


def _opened(data: Path, settings: Settings, broken: Callable[[], None]) -> dict[str, Tenant]:
    """Return all tenants; raises if none of them can be opened."""
    beside = asyncio.Semaphore()
    tenants = {
        name: Tenant(name, data / name, rules, beside=beside, broken=broken)
        for name, rules in settings.tenants.items()
    }
    failed = list[tuple[Tenant, DycluError]]()
    for tenant in tenants.values():
        try:
            tenant.open()
        except DycluError as error:
            failed.append((tenant, error))
    if len(failed) == len(tenants):
        raise failed[0][1]
    for tenant, why in failed:
        tenant.fail(why)
    return tenants


def create_app(settings: Settings) -> Door:
    """Return the service as an ASGI application, with all tenants opened."""
    service = Service(settings)
    endpoints = [(call, _Endpoint(service, call)) for call in CALLS]

    routes = [
        Route(call.path, endpoint, methods=[call.method], name=call.name)
        for call, endpoint in endpoints
    ]
    routes += [Route(path, _asset(*asset), methods=["GET"]) for path, asset in ASSETS.items()]
    routes += [
        Route("/healthz", _health, methods=["GET"]),
        Route("/readyz", _ready(service), methods=["GET"]),
        Route("/tenants", _tenants(service), methods=["GET"]),
        Route("/v1/cluster", _cluster(service), methods=["GET"]),
        Route("/metrics", _metrics(service), methods=["GET"]),
        Route("/openapi.json", _openapi(), methods=["GET"]),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _no_route(service)})
    app.router.redirect_slashes = False
    return Door(service, {(call.method, call.path): one for call, one in endpoints}, app)


class Door:
    """The service as an ASGI application: calls go straight to their endpoints.

    Other paths and methods go through Starlette's middleware and routes, which would take a tenth
    of the time of a decision.
    """

    def __init__(
        self, service: Service, endpoints: Mapping[tuple[str, str], ASGIApp], rest: ASGIApp
    ) -> None:
        self.service, self._endpoints, self._rest = service, endpoints, rest
        self._start, self._count = secrets.token_hex(4).encode(), 0

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer a request."""
        # Before everything else: what is refused at once has an id, too.
        scope["request_id"] = self._request_id(scope["headers"])
        naming = _Naming(send, scope["request_id"])
        try:
            self._check_size(scope)
            headers = scope["headers_once"] = headers_once(scope["headers"])
            _check_named(headers, scope["http_version"])
        except Refusal as refusal:
            self.service.refusals.count(refusal, tenant=None, client=scope["client"][0])
            self._log(scope, "refused", refusal.status, 0.0)
            return refused(refusal)(scope, receive, naming)
        if (found := self._straight(scope)) is not None:
            return found(scope, receive, naming)
        return self._elsewhere(scope, receive, naming)

    async def _elsewhere(self, scope: Scope, receive: Receive, naming: _Naming) -> None:
        """Answer what is not a call; a body that comes with it is read and dropped.

        Otherwise it would depend on its packets whether the connection can be used again.
        """
        body, began, path = Body(receive, scope["headers_once"]), time.perf_counter(), scope["path"]
        try:
            await self._rest(scope, receive, naming)
        finally:
            if path not in UNLOGGED and "logged" not in scope:
                taken = time.perf_counter() - began
                self._log(scope, LOGGED.get(path, "unknown"), naming.status, taken)
        if not body.ended:
            await body.drop()

    def _log(self, scope: Scope, call: str, status: int, seconds: float) -> None:
        if self.service.settings.log == "json":
            log_request(scope, call, scope.get("caller"), status, seconds)

    def _request_id(self, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
        """Return the caller's id of a request, if it is an id, or a new one."""
        told = dict(headers).get(b"x-request-id")
        if told and _ID.fullmatch(told):
            return told
        self._count += 1
        return b"%s-%x" % (self._start, self._count)

    def _check_size(self, scope: Scope) -> None:
        most = self.service.settings.max_headers
        size = len(scope["raw_path"]) + len(scope["query_string"])
        if size + sum(len(name) + len(value) for name, value in scope["headers"]) > most:
            much = f"the headers are longer than {most} bytes (limit max_headers)"
            raise Refusal(431, "limit", much, field="headers")

    def _straight(self, scope: Scope) -> ASGIApp | None:
        method, path = scope["method"], scope["path"]
        scope["path_params"] = {}
        if "{" not in path and (found := self._endpoints.get((method, path))) is not None:
            return found
        above, _, last = path.rpartition("/")
        if last and (found := self._endpoints.get((method, f"{above}/{{id}}"))) is not None:
            scope["path_params"] = {"id": last}
            return found
        above, _, id = above.rpartition("/")
        scope["path_params"] = {"id": id}
        return self._endpoints.get((method, f"{above}/{{id}}/{last}")) if id else None


class _Naming:
    """Sends the answer to a request with the request's id in a header; knows its status then."""

    __slots__ = ("_id", "_send", "status")

    def __init__(self, send: Send, id: bytes) -> None:
        self._send, self._id, self.status = send, id, 0

    def __call__(self, message: Message) -> Awaitable[None]:
        """Send a part of the answer."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [*message["headers"], (b"x-request-id", self._id)]
            message = {**message, "headers": headers}
        return self._send(message)


def headers_once(pairs: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return the headers of a request; refuse those that say two things at once.

    >>> headers_once([(b"host", b"a"), (b"host", b"b")])
    Traceback (most recent call last):
        ...
    dyclu.service.refusal.Refusal: host is given twice; send it once
    """
    given = list(pairs)
    headers = dict(given)
    if len(headers) < len(given):
        names = [name for name, _ in given]
        for name in ONCE:
            if names.count(name) > 1:
                said = name.decode()
                raise Refusal(400, "repeated", f"{said} is given twice; send it once", field=said)
    return headers


def _check_named(headers: Headers, version: str) -> None:
    """Refuse a request of HTTP/1.1 that does not say which host it is for (RFC 9112, 3.2)."""
    # granian adds an empty one.
    if version == "1.1" and not headers.get(b"host"):
        raise Refusal(400, "missing", "the header Host is missing; send it once", field="host")


class _Endpoint:
    """One call as an ASGI application, which spares what Starlette would wrap around a function."""

    def __init__(self, service: Service, call: Call) -> None:
        self._service, self._call = service, call
        self._reader = None if call.takes is None else Reader(call.takes)
        self._named = self._reader if call.takes_named is None else Reader(call.takes_named)
        self._done = 202 if call.method == "DELETE" else 200

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        service, name = self._service, self._call.name
        began, caller, tenant = time.perf_counter(), None, None
        headers = scope["headers_once"]
        body = Body(receive, headers)
        try:
            caller = service.caller(headers)
            tenant = caller.tenant_for(writing=self._call.writes)
            response = await self._answer(scope, body, headers, tenant, began)
        except Refusal as refusal:
            response = refused(refusal)
            tenant = None if caller is None else caller.tenant
            service.refusals.count(refusal, tenant=tenant, client=scope["client"][0])
        except Exception:
            LOG.exception("%s failed", name)
            response = refused(Refusal(500, "internal", "this should not happen; see the log"))
        taken = time.perf_counter() - began
        if tenant is not None:
            service.requests[tenant].count(name, response.status, taken)
            if not service.keeps_open(tenant, scope, now=began):
                response = response.closing()
        if service.settings.log == "json":
            scope["logged"] = True
            log_request(scope, name, caller, response.status, taken)
        if service.traces is not None:
            service.traces.record(scope, self._call, caller, response.status, taken)
        await response(scope, receive, send)
        if not body.ended:
            await body.drop()

    async def _answer(
        self, scope: Scope, body: Body, headers: Headers, tenant: str, began: float
    ) -> Answer:
        budget = self._service.budgets[tenant]
        with budget.request(now=began):
            features = self._service.rules(tenant).features
            reader = self._reader if features is None else self._named
            if reader is None:
                return await self._asked(scope, tenant, headers, None)
            with budget.body() as held:
                sent = await self._service.body(body, headers, reader, held)
                return await self._asked(scope, tenant, headers, sent)

    async def _asked(self, scope: Scope, tenant: str, headers: Headers, body: Any) -> Answer:
        if self._service.keeper is not None:
            path, query = scope["path_params"], scope["query_string"]
            id = scope["request_id"]
            asked_for = Routed(id, self._call, tenant, path, query, headers, body)
            return await self._service.router.answer(asked_for)
        self._service.tenants[tenant].check_serving(writing=self._call.writes)
        asked = Asked(
            self._service.tenants[tenant],
            self._service.windows[tenant],
            scope["path_params"],
            QueryParams(scope["query_string"]) if self._call.query else {},
            body,
        )
        return answered(await self._call.answer(asked), self._done)


def _no_route(service: Service) -> Callable[[Request, Exception], Awaitable[Any]]:
    async def refuse(request: Request, error: Exception) -> Any:
        assert isinstance(error, HTTPException)
        refusal = Refusal(error.status_code, "route", error.detail, field="path")
        service.refusals.count(refusal, tenant=None, client=request.scope["client"][0])
        return refused(refusal, error.headers or {})

    return refuse


def _asset(name: str, kind: str) -> Handler:
    content = resources.files("dyclu.service").joinpath("dashboard", name).read_bytes()

    async def show(_: Request) -> Response:
        return Response(content, headers={**HEADERS, "Content-Type": kind})

    return show


async def _health(_: Request) -> Answer:
    return answered(schema.Health("ok"))


def _ready(service: Service) -> Handler:
    async def ready(_: Request) -> Answer:
        health = service.health()
        if health.status in ("ok", "degraded"):
            return answered(health)
        return Answer(encode(health), 503, {"retry-after": "1"})

    return ready


def _metrics(service: Service) -> Handler:
    async def metrics(request: Request) -> Response | Answer:
        try:
            caller = _caller(service, request)
        except Refusal as refusal:
            return _stranger(service, request, refusal)
        wants_open = "application/openmetrics-text" in request.headers.get("accept", "")
        text = exposition(
            service.watched(caller), service.edges(caller), service.refusals.strangers,
            service.expiring(caller), open_metrics=wants_open,
        )  # fmt: skip
        return Response(text, headers={**NOSNIFF, "Content-Type": OPEN if wants_open else PLAIN})

    return metrics


def _tenants(service: Service) -> Handler:
    async def tenants(request: Request) -> Answer:
        try:
            caller = _caller(service, request)
        except Refusal as refusal:
            return _stranger(service, request, refusal)
        found = [_health_of(one.tenant) for one in service.watched(caller)]
        return answered(schema.TenantsHealth(found))

    return tenants


def _cluster(service: Service) -> Handler:
    async def cluster(request: Request) -> Answer:
        try:
            caller = _caller(service, request)
            if service.keeper is None:
                raise Refusal(404, "unknown", "this service is no cluster; see the setting store")
        except Refusal as refusal:
            return _stranger(service, request, refusal)
        return answered(cluster_view(service.keeper, service.seen_by(caller)))

    return cluster


def _health_of(tenant: Tenant) -> schema.TenantHealth:
    try:
        tenant.check_serving()
    except Refusal as why:
        status: Literal["stopped", "starting"] = "starting" if tenant.starting else "stopped"
        return schema.TenantHealth(tenant.name, status, str(why), rebuilding=False, line=None)
    return schema.TenantHealth(
        tenant.name,
        "ok" if tenant.trouble is None else "unavailable",
        tenant.trouble,
        tenant.rebuilding,
        tenant.state.total.seq,
    )


def _caller(service: Service, request: Request) -> Caller:
    """Return who asks, also for the log; or refuse them."""
    caller = service.caller(request.scope["headers_once"])
    request.scope["caller"] = caller
    return caller


def _stranger(service: Service, request: Request, refusal: Refusal) -> Answer:
    service.refusals.count(refusal, tenant=None, client=request.scope["client"][0])
    return refused(refusal)


def _openapi() -> Handler:
    content = encode(openapi.document())

    async def show(_: Request) -> Response:
        return Response(content, media_type="application/json", headers=NOSNIFF)

    return show
