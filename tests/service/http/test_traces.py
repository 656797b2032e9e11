"""Spans of OpenTelemetry: off by default; they continue the caller's trace and name no user."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from dyclu.errors import MissingExtra
from dyclu.service.http.traces import Traces
from tests.service.running import ARMS, running, told

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def in_memory() -> tuple[Traces, Any]:
    pytest.importorskip("opentelemetry.sdk.trace")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Traces(provider), exporter


def test_a_call_becomes_a_span_of_its_callers_trace(tmp_path: Path) -> None:
    traces, exporter = in_memory()
    with running(told(tmp_path)) as made:
        made.service.traces = traces
        body = {"user": "anastasia", "arms": ARMS, "decision_id": "told-to-nobody"}
        headers = {"traceparent": PARENT, "X-Request-Id": "r-1"}
        made.http.post("/v1/decisions", json=body, headers=headers)
        made.reward("unknown-id", 1.0)
        first, second = exporter.get_finished_spans()
    assert first.name == "POST /v1/decisions"
    assert f"{first.context.trace_id:032x}" == PARENT.split("-")[1]
    assert f"{first.parent.span_id:016x}" == PARENT.split("-")[2]
    assert first.kind.name == "SERVER"
    assert first.attributes["http.response.status_code"] == 200
    assert first.attributes["dyclu.tenant"] == "default"
    assert first.attributes["dyclu.request_id"] == "r-1"
    assert 0 < first.end_time - first.start_time < 60e9
    assert second.parent is None
    assert second.attributes["http.response.status_code"] == 404
    assert second.attributes["http.route"] == "/v1/decisions/{id}/reward"
    said = first.to_json() + second.to_json()
    assert not any(name in said for name in ("anastasia", "told-to-nobody", "unknown-id"))


@pytest.mark.parametrize("sent", ["nonsense", "00-" + 32 * "0" + "-" + 16 * "0" + "-01", "\xff"])
def test_a_wrong_traceparent_begins_a_new_trace(tmp_path: Path, sent: str) -> None:
    traces, exporter = in_memory()
    with running(told(tmp_path)) as made:
        made.service.traces = traces
        headers = [(b"traceparent", sent.encode("latin-1"))]
        assert made.http.get("/v1/policy", headers=headers).status_code == 200
        (span,) = exporter.get_finished_spans()
    assert span.parent is None


def test_a_stop_does_not_wait_for_a_collector_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    traces, exporter = in_memory()
    monkeypatch.setattr("dyclu.service.http.traces.FLUSH", 0.05)
    answered = Event()
    monkeypatch.setattr(exporter, "shutdown", lambda: answered.wait(60))
    began = time.monotonic()
    traces.stop()
    assert time.monotonic() - began < 30
    answered.set()


def test_traces_are_off_by_default_and_need_their_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not told(tmp_path).traces
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(MissingExtra, match=r"pip install 'dyclu\[otel\]'"):
        Traces.exporting()
