"""The service's log: plain lines or JSON, and refusals that cannot flood it."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from dyclu.service.http.keys import Caller
from dyclu.service.refusal import Refusal
from dyclu.service.schema import LogFormat

LOG = logging.getLogger("dyclu.service")
REQUESTS = logging.getLogger("dyclu.service.requests")
"""One line per request, if the log is JSON."""

QUIET = 10.0
"""Seconds in which refusals of one kind make one line."""

_encode = msgspec.json.Encoder().encode


class JsonLines(logging.Formatter):
    """Formats each record as one JSON object; `extra={"fields": {...}}` adds fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as JSON."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return _encode(line).decode()


def set_up(log: LogFormat) -> None:
    """Write the log to stderr, in this format."""
    handler = logging.StreamHandler()
    plain = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(JsonLines() if log == "json" else plain)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    # One line per request that is passed on to another process would be too many.
    logging.getLogger("httpx").setLevel(logging.WARNING)


def log_request(
    scope: Mapping[str, Any], call: str, caller: Caller | None, status: int, seconds: float
) -> None:
    """Log one request: its id, who sent it, and what came of it (status 0: no answer)."""
    fields = {
        "request_id": scope["request_id"].decode(),
        "tenant": None if caller is None else caller.tenant,
        "key": None if caller is None else caller.key,
        "call": call,
        "status": status,
        "milliseconds": round(1000 * seconds, 3),
        "client": scope["client"][0],
    }
    REQUESTS.info("request", extra={"fields": fields})


class Refusals:
    """Counts refusals, and logs one line for many of the same kind.

    Attributes
    ----------
    strangers : Counter of (int, str) to int
        Refusals by status and code of requests whose tenant is not known.

    Examples
    --------
    >>> refusals = Refusals(clock=lambda: 0.0)
    >>> for _ in range(200):
    ...     refusals.count(Refusal(401, "no-key", "no known key"), tenant=None, client="10.0.0.7")
    >>> refusals.strangers
    Counter({(401, 'no-key'): 200})
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.strangers: Counter[tuple[int, str]] = Counter()
        self._clock = clock
        self._since: dict[tuple[str | None, str], float] = {}
        self._silent: Counter[tuple[str | None, str]] = Counter()

    def count(self, refusal: Refusal, *, tenant: str | None, client: str) -> None:
        """Count a refusal; log it unless one of its kind was logged a moment ago."""
        if tenant is None:
            self.strangers[refusal.status, refusal.code] += 1
        kind, now = (tenant, refusal.code), self._clock()
        if now - self._since.get(kind, -QUIET) < QUIET:
            self._silent[kind] += 1
            return
        self._since[kind] = now
        fields = {
            "status": refusal.status,
            "code": refusal.code,
            "tenant": tenant,
            "client": client,
        }
        # Without its message: that may quote what a stranger sent.
        LOG.warning(
            "refused %s with %d %s", client, refusal.status, refusal.code, extra={"fields": fields}
        )

    def summarise(self) -> None:
        """Log how many further refusals of each kind there were; call it now and then."""
        for (tenant, code), count in self._silent.items():
            fields = {"code": code, "tenant": tenant, "count": count}
            LOG.warning(
                "refused %d more with %s in the last seconds", count, code, extra={"fields": fields}
            )
        self._silent.clear()
