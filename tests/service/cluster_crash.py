"""Kill members of a cluster, and its database, under load; hold it to every promise it made.

``python -m tests.service.cluster_crash --kills 100 --database-kills 20`` is
``make crashtest-cluster``; the short version is a test. Three processes serve on a real PostgreSQL.
They are killed, stopped in order, or stopped by SIGSTOP until others have taken their partitions
over, and woken up again; others take their places, so partitions move all the time. The database is
killed with all its processes, and started again. What the clients were told is written down by
them (`crowd.py`), and compared with the tables, which are read with nothing of the service.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import secrets
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import psycopg

from dyclu import storage
from dyclu.service.http.keys import digest
from tests.service.crash import PATIENCE, SPECS, Told, saved, serial
from tests.service.crowd import DIM, Client, Witness
from tests.service.postgres import Postgres, postgres
from tests.service.running import process, wait_until

MEMBERS, CLIENTS, PARTITIONS = 3, 5, 4
LEASE, WAIT = 2.0, 4.0
"""Seconds of a lease, and for which rewards are waited for; a few of these come too late."""

CONFIG = """
data = {data}
port = 0
store = "{store}"
lease = {lease}
snapshot_every = 5.0
operators = [{{digest = "{operator}"}}]
[tenants.shop]
dim = {dim}
policy = "{policy}"
options = {{{options}}}
partitions = {partitions}
reward_wait = {wait}
default_reward = 0.25
keys = [{{digest = "{key}", role = "read-write"}}]
"""


class Member:
    """A process of the cluster."""

    def __init__(self, data: Path, config: Path) -> None:
        self._stack = ExitStack()
        self.child, self.url = self._stack.enter_context(process(data, f"--config={config}"))
        # Nobody reads its log otherwise, and a full pipe would stop it.
        self.said: list[str] = []
        for pipe in (self.child.stderr, self.child.stdout):
            threading.Thread(target=self._read, args=(pipe,), daemon=True).start()

    def _read(self, pipe: Any) -> None:
        # Closed by whoever ends the process.
        with suppress(ValueError):
            self.said.extend(pipe)

    def end(self, how: signal.Signals) -> None:
        """Kill it, or let it stop in order."""
        self.child.send_signal(how)
        try:
            self.child.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError("did not stop: " + "".join(self.said[-20:])) from None
        self._stack.close()


class ClusterOrdeal:
    """A cluster, its clients, and what they saw."""

    def __init__(
        self, folder: Path, database: Postgres, store: str, policy: str, *, seed: int
    ) -> None:
        self.folder, self.database, self.rng = folder, database, random.Random(seed)
        self.store = store
        self.spec, self.witness = SPECS[policy], Witness()
        self.found = Counter[str](dict.fromkeys(BROKEN, 0))
        key, operator = secrets.token_hex(16), secrets.token_hex(16)
        self.operator = {"Authorization": f"Bearer {operator}"}
        self.clients = [Client(number, key, self.witness) for number in range(CLIENTS)]
        self.config = folder / "cluster.toml"
        options = ", ".join(
            f"{name} = {json.dumps(value)}" for name, value in self.spec.options.items()
        )
        told = CONFIG.format(
            data=json.dumps(str(folder / "data")), store=store, lease=LEASE, dim=DIM,
            policy=self.spec.name, options=options, partitions=PARTITIONS, wait=WAIT,
            key=digest(key), operator=digest(operator),
        )  # fmt: skip
        self.config.write_text(told)
        self.members: list[Member] = []
        self._joining: list[threading.Thread] = []
        self.refused = ""

    def suffer(
        self, *, kills: int, database_kills: int, stops: int, seconds: float = math.inf
    ) -> Counter[str]:
        """Let so many things happen in any order; then stop in order, and tell what was found.

        It ends earlier after so many `seconds`.
        """
        end = time.monotonic() + seconds
        events = ["kill"] * kills + ["database kill"] * database_kills + ["stop"] * stops
        events += ["leave"] * (kills // 8)
        self.rng.shuffle(events)
        try:
            for _ in range(MEMBERS):
                self._join()
            self._await_members(MEMBERS)
            for client in self.clients:
                client.start()
            for event in events:
                if time.monotonic() > end:
                    break
                self._hear(self.rng.randrange(40))
                self._happen(event)
                self.found[event] += 1
            self._await_members(MEMBERS)
            self._hear(60)
            self._settle()
        finally:
            for client in self.clients:
                client.gone.set()
            for joining in self._joining:
                joining.join()
            for member in self.members:
                member.end(signal.SIGKILL)
        self.found.update(self._judged())
        return self.found

    def _join(self) -> None:
        """Start a member; go on meanwhile: others may be killed while it joins."""
        self._joining = [one for one in self._joining if one.is_alive()]
        self._joining.append(threading.Thread(target=self._start, daemon=True))
        self._joining[-1].start()

    def _start(self) -> None:
        # On a machine that is busy a start may take minutes.
        end = time.monotonic() + 5 * PATIENCE
        while time.monotonic() < end:
            try:
                self.members.append(Member(self.folder / "data", self.config))
            except AssertionError as error:
                # While the database is down none can start.
                self.refused = str(error)
                time.sleep(0.2)
            else:
                return

    def _await_members(self, count: int) -> None:
        """Wait until so many members listen."""
        try:
            wait_until(lambda: len(self.members) >= count, seconds=5 * PATIENCE)
        except AssertionError:
            raise AssertionError(f"only {len(self.members)} members: {self.refused}") from None
        self._assign()

    def _assign(self) -> None:
        """Let each client ask any of the members."""
        for client in self.clients:
            client.url = self.rng.choice(self.members).url
            client.up.set()

    def _happen(self, event: str) -> None:
        if event == "database kill":
            self.database.kill()
            time.sleep(self.rng.uniform(0.0, 1.5 * LEASE))
            self.database.start()
            return
        # One stays, so that partitions move to it.
        self._await_members(2)
        member = self.rng.choice(self.members)
        if event == "stop":
            member.child.send_signal(signal.SIGSTOP)
            time.sleep(LEASE + self.rng.uniform(0.5, 1.5))
            member.child.send_signal(signal.SIGCONT)
            return
        self.members.remove(member)
        self._assign()
        member.end(signal.SIGKILL if event == "kill" else signal.SIGTERM)
        self._join()

    def _hear(self, more: int) -> None:
        """Wait until the clients have had so many more answers; fail if none comes any more."""
        begun = heard = self.witness.answers
        since = time.monotonic()
        while self.witness.answers < begun + more:
            if self.witness.answers > heard:
                heard, since = self.witness.answers, time.monotonic()
            if time.monotonic() - since > PATIENCE:
                raise AssertionError(f"no answer for {PATIENCE:.0f} s: {self._said()}")
            self._assign()
            time.sleep(0.05)

    def _settle(self) -> None:
        """Let all decisions and rebuilds end; then stop all members in order."""
        for client in self.clients:
            client.over.set()
        for client in self.clients:
            while client.is_alive():
                self._assign()
                client.join(0.2)
        time.sleep(WAIT + 1)
        try:
            wait_until(self._quiet, seconds=5 * PATIENCE)
        except AssertionError:
            raise AssertionError(f"not quiet: {self._tenants()}, {self._said()}") from None
        while self.members:
            self.members.pop().end(signal.SIGTERM)

    def _quiet(self) -> bool:
        found = self._tenants()
        fine = [one for one in found if one["status"] == "ok" and not one["rebuilding"]]
        return len(fine) == PARTITIONS == len(found)

    def _tenants(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for member in self.members:
            got = httpx.get(f"{member.url}/tenants", headers=self.operator, timeout=60)
            found += got.json()["tenants"]
        return found

    def _said(self) -> str:
        return "".join(line for member in self.members for line in member.said[-20:])

    def _judged(self) -> dict[str, int]:
        """Compare the tables with what the clients were told."""
        with psycopg.connect(self.store) as tables:
            parts = [Part(tables, number, self.spec, self.folder) for number in range(PARTITIONS)]
            named = sum(
                tables.execute(
                    f'SELECT count(*) FROM dyclu.{table} WHERE "user" = ANY(%s)',
                    (list(self.witness.gone),),
                ).fetchone()[0]  # type: ignore[index]
                for table in ("journal", "erasing")
            )
        witness = self.witness
        arms = {id: one for part in parts for id, one in part.told.arms.items()}
        values = {place: one for part in parts for place, one in part.told.values.items()}
        events = [id for part in parts for id in part.told.events]
        left = b"".join(part.stored for part in parts)
        return {
            **witness.counts,
            "lost decisions": sum(arms.get(id) != one for id, one in witness.decisions.items()),
            "lost rewards": sum(
                values.get((id, slot)) != math.fsum(given)
                for id, slots in witness.rewards.items()
                for slot, given in slots.items()
            ),
            "lost activations": len(
                witness.activated - {id for part in parts for id in part.told.activated}
            ),
            "lost observations": len(witness.events - set(events)),
            "late rewards learnt": sum(
                (id, slot) in values for id, late in witness.late.items() for slot, _ in late
            ),
            "late": sum(map(len, witness.late.values())),
            "slots rewarded": sum(map(len, witness.rewards.values())),
            "rewards of no decision": sum(part.told.astray for part in parts),
            "decisions that never ended": sum(part.told.open for part in parts),
            "slots that ended twice": sum(part.told.twice for part in parts),
            "observations journaled twice": len(events) - len(set(events)),
            "learnt too often or too rarely": sum(abs(part.miscounted) for part in parts),
            "partitions without their last state": sum(not part.complete for part in parts),
            "partitions that differ from a serial replay": sum(part.differs for part in parts),
            "erased but in the tables": named
            + len(witness.erased & (arms.keys() | set(events)))
            + sum(name.encode() in left for name in witness.gone),
            "wrong answers": len(witness.wrong),
            "take-overs": sum(part.epoch for part in parts),
            "absorbed lines": sum(part.absorbed for part in parts),
        }


class Part:
    """What the tables say of a partition, and what its last owner had learnt."""

    def __init__(self, tables: Any, number: int, spec: Any, scratch: Path) -> None:
        rows = sqlite3.connect(":memory:")
        rows.execute("CREATE TABLE journal (seq PRIMARY KEY, at, kind, ref, user, of, body)")
        rows.execute("CREATE TABLE meta (name, value)")
        rows.execute("INSERT INTO meta VALUES ('base', 0)")
        lines = tables.execute(
            'SELECT seq, at, kind, ref, "user", of, body FROM dyclu.journal '
            "WHERE partition = %s ORDER BY seq",
            (number,),
        ).fetchall()
        rows.executemany("INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?, ?)", lines)
        self.told = Told(rows)
        self.absorbed = sum(line[2] == "absorbed" for line in lines)
        facts = dict(
            tables.execute("SELECT name, value FROM dyclu.fact WHERE partition = %s", (number,))
        )
        files: dict[str, bytes] = {}
        for file, content in tables.execute(
            "SELECT file, bytes FROM dyclu.snapshot WHERE partition = %s ORDER BY file, part",
            (number,),
        ):
            files[file] = files.get(file, b"") + content
        self.stored = b"".join(files.values())
        stem = facts["snapshot"]
        (scratch / "last.state").write_bytes(files[f"{stem}.state"])
        state = storage.read(scratch / "last.state")
        self.complete = int(stem.partition("-")[2]) == lines[-1][0]
        self.complete &= state.options["built"] == int(facts["epoch"])
        self.miscounted = state.state["total"]["version"] - self.told.learnt
        self.differs = files[f"{stem}.policy"] != saved(serial(rows, spec, scratch), scratch)
        (self.epoch,) = tables.execute(
            "SELECT epoch FROM dyclu.partition WHERE partition = %s", (number,)
        ).fetchone()
        rows.close()


BROKEN = (
    "lost decisions",
    "lost rewards",
    "lost activations",
    "lost observations",
    "late rewards learnt",
    "rewards of no decision",
    "decisions that never ended",
    "slots that ended twice",
    "observations journaled twice",
    "learnt too often or too rarely",
    "partitions without their last state",
    "partitions that differ from a serial replay",
    "erased but in the tables",
    "wrong answers",
)


def main() -> None:
    """Torment a cluster and tell how it went."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--database-kills", type=int, default=20)
    parser.add_argument("--stops", type=int, default=20, help="members stopped by SIGSTOP")
    parser.add_argument("--minutes", type=float, default=math.inf, help="end earlier, after these")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--policy", choices=SPECS, default="atlas")
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, postgres() as database:
        ordeal = ClusterOrdeal(Path(name), database, database.fresh(), told.policy, seed=told.seed)
        found = ordeal.suffer(
            kills=told.kills,
            database_kills=told.database_kills,
            stops=told.stops,
            seconds=60 * told.minutes,
        )
    for what, count in sorted(found.items(), key=lambda item: (item[0] in BROKEN, item[0])):
        sys.stdout.write(f"{what:50} {count}\n")
    for one in ordeal.witness.wrong[:20]:
        sys.stdout.write(f"{one}\n")
    sys.exit(any(found[what] for what in BROKEN))


if __name__ == "__main__":
    main()
