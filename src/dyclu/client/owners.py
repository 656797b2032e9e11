"""`Owners`: which process of a cluster to ask; learnt from answers, forgotten after failures.

A process that passed a request on to the owner of its partition says so in its answer. The next
request about this partition goes to the owner directly. A wrong belief costs one more hop, or one
more attempt: every process answers everything, and every request may be sent again.
"""

from __future__ import annotations

import re
import secrets
import threading
import time
import uuid

import httpx

from dyclu.client.partitions import partition_of, told_by, with_partition
from dyclu.client.requests import Request, Result

OWNER = "x-dyclu-owner"
"""Header of an answer that another process gave: partition, number of partitions, its address.

Those that gave parts of the answer to a batch are separated by commas.
"""

AVOIDED = 30.0
"""Seconds for which a process that did not answer is not asked as an owner."""

FAILURES = frozenset({502, 503, 504})
"""Statuses after which another process is asked."""

_TOLD = re.compile(r"([0-9]{1,6})/([0-9]{1,6}) (https?)(://\S+)")


class Owners:
    """The processes of a cluster that a client knows; safe to use from several threads.

    Examples
    --------
    >>> owners, request = Owners("http://a:1"), Request("GET", "/v1/users/ana", user="ana")
    >>> owners.url(request)
    'http://a:1'
    >>> told = {"x-dyclu-owner": "59/64 http://b:1"}
    >>> owners.learn("http://a:1", httpx.Response(200, headers=told))
    >>> owners.url(request)
    'http://b:1'
    >>> owners.learn("http://b:1", httpx.ConnectError("refused"))
    >>> owners.url(request)
    'http://a:1'
    """

    def __init__(self, url: str) -> None:
        self._scheme = url.partition(":")[0]
        self._known = [url.rstrip("/")]
        self._partitions = 0
        self._owners: dict[int, str] = {}
        self._avoided: dict[str, float] = {}
        self._lock = threading.Lock()

    def new_id(self, user: str) -> str:
        """Return an id for a decision; in a cluster it tells the partition of the user."""
        if not self._partitions:
            return uuid.uuid4().hex
        made = f"{time.time_ns() // 1000:014x}-{secrets.token_hex(8)}"
        return with_partition(made, partition_of(user, self._partitions))

    def url(self, request: Request) -> str:
        """Return the process to ask: the owner, or any if it is not known."""
        with self._lock:
            partition = self._partition(request)
            return self._any() if partition is None else self._owners.get(partition, self._any())

    def _partition(self, request: Request) -> int | None:
        if not self._partitions:
            return None
        if request.user is not None:
            return partition_of(request.user, self._partitions)
        return None if request.decision is None else told_by(request.decision)

    def _any(self) -> str:
        """Return the process to ask where no owner is known; one that answered, if there is any."""
        now = time.monotonic()
        there = (url for url in self._known if now >= self._avoided.get(url, 0.0))
        return next(there, self._known[0])

    def learn(self, url: str, result: Result) -> None:
        """Learn from what became of a request to a process."""
        if isinstance(result, httpx.Response):
            self.heard(url, result.status_code, result.headers.get(OWNER, ""))
        else:
            self.lost(url)

    def heard(self, url: str, status: int, told: str) -> None:
        """Learn from the status of an answer, and from its header about the owner."""
        with self._lock:
            if status in FAILURES:
                self._forget(url)
                return
            for found in map(_TOLD.fullmatch, told.split(", ")):
                if found is not None:
                    self._believe(int(found[1]), int(found[2]), found[3], found[4])

    def lost(self, url: str) -> None:
        """Learn that a process did not answer."""
        with self._lock:
            self._avoided[url] = time.monotonic() + AVOIDED
            self._forget(url)

    def _forget(self, url: str) -> None:
        """Take the process for the owner of nothing, and ask another one where none is known."""
        self._owners = {place: one for place, one in self._owners.items() if one != url}
        self._known.sort(key=lambda one: one == url)

    def _believe(self, partition: int, partitions: int, scheme: str, rest: str) -> None:
        # The key must not be sent without TLS because an answer says so.
        if scheme != self._scheme:
            return
        owner = f"{scheme}{rest}".rstrip("/")
        if time.monotonic() < self._avoided.get(owner, 0.0):
            return
        self._partitions, self._owners[partition] = partitions, owner
        if owner not in self._known:
            self._known.append(owner)
