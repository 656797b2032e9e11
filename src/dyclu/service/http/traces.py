"""`Traces`: one OpenTelemetry span per call (`traces = true`, extra `otel`).

Spans say which call it was, not which user or decision it was about. Where they are sent is set by
OpenTelemetry's own variables, such as OTEL_EXPORTER_OTLP_ENDPOINT.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from threading import Thread
from typing import Any

from dyclu import __version__
from dyclu.errors import MissingExtra
from dyclu.service.http.calls import Call
from dyclu.service.http.keys import Caller

FLUSH = 2.0
"""Seconds that sending the last spans may take when the service stops."""

FIRST_ERROR = 500
"""Least status that marks a span as failed; refusals are the caller's errors."""


class Traces:
    """Records calls as spans of a tracer provider of OpenTelemetry's SDK."""

    def __init__(self, provider: Any) -> None:
        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider, self._api = provider, trace
        self._tracer = provider.get_tracer("dyclu", __version__)
        self._extract = TraceContextTextMapPropagator().extract

    @classmethod
    def exporting(cls) -> Traces:
        """Return traces that are sent to a collector (OTLP over HTTP)."""
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ModuleNotFoundError:
            raise MissingExtra(
                "traces = true needs OpenTelemetry: pip install 'dyclu[otel]', or set "
                "traces = false"
            ) from None
        name = os.environ.get("OTEL_SERVICE_NAME", "dyclu")
        named = {"service.name": name, "service.version": __version__}
        provider = TracerProvider(resource=Resource.create(named))
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        return cls(provider)

    def record(
        self,
        scope: Mapping[str, Any],
        call: Call,
        caller: Caller | None,
        status: int,
        seconds: float,
    ) -> None:
        """Record a call that has just been answered; it continues the trace of its caller."""
        headers, end = scope["headers_once"], time.time_ns()
        known = (name for name in ("traceparent", "tracestate") if name.encode() in headers)
        span = self._tracer.start_span(
            f"{call.method} {call.path}",
            context=self._extract({n: headers[n.encode()].decode("latin-1") for n in known}),
            kind=self._api.SpanKind.SERVER,
            start_time=end - round(1e9 * seconds),
            attributes={
                "http.request.method": call.method,
                "http.route": call.path,
                "http.response.status_code": status,
                "dyclu.call": call.name,
                "dyclu.tenant": (caller and caller.tenant) or "",
                "dyclu.key": caller.key if caller else "",
                "dyclu.request_id": scope["request_id"].decode(),
            },
        )
        if status >= FIRST_ERROR:
            span.set_status(self._api.StatusCode.ERROR)
        span.end(end)

    def stop(self) -> None:
        """Send what is left, for a moment at most; blocks meanwhile.

        The SDK waits for a collector that does not answer, whatever time it is given.
        """
        sending = Thread(target=self._provider.shutdown, daemon=True)
        sending.start()
        sending.join(FLUSH)
