"""Who owns which partition, as the database says; times are those of the database's clock.

A process has a lease that it renews; its partitions are its own as long as the lease lasts, and
longer if nobody takes them over. Taking over raises the partition's epoch, which each write checks.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dyclu.errors import OptionError
from dyclu.service.cluster.places import Place
from dyclu.service.disk.postgres.database import Claim, Database

FORGOTTEN = "1 day"
"""Time after which the row of a process that ended is deleted."""

_NOW = "clock_timestamp()"
_UNTIL = f"{_NOW} + make_interval(secs => %(lease)s)"


@dataclass(frozen=True, slots=True)
class Process:
    """A process of the cluster; its lease ends in `left` seconds, and it stops if `leaving`.

    It cannot open `refused` partitions at present: others have to serve them.
    """

    id: str
    name: str
    url: str
    leaving: bool
    left: float
    refused: int = 0

    @property
    def alive(self) -> bool:
        """Whether its lease lasts."""
        return self.left > 0


@dataclass(frozen=True, slots=True)
class Held:
    """A partition: its epoch, the id of its owner (None without one), and for how many seconds."""

    epoch: int
    owner: str | None
    age: float


@dataclass(frozen=True, slots=True)
class Overview:
    """All processes by their ids, and all partitions, as the database had them at one moment."""

    processes: Mapping[str, Process]
    partitions: Mapping[Place, Held]

    def owner(self, place: Place) -> Process | None:
        """Return the process that owns a partition; None if there is none, or its lease is over."""
        held = self.partitions.get(place)
        found = None if held is None or held.owner is None else self.processes.get(held.owner)
        return found if found is not None and found.alive else None

    def share(self, process: str) -> int:
        """Return how many partitions a process should own at most.

        Those that others cannot open come on top of an equal share.

        >>> one = Process("a", "a", "", leaving=False, left=5.0)
        >>> held = {("shop", number): Held(0, None, 0.0) for number in range(64)}
        >>> Overview({"a": one, "b": one, "c": one}, held).share("a")
        22
        """
        staying = [one for one in self.processes.values() if one.alive and not one.leaving]
        others = sum(one.refused for one in staying if one.id != process)
        return math.ceil(len(self.partitions) / max(1, len(staying))) + others

    def of(self, process: str) -> dict[Place, int]:
        """Return the partitions of a process, with their epochs."""
        found = self.partitions.items()
        return {place: held.epoch for place, held in found if held.owner == process}


class Leases:
    """The lease of one process, and the statements about ownership; used from one thread.

    Attributes
    ----------
    ahead : float
        Seconds by which the database's clock is ahead of ours, as the last renewal found.
    """

    def __init__(self, database: Database, id: str, name: str, *, lease: float) -> None:
        self.id = id
        self._database, self._me = database, {"id": id, "name": name, "lease": lease}
        self.ahead = 0.0

    def set_up(self, partitions: Mapping[str, int]) -> None:
        """Make the partitions of tenants that have none; refuse another number of them."""
        with self._database.connection() as connection, connection.transaction():
            for tenant, count in sorted(partitions.items()):
                make_partitions(connection, tenant, count)

    def key(self) -> str:
        """Return the secret by which processes of this cluster know each other."""
        with self._database.connection() as connection:
            found = connection.execute("SELECT value FROM dyclu.meta WHERE name = 'key'")
            return str(found.fetchone()[0])

    def register(self, url: str) -> bool:
        """Begin a lease; return False if another process of this name has one."""
        with self._database.connection() as connection, connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(hashtext(%(name)s))", self._me)
            taken = connection.execute(
                f"SELECT 1 FROM dyclu.process WHERE name = %(name)s AND expires > {_NOW} "
                "AND id != %(id)s",
                self._me,
            )
            if taken.fetchone() is not None:
                return False
            connection.execute(
                f"DELETE FROM dyclu.process WHERE (name = %(name)s AND id != %(id)s) "
                f"OR expires < {_NOW} - interval '{FORGOTTEN}'",
                self._me,
            )
            connection.execute(
                f"INSERT INTO dyclu.process VALUES (%(id)s, %(name)s, %(url)s, false, {_UNTIL}) "
                "ON CONFLICT (id) DO UPDATE SET expires = excluded.expires",
                {**self._me, "url": url},
            )
        return True

    def renew(self, *, leaving: bool, refused: int = 0) -> bool:
        """Renew the lease; return False if this process is not registered any more."""
        with self._database.connection() as connection:
            before = time.time()
            found = connection.execute(
                f"UPDATE dyclu.process SET expires = {_UNTIL}, leaving = %(leaving)s, "
                "refused = %(refused)s "
                f"WHERE id = %(id)s RETURNING extract(epoch FROM {_NOW})::float",
                {**self._me, "leaving": leaving, "refused": refused},
            ).fetchone()
            after = time.time()
        if found is None:
            return False
        # The database read its clock between the two; what agrees with that is not changed.
        self.ahead = min(max(self.ahead, found[0] - after), found[0] - before)
        return True

    def clock(self) -> float:
        """Return the time of the database's clock, as far as the last renewal tells."""
        return time.time() + self.ahead

    def overview(self, tenants: Sequence[str]) -> Overview:
        """Return what the database says now of all processes, and of these tenants' partitions.

        Tenants that were removed from the settings keep their partitions; nobody serves them.
        """
        with self._database.connection() as connection, connection.transaction():
            processes = connection.execute(
                f"SELECT id, name, url, leaving, extract(epoch FROM expires - {_NOW})::float, "
                "refused FROM dyclu.process"
            ).fetchall()
            partitions = connection.execute(
                "SELECT tenant, partition, epoch, owner, "
                f"coalesce(extract(epoch FROM {_NOW} - since), 0)::float FROM dyclu.partition "
                "WHERE tenant = ANY(%s)",
                (list(tenants),),
            ).fetchall()
        return Overview(
            {row[0]: Process(*row) for row in processes},
            {(tenant, number): Held(*rest) for tenant, number, *rest in partitions},
        )

    def claim(
        self, tenants: Sequence[str], most: int, *, but: Collection[Place] = ()
    ) -> list[Claim]:
        """Take over partitions that nobody owns, or whose owner's lease is over; at most `most`.

        Those in `but` are left to others.

        The rows of processes whose lease is over are locked: one of them that renews its lease at
        this moment waits, and sees then what was taken from it.
        """
        with self._database.connection() as connection, connection.transaction():
            lapsed = connection.execute(
                f"SELECT id FROM dyclu.process WHERE expires < {_NOW} FOR UPDATE SKIP LOCKED"
            ).fetchall()
            rows = connection.execute(
                "WITH free AS (SELECT tenant, partition FROM dyclu.partition "
                "WHERE tenant = ANY(%(tenants)s) AND (owner IS NULL OR owner = ANY(%(lapsed)s) "
                "OR owner NOT IN (SELECT id FROM dyclu.process)) "
                "AND NOT tenant || '/' || partition = ANY(%(but)s) "
                "ORDER BY random() LIMIT %(most)s FOR UPDATE SKIP LOCKED) "
                "UPDATE dyclu.partition AS p SET owner = %(id)s, epoch = p.epoch + 1, "
                f"since = {_NOW} "
                "FROM free WHERE p.tenant = free.tenant AND p.partition = free.partition "
                "RETURNING p.tenant, p.partition, p.epoch",
                {**self._me, "tenants": list(tenants), "lapsed": [id for (id,) in lapsed],
                 "most": most, "but": [f"{tenant}/{number}" for tenant, number in but]},
            ).fetchall()  # fmt: skip
        return [Claim(tenant, number, epoch, self.id) for tenant, number, epoch in rows]

    def release(self, claim: Claim) -> None:
        """Give up a partition, unless somebody else owns it by now."""
        with self._database.connection() as connection:
            connection.execute(
                "UPDATE dyclu.partition SET owner = NULL, since = NULL WHERE tenant = %(tenant)s "
                "AND partition = %(partition)s AND epoch = %(epoch)s AND owner = %(owner)s",
                claim.named,
            )

    def leave(self) -> None:
        """End the lease."""
        with self._database.connection() as connection:
            connection.execute("DELETE FROM dyclu.process WHERE id = %(id)s", self._me)


def make_partitions(connection: Any, tenant: str, count: int) -> None:
    """Make the partitions of a tenant if it has none; refuse another number of them."""
    connection.execute(
        "INSERT INTO dyclu.tenant VALUES (%s, %s) ON CONFLICT DO NOTHING", (tenant, count)
    )
    found = connection.execute(
        "SELECT partitions FROM dyclu.tenant WHERE name = %s", (tenant,)
    ).fetchone()[0]
    if found != count:
        raise OptionError(
            f"tenant {tenant} has {found} partitions, the settings say {count}; the "
            f"number cannot change, set partitions = {found}"
        )
    connection.execute(
        "INSERT INTO dyclu.partition SELECT %s, n FROM generate_series(0, %s) AS n "
        "ON CONFLICT DO NOTHING",
        (tenant, count - 1),
    )


def partition_of_decision(database: Database, tenant: str, id: str) -> int | None:
    """Return the partition of the decision with this id; None if there is none."""
    with database.connection() as connection:
        row = connection.execute(
            "SELECT partition FROM dyclu.journal WHERE tenant = %s AND ref = %s "
            "AND kind = 'decision'",
            (tenant, id),
        ).fetchone()
    return None if row is None else int(row[0])
