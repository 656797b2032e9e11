"""The registry of a cluster: the newest contribution of each model of each shard, in one table.

A process reads the table once, for all of its partitions: when the database notifies it, and every
`POLL` seconds in case that it does not. If the table cannot be read, the partitions go on with what
was read before, and `age` says how old that is.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from itertools import takewhile
from typing import Any

from dyclu.contributions import Contribution
from dyclu.errors import DycluError
from dyclu.service.disk.journal import StoreError
from dyclu.service.disk.postgres.database import Claim, Database, OwnershipLost
from dyclu.service.tenant.sharing import Published, name_of

LOG = logging.getLogger("dyclu.service")

CHANNEL = "dyclu_contribution"
POLL = 2.0
"""Seconds between two looks at the table without a notification."""

TICK = 0.25
"""Seconds after which a reader sees that it has to stop."""

RETRY = 1.0
"""Seconds after which a database that did not answer is asked again."""

STALE = 30.0
"""Seconds without an answer after which a process says that it is not ready in full."""

LOCK = 7_236_552
"""Number of the advisory lock under which rows get their numbers: so no reader sees a number
before all smaller ones."""

_READ = (
    "SELECT tenant, shard, model, built, number, bytes FROM dyclu.contribution "
    "WHERE number > %s ORDER BY number"
)
_PUBLISH = f"""
WITH turn AS MATERIALIZED (
  SELECT set_config('lock_timeout', %(patience)s, true), pg_advisory_xact_lock({LOCK})
),
mine AS MATERIALIZED (
  SELECT p.tenant FROM turn, dyclu.partition AS p WHERE p.tenant = %(tenant)s
    AND p.partition = %(partition)s AND p.epoch = %(epoch)s AND p.owner = %(owner)s FOR UPDATE OF p
), told AS (
  SELECT * FROM unnest(%(models)s::bigint[], %(data)s::bytea[]) AS t (model, bytes)
), put AS (
  INSERT INTO dyclu.contribution (tenant, shard, model, built, number, bytes)
    SELECT mine.tenant, %(shard)s, told.model, %(built)s,
      nextval('dyclu.contribution_numbers'), told.bytes FROM mine, told
  ON CONFLICT (tenant, shard, model) DO UPDATE
    SET built = excluded.built, number = excluded.number, bytes = excluded.bytes
  RETURNING 1
)
SELECT EXISTS (SELECT 1 FROM mine), (SELECT count(*) FROM put),
  pg_notify('{CHANNEL}', %(tenant)s)
"""
"""One statement is one transaction: a process that stops in the middle holds no lock. The lock is
taken before the row of the partition, so that who waits for it delays no write to a journal. Who
waits for a row gives the lock up after a while: a take-over may keep the row for minutes."""

_OWN = "SELECT bytes, built FROM dyclu.contribution WHERE tenant = %(tenant)s AND shard = %(shard)s"
_LEAVE = (
    "DELETE FROM dyclu.contribution WHERE tenant = %(tenant)s "
    "AND split_part(shard, '@', 1) = %(number)s AND NOT (%(stays)s AND shard = %(shard)s)"
)

PATIENCE = "5s"
"""Time after which a lock that is not free is not waited for any more."""

_Key = tuple[str, int]


class SharedRegistry:
    """All contributions of all tenants, as this process has read them last.

    A thread reads; the event loop asks.

    Attributes
    ----------
    turn : asyncio.Lock
        Held while a policy of this process is asked for news.
    asking : asyncio.Lock
        Held while a partition of this process reads or writes the table.
    trouble : str or None
        Why the table cannot be read.
    """

    def __init__(self, database: Database) -> None:
        self.turn, self.asking = asyncio.Lock(), asyncio.Lock()
        self.trouble: str | None = "it has not been read yet"
        # Its own connection, which also listens.
        self._database = database.another(most=1)
        self._rows: dict[str, OrderedDict[_Key, Published]] = {}
        self._lock = threading.Lock()
        self._number = 0
        self._read_at = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dyclu-registry", daemon=True)

    def begin(self) -> None:
        """Begin to read."""
        self._thread.start()

    def close(self) -> None:
        """Stop reading; waits for the end of a statement."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._database.close()

    @property
    def age(self) -> float:
        """Seconds since the table was read."""
        return time.monotonic() - self._read_at

    def count(self, tenants: Sequence[str]) -> int:
        """Return the number of contributions of these tenants."""
        return sum(len(self._rows.get(tenant, ())) for tenant in tenants)

    def after(self, tenant: str, number: int) -> list[Published]:
        """Return what was read of a tenant after row `number`, in order."""
        with self._lock:
            rows = reversed(self._rows.get(tenant, OrderedDict()).values())
            found = list(takewhile(lambda row: row.number > number, rows))
        return found[::-1]

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with self._database.connection() as connection:
                    self._follow(connection)
            except StoreError as error:
                if self.trouble is None:
                    LOG.error("what other partitions have learnt cannot be read: %s", error)
                self.trouble = str(error)
                self._stop.wait(RETRY)

    def _follow(self, connection: Any) -> None:
        """Read the table, and again whenever it changes, until the connection breaks.

        All of it first: a failover may have given numbers out again.
        """
        connection.execute(f"LISTEN {CHANNEL}")
        last, read = 0, 0.0
        while not self._stop.is_set():
            if time.monotonic() - read >= POLL:
                last, read = self._read(connection, last), time.monotonic()
            if any(True for _ in connection.notifies(timeout=TICK, stop_after=1)):
                read = 0.0

    def _read(self, connection: Any, after: int) -> int:
        rows = connection.execute(_READ, (after,)).fetchall()
        for tenant, _, _, built, number, data in rows:
            after = max(after, number)
            with suppress(DycluError):
                self._put(tenant, Contribution.from_bytes(data), bytes(data), built)
        self._read_at, self.trouble = time.monotonic(), None
        return after

    def _put(self, tenant: str, one: Contribution, data: bytes, built: int) -> None:
        with self._lock:
            rows = self._rows.setdefault(tenant, OrderedDict())
            known = rows.get(one.key)
            if known is not None and (known.data, known.built) == (data, built):
                return
            self._number += 1
            rows[one.key] = Published(one, data, built, self._number)
            rows.move_to_end(one.key)


class PartitionShard:
    """The place of one partition in the registry; writes need its claim.

    Attributes
    ----------
    name : str
        Number of the partition, and its policy.
    turn, asking : asyncio.Lock
        Those of this process.
    """

    def __init__(
        self, registry: SharedRegistry, database: Database, claim: Claim, policy: str
    ) -> None:
        self.name = name_of(claim.partition, policy)
        self.turn, self.asking = registry.turn, registry.asking
        self._registry, self._database, self._claim = registry, database, claim
        self._kind = self.name.partition("@")[1:]

    def of_others(self, after: int) -> Sequence[Published]:
        """Return what others of the same policy have published, as read last, in order."""
        rows = self._registry.after(self._claim.tenant, after)
        return [
            row
            for row in rows
            if (shard := row.contribution.shard) != self.name
            and shard.partition("@")[1:] == self._kind
        ]

    def own(self) -> list[Published]:
        """Read what this partition has published."""
        with self._database.owned(self._claim) as connection:
            rows = connection.execute(_OWN, self._told()).fetchall()
        return [
            Published(Contribution.from_bytes(data), bytes(data), built) for data, built in rows
        ]

    def publish(self, built: int, contributions: Sequence[Contribution]) -> None:
        """Replace what was published of these models, if the claim still holds."""
        told = self._told() | {
            "built": built,
            "patience": PATIENCE,
            "models": [one.model for one in contributions],
            "data": [one.to_bytes() for one in contributions],
        }
        with self._database.connection() as connection:
            held, _, _ = connection.execute(_PUBLISH, told).fetchone()
        if not held:
            raise OwnershipLost(self._claim)

    def leave(self, *, stays: bool) -> None:
        """Remove what was published as another policy, and, unless it `stays`, as this one."""
        told = self._told() | {"number": str(self._claim.partition), "stays": stays}
        with self._database.owned(self._claim) as connection:
            connection.execute(_LEAVE, told)

    def _told(self) -> dict[str, Any]:
        return self._claim.named | {"shard": self.name}
