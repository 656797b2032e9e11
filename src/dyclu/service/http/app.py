"""The ASGI application: checks the caller, calls the tenant, and sends the answer as JSON."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import IO, Any

import msgspec
from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from dyclu.errors import FileError
from dyclu.service import schema
from dyclu.service.http import openapi
from dyclu.service.http.bodies import BodyRoom, BodyTimeout, Reader
from dyclu.service.http.calls import CALLS, Asked, Call, problem
from dyclu.service.http.keys import Caller, Keyring
from dyclu.service.http.metrics import Requests, exposition
from dyclu.service.http.views import Window
from dyclu.service.refusal import Refusal
from dyclu.service.settings import Settings
from dyclu.service.spec import warm_up
from dyclu.service.tenant import Tenant
from dyclu.storage import make_folder

LOG = logging.getLogger("dyclu.service")

ASSETS = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
LOOPBACK = frozenset({b"localhost", b"127.0.0.1", b"[::1]"})

_encode = msgspec.json.Encoder().encode
NOTHING: Mapping[str, str] = {}
Headers = Mapping[bytes, bytes]
Handler = Callable[[Request], Awaitable[Any]]


class Service:
    """All tenants of one process, and their keys; if one cannot be opened, none is."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.keyring = Keyring(settings)
        data = Path(settings.data)
        make_folder(data)
        self._lock = _locked(data)
        try:
            self.tenants = {name: _opened(name, data, settings) for name in settings.tenants}
        except BaseException:
            self._lock.close()
            raise
        self.windows = {name: Window(tenant) for name, tenant in self.tenants.items()}
        self.requests = {name: Requests() for name in settings.tenants}
        self.active = 0
        self._keyed, self._host = settings.keyed, settings.host.lower().encode()
        self._timeout = BodyTimeout(settings.body_timeout)
        self.bodies = BodyRoom(settings.max_bodies)

    async def start(self) -> None:
        """Start serving; needs a running event loop."""
        for tenant in self.tenants.values():
            await tenant.start(snapshot_every=self.settings.snapshot_every)
        self._timeout.start()

    async def stop(self) -> None:
        """Drain and close every tenant."""
        self._timeout.stop()
        await asyncio.gather(*(tenant.stop() for tenant in self.tenants.values()))
        self._lock.close()

    @property
    def trouble(self) -> str | None:
        """Why the service is not ready."""
        troubles = (tenant.trouble for tenant in self.tenants.values())
        return next((trouble for trouble in troubles if trouble), None)

    def caller(self, headers: Headers) -> Caller:
        """Return who asks, or refuse them."""
        if not self._keyed:
            self._check_host(headers.get(b"host", b""))
        return self.keyring.caller(headers.get(b"authorization", b"").decode("latin-1"))

    def _check_host(self, host: bytes) -> None:
        # Without keys, a web page whose name was made to point here must not get an answer.
        name = host.rpartition(b":")[0] if not host.endswith(b"]") and b":" in host else host
        name = name.lower()
        if name not in LOOPBACK and name != self._host:
            raise Refusal(
                421, "host", "without keys this answers on loopback names only", field="host"
            )

    def length(self, headers: Headers) -> int:
        """Return how long a body may be at most, or refuse it because of its headers."""
        kind = headers.get(b"content-type", b"")
        if kind.partition(b";")[0].strip().lower() != b"application/json":
            raise Refusal(415, "type", "send Content-Type: application/json", field="content-type")
        most = self.settings.max_body
        told = headers.get(b"content-length", b"")
        if not told.isdigit():
            return most
        if int(told) > most:
            raise _too_large(most)
        return int(told)

    async def body(self, receive: Receive) -> bytes:
        """Return the body of a request, or refuse it as soon as it is too long."""
        return await self._timeout.wait_for(_read(receive, self.settings.max_body))


def _opened(name: str, data: Path, settings: Settings) -> Tenant:
    warm_up(settings.tenants[name].spec())
    began = time.monotonic()
    tenant = Tenant(name, data / name, settings.tenants[name])
    seconds, line = time.monotonic() - began, tenant.state.total.seq
    LOG.info("tenant %s is at line %d after %.1f s", name, line, seconds)
    return tenant


async def _read(receive: Receive, most: int) -> bytes:
    chunks, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refusal(400, "gone", "the body ended early", field="body")
        chunk, more = message.get("body", b""), message.get("more_body", False)
        chunks.append(chunk)
        size += len(chunk)
        if size > most:
            raise _too_large(most)
    return b"".join(chunks)


def _too_large(most: int) -> Refusal:
    return Refusal(
        413, "limit", f"the body is longer than {most} bytes (limit max_body)", field="body"
    )


def _locked(data: Path) -> IO[str]:
    """Return a locked file: one process at a time writes here. The lock ends with the process."""
    file = (data / "lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise FileError(f"another dyclu serve writes to {data}; stop it first") from None
    return file


def create_app(settings: Settings) -> Door:
    """Return the service as an ASGI application, with all tenants opened."""
    service = Service(settings)
    endpoints = [(call, _Endpoint(service, call)) for call in CALLS]

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            await service.stop()

    routes = [
        Route(call.path, endpoint, methods=[call.method], name=call.name)
        for call, endpoint in endpoints
    ]
    routes += [Route(path, _asset(*asset), methods=["GET"]) for path, asset in ASSETS.items()]
    routes += [
        Route("/healthz", _health, methods=["GET"]),
        Route("/readyz", _ready(service), methods=["GET"]),
        Route("/metrics", _metrics(service), methods=["GET"]),
        Route("/openapi.json", _openapi(), methods=["GET"]),
    ]
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={HTTPException: _no_route},
    )
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

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer a request."""
        return (self._straight(scope) or self._rest)(scope, receive, send)

    def _straight(self, scope: Scope) -> ASGIApp | None:
        if scope["type"] != "http":
            return None
        method, path = scope["method"], scope["path"]
        scope["path_params"] = {}
        if (found := self._endpoints.get((method, path))) is not None:
            return found
        above, _, last = path.rpartition("/")
        above, _, id = above.rpartition("/")
        scope["path_params"] = {"id": id}
        return self._endpoints.get((method, f"{above}/{{id}}/{last}")) if id else None


class _Endpoint:
    """One call as an ASGI application, which spares what Starlette would wrap around a function."""

    def __init__(self, service: Service, call: Call) -> None:
        self._service, self._call = service, call
        self._reader = None if call.takes is None else Reader(call.takes)
        self._done = 202 if call.method == "DELETE" else 200

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        service, name = self._service, self._call.name
        began, caller = time.perf_counter(), None
        service.active += 1
        try:
            if service.active > service.settings.max_connections:
                raise Refusal(503, "busy", "too many requests at once", retry_after=1)
            headers = dict(scope["headers"])
            caller = service.caller(headers)
            response = await self._answer(scope, receive, headers, caller)
        except Refusal as refusal:
            response = refused(refusal)
        except Exception:
            LOG.exception("%s failed", name)
            response = refused(Refusal(500, "internal", "this should not happen; see the log"))
        finally:
            service.active -= 1
        if caller is not None:
            taken = time.perf_counter() - began
            service.requests[caller.tenant].count(name, response.status, taken)
        await response(scope, receive, send)

    async def _answer(
        self, scope: Scope, receive: Receive, headers: Headers, caller: Caller
    ) -> Answer:
        if self._call.writes:
            caller.must_write()
        if self._reader is None:
            return await self._asked(scope, caller, None)
        with self._service.bodies.room(self._service.length(headers)) as keep:
            sent = await self._service.body(receive)
            keep(len(sent))  # the length of a chunked body is known only now
            body = self._reader.read(sent)
            del sent  # frees the memory before the answer is awaited
            return await self._asked(scope, caller, body)

    async def _asked(self, scope: Scope, caller: Caller, body: Any) -> Answer:
        asked = Asked(
            self._service.tenants[caller.tenant],
            self._service.windows[caller.tenant],
            scope["path_params"],
            QueryParams(scope["query_string"]) if self._call.query else {},
            body,
        )
        return answered(await self._call.answer(asked), self._done)


@dataclass(frozen=True, slots=True)
class Answer:
    """JSON as an ASGI application: a response of Starlette's, without all that it could be."""

    body: bytes
    status: int
    more: Mapping[str, str]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(self.body)),
            *((name.encode(), value.encode()) for name, value in self.more.items()),
        ]
        start = {"type": "http.response.start", "status": self.status, "headers": headers}
        await send(start)
        await send({"type": "http.response.body", "body": self.body})


def answered(answer: Any, status: int = 200) -> Answer:
    """Return an answer as JSON."""
    return Answer(_encode(answer), status, NOTHING)


def refused(refusal: Refusal, more: Mapping[str, str] = NOTHING) -> Answer:
    """Return a refusal as JSON."""
    headers = dict(more)
    if refusal.retry_after is not None:
        headers["retry-after"] = str(refusal.retry_after)
    if refusal.status == 408:
        # The rest of the body may still come; the connection is of no more use.
        headers["connection"] = "close"
    if refusal.status == 401:
        headers["www-authenticate"] = "Bearer"
    return Answer(_encode(schema.Refused(problem(refusal))), refusal.status, headers)


async def _no_route(_: Request, error: Exception) -> Any:
    assert isinstance(error, HTTPException)
    refusal = Refusal(error.status_code, "route", error.detail, field="path")
    return refused(refusal, error.headers or {})


def _asset(name: str, kind: str) -> Handler:
    content = resources.files("dyclu.service").joinpath("dashboard", name).read_bytes()

    async def show(_: Request) -> Response:
        return Response(content, headers={**HEADERS, "Content-Type": kind})

    return show


async def _health(_: Request) -> Answer:
    return answered(schema.Health("ok"))


def _ready(service: Service) -> Handler:
    async def ready(_: Request) -> Answer:
        if service.trouble is None:
            return answered(schema.Health("ok"))
        health = schema.Health("unavailable", service.trouble)
        return Answer(_encode(health), 503, {"retry-after": "1"})

    return ready


def _metrics(service: Service) -> Handler:
    async def metrics(request: Request) -> Response | Answer:
        try:
            tenant = service.caller(dict(request.scope["headers"])).tenant
        except Refusal as refusal:
            return refused(refusal)
        text = exposition(service.tenants[tenant], service.requests[tenant])
        return Response(text, media_type="text/plain; version=0.0.4")

    return metrics


def _openapi() -> Handler:
    content = _encode(openapi.document())

    async def show(_: Request) -> Response:
        return Response(content, media_type="application/json")

    return show
