"""Kill a service again and again under load, and hold it to every promise it made.

``python -m tests.service.crash --kills 200`` is ``make crashtest``; the short version is a test.
What the clients were told is written down by them (`crowd.py`); the service has no part in it.

Two tenants serve: one learns rewards as they arrive, a default reward when a decision expires, and
has a control group; the other adds rewards up and learns them when the decision's time is over.
Decisions (single, with several slots, in batches, inactive at first), rewards of one or of several
slots, observations and erasures come in any order. Old
lines move to the archive, users beyond a few are pushed out, settings are changed by SIGHUP, and
some kills come while the service is starting. The last life is spent in this process, so that the
policy that served can be looked at as it is.
"""

from __future__ import annotations

import argparse
import base64
import json
import math
import random
import secrets
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet

from dyclu import Contribution, policies, storage
from dyclu.policy import Policy
from dyclu.service.disk import bases
from dyclu.service.disk.snapshots import JOURNAL, SNAPSHOTS, Snapshots, recover
from dyclu.service.disk.sqlite.reader import JournalReader
from dyclu.service.engine.state import State
from dyclu.service.http.keys import digest
from dyclu.service.settings import Keep, settings
from dyclu.service.spec import PolicySpec, warm_up
from dyclu.service.tenant.tenant import Tenant
from tests.service.bench import bits
from tests.service.crowd import DIM, KEEP, Client, Witness
from tests.service.running import process, readiness, running, wait_until

WAIT = 2.0
"""Seconds for which rewards are waited for; a start takes as long, so that some come too late."""

SPECS = {
    "atlas": PolicySpec("atlas", DIM, {}),
    "dyclu": PolicySpec("dyclu", DIM, {"noise": 0.1}),
    "linucb": PolicySpec("linucb", DIM, {"alpha": 0.5}),
    "pooled": PolicySpec("linucb", DIM, {"alpha": 0.5, "shared": True}),
}
CLIENTS = {"shop": 4, "news": 2}

PATIENCE = 60.0
"""Seconds without an answer after which the service is taken for dead."""

BASED = 600.0
"""Seconds after which a base is missing. A process of low priority makes it; on a machine with much
other work that one gets little time."""

CONFIG = """
data = {data}
port = 0
snapshot_every = 0.25
[tenants.shop]
dim = {dim}
policy = "{policy}"
options = {{{options}}}
reward_wait = {wait}
keep = "{keep}s"
archive = true
default_reward = {default}
control = {control}
log_arms = {arms}
limits = {{max_queue = {queue}}}
keys = [{{digest = "{shop}", role = "read-write"}}]
[tenants.news]
dim = {dim}
policy = "linucb"
options = {{alpha = 0.5}}
reward_wait = {wait}
reward = "sum"
learn = "settled"
keep = "{keep}s"
archive = true
limits = {{max_users = {users}}}
keys = [{{digest = "{news}", role = "read-write"}}]
"""


class Ordeal:
    """A service, its clients, and what they saw.

    Attributes
    ----------
    witnesses : dict of str to Witness
        By tenant.
    found : Counter of str
        How often what was seen.
    """

    def __init__(self, folder: Path, policy: str, *, seed: int) -> None:
        self.folder, self.rng = folder, random.Random(seed)
        self.specs = {"shop": SPECS[policy], "news": SPECS["linucb"]}
        self.witnesses = {tenant: Witness(adds=tenant == "news") for tenant in CLIENTS}
        self.found = Counter[str](dict.fromkeys(BROKEN, 0))
        for spec in self.specs.values():
            # Compiled here, once; a start that has to compile would look dead on a busy machine.
            warm_up(spec)
        tenants = [tenant for tenant, count in CLIENTS.items() for _ in range(count)]
        # Another test's service may get the port of one that was killed; it must not know them.
        keys = {tenant: secrets.token_hex(16) for tenant in CLIENTS}
        self.clients = [
            Client(number, keys[tenant], self.witnesses[tenant])
            for number, tenant in enumerate(tenants)
        ]
        self.config = folder / "service.toml"
        options = ", ".join(f"{name} = {value}" for name, value in SPECS[policy].options.items())
        self._fixed = {
            "data": json.dumps(str(folder / "data")),
            "dim": DIM,
            "policy": policy,
            "options": options,
            "wait": WAIT,
            "keep": KEEP,
            **{tenant: digest(key) for tenant, key in keys.items()},
        }
        self._set_up()

    def _set_up(self) -> None:
        """Write the settings; those that may change while the service runs are drawn."""
        drawn = {
            "default": self.rng.choice((0.25, 0.5)),
            "control": self.rng.choice((0.0, 0.3)),
            "arms": self.rng.choice(("true", "false")),
            "queue": self.rng.choice((3, 4096)),
            "users": self.rng.choice((4, 6, 8)),
        }
        self.config.write_text(CONFIG.format(**self._fixed, **drawn))

    def suffer(self, kills: int, *, seconds: float = math.inf) -> Counter[str]:
        """Live and be killed so many times, live once more, and tell what was found.

        After `seconds` no further life is begun but the last one.
        """
        end = time.monotonic() + seconds
        for client in self.clients:
            client.start()
        try:
            served = False
            while self.found["kills"] < kills and time.monotonic() < end:
                chance = self.rng.random()
                # Clients are without a service meanwhile; not for longer than lines are kept.
                if served and chance < 0.2:
                    served = False
                    self._die_while_starting()
                    continue
                served = True
                if chance < 0.4:
                    self._die_while_retiring()
                else:
                    self._live_and_die()
            self._live_and_tell()
        finally:
            # Else they would ask for ever.
            for client in self.clients:
                client.gone.set()
        for tenant, witness in self.witnesses.items():
            self.found.update(self._judged(tenant, witness))
        return self.found

    def _die_while_starting(self) -> None:
        data, config = self.folder / "data", f"--config={self.config}"
        with process(data, config, ready=False) as (child, url):
            self._serve(url)
            time.sleep(self.rng.uniform(0.0, 1.5))
            child.kill()
            child.wait()
        self.found["kills"] += 1
        self.found["kills while starting"] += 1

    def _die_while_retiring(self) -> None:
        """Live until a base is being made, if one is due, and be killed soon after."""
        with process(self.folder / "data", f"--config={self.config}") as (child, url):
            self._serve(url)
            self._hear(20)
            end = time.monotonic() + 3
            while not self._retiring() and time.monotonic() < end:
                time.sleep(0.01)
            # A base is made in two to three seconds; then it is stored, and lines are deleted.
            time.sleep(self.rng.uniform(0.0, 4.0))
            self.found["kills while retiring"] += self._retiring()
            child.kill()
            child.wait()
        self.found["kills"] += 1

    def _retiring(self) -> bool:
        return any((self.folder / "data").glob("*/base-drafts/*"))

    def _live_and_die(self) -> None:
        # Now and then it is asked to stop instead, and takes its snapshot.
        last = signal.SIGTERM if self.rng.random() < 0.1 else signal.SIGKILL
        with process(self.folder / "data", f"--config={self.config}") as (child, url):
            self._serve(url)
            self._hear(self.rng.randrange(60))
            if self.rng.random() < 0.5:
                self._set_up()
                child.send_signal(signal.SIGHUP)
                self.found["reloads"] += 1
            self._hear(self.rng.randrange(20))
            time.sleep(self.rng.uniform(0.0, 0.02))
            child.send_signal(last)
            child.wait()
        self.found["stops" if last == signal.SIGTERM else "kills"] += 1
        if last == signal.SIGTERM:
            for tenant in CLIENTS:
                self._look_at_snapshots(tenant)

    def _serve(self, url: str) -> None:
        for client in self.clients:
            client.url = url
            client.up.set()

    def _pause(self, seconds: float) -> None:
        """Let each client wait so long between its requests."""
        for client in self.clients:
            client.pause = seconds

    def _hear(self, more: int) -> None:
        """Wait until the clients have had so many more answers; fail if none comes any more."""
        begun = heard = self._heard()
        since = time.monotonic()
        while self._heard() < begun + more:
            if self._heard() > heard:
                heard, since = self._heard(), time.monotonic()
            if time.monotonic() - since > PATIENCE:
                said = readiness(self.clients[0].url)
                raise AssertionError(f"no answer for {PATIENCE:.0f} s; {said}")
            time.sleep(0.001)

    def _heard(self) -> int:
        return sum(witness.answers for witness in self.witnesses.values())

    def _look_at_snapshots(self, tenant: str) -> None:
        """Compare what a stop, or the processes before it, wrote with a replay up to there."""
        folder = self.folder / "data" / tenant
        rows = sqlite3.connect(folder / JOURNAL)
        base, epoch = fact(rows, "base"), fact(rows, "epoch")
        for file in (folder / SNAPSHOTS).glob("*.state"):
            line = int(file.stem.partition("-")[2])
            if line <= base or storage.read(file).options["built"] != epoch:
                # Older than the base, or of a service that had yet to compute it anew.
                self.found["snapshots not looked at"] += 1
                continue
            made = serial(rows, self.specs[tenant], self.folder, upto=line)
            same = file.with_suffix(".policy").read_bytes() == saved(made, self.folder)
            self.found["snapshots that differ from a serial replay"] += not same
            self.found["snapshots looked at"] += 1
        rows.close()

    def _live_and_tell(self) -> None:
        """Serve in this process until all decisions have ended; look at what serves, then stop."""
        # Each snapshot is made by a process of its own, and nobody is killed any more.
        told = settings({"snapshot_every": 2.0}, environment={}, file=self.config)
        with running(told) as made:
            self._serve(made.url)
            self._hear(60)
            # A base is made once lines are older than they are kept.
            self._pause(0.2)
            for tenant in made.service.tenants.values():
                # Not with the tenant's own reader: a read in this thread would hold back the
                # transaction in which the service looks decisions up.
                with closing(JournalReader(tenant.folder / JOURNAL)) as reader:
                    wait_until(
                        lambda r=reader: r.facts().base > 0,
                        seconds=BASED,
                        told=partial(look_of, tenant),
                    )
            self._pause(0.0)
            # Some users are in the base by now; they are erased from it.
            self._hear(300)
            for client in self.clients:
                client.over.set()
            for client in self.clients:
                client.join()
            for name, tenant in made.service.tenants.items():
                wait_until(
                    lambda t=tenant: not (t.rebuilding or t.state.pending),
                    seconds=BASED,
                    told=partial(look_of, tenant),
                )
                self._hold_still(tenant)
                reader = JournalReader(tenant.folder / JOURNAL)
                fresh = bases.begin(reader, tenant.folder, self.specs[name])
                fresh.apply_all(reader.after(reader.facts().base))
                live = bits(tenant.state, self.folder)
                self.found["live state differs from the journal's"] += live != bits(
                    fresh, self.folder
                )
                rows = sqlite3.connect(f"file:{tenant.folder / JOURNAL}?mode=ro", uri=True)
                self.found["live policy differs from a serial replay"] += live[0] != saved(
                    serial(rows, self.specs[name], self.folder), self.folder
                )
                self.found["bases"] += fact(rows, "generation")
                if self.specs[name].forgets_exactly:
                    whole = serial(everything(tenant.folder), self.specs[name], self.folder)
                    self.found["live policy decides other than all lines say"] += differ(
                        tenant.state.policy, whole
                    )
                rows.close()
                reader.close()

    def _hold_still(self, tenant: Tenant) -> None:
        """Let a retirement end, and begin no other: it would change what is compared."""
        tenant.retirement.keep = Keep()
        wait_until(
            lambda: not tenant.files.turn.locked(),
            seconds=BASED,
            told=partial(look_of, tenant),
        )

    def _judged(self, tenant: str, witness: Witness) -> dict[str, int]:
        """Compare the journal and what is recovered from it with what the clients were told."""
        folder = self.folder / "data" / tenant
        journal = Told(everything(folder))
        reader = JournalReader(folder / JOURNAL)
        id = reader.facts().id
        state = recover(reader, Snapshots(folder / SNAPSHOTS, self.specs[tenant], id)).state
        reader.close()
        rows = sqlite3.connect(folder / JOURNAL)
        replayed = saved(serial(rows, self.specs[tenant], self.folder), self.folder)
        rows.close()
        ids = journal.arms.keys() | set(journal.events)
        others = {client.name for client in self.clients if client.witness is not witness}
        left = b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())
        return {
            **witness.counts,
            "lost decisions": sum(
                journal.arms.get(id) != arms for id, arms in witness.decisions.items()
            ),
            "lost rewards": sum(
                journal.values.get((id, slot)) != math.fsum(values)
                for id, slots in witness.rewards.items()
                for slot, values in slots.items()
            ),
            "lost activations": len(witness.activated - journal.activated),
            "lost observations": len(witness.events - set(journal.events)),
            "rewards of no decision": journal.astray,
            "late rewards learnt": sum(
                f"{name}/{slot}" in journal.arrived
                if witness.adds
                else (id, slot) in journal.values
                for id, late in witness.late.items()
                for slot, name in late
            ),
            "late": sum(map(len, witness.late.values())),
            "slots rewarded": sum(map(len, witness.rewards.values())),
            "defaults": len(journal.defaults),
            "expired without default": journal.expired,
            "defaults learnt of inactive decisions": len(journal.defaults & journal.asleep),
            "decisions that never ended": journal.open,
            "slots that ended twice": journal.twice,
            "observations journaled twice": len(journal.events) - len(set(journal.events)),
            "learnt too often or too rarely": miscounted(state, journal, witness),
            "erased but in the journal": len(witness.erased & ids),
            "erased but on the disk": sum(name.encode() in left for name in witness.gone),
            "erased but in the archive": len(witness.gone & journal.users),
            "evictions": journal.evictions,
            "lines of another tenant": sum(id.partition("-")[0] in others for id in ids),
            "wrong answers": len(witness.wrong),
            "recovered policy differs from a serial replay": int(
                bits(state, self.folder)[0] != replayed
            ),
        }


def look_of(tenant: Tenant) -> str:
    """Return what a tenant is doing, for the message of a wait that was too long."""
    state = f"line {tenant.state.total.seq}, base {tenant.base}, {len(tenant.state.pending)} wait"
    return f"{state}, rebuilding {tenant.rebuilding}, busy {tenant.files.turn.locked()}"


class Told:
    """What a journal says, read with nothing of the service."""

    def __init__(self, rows: sqlite3.Connection) -> None:
        decided = rows.execute("SELECT seq, ref, body FROM journal WHERE kind = 'decision'")
        bodies = {seq: (id, json.loads(body)) for seq, id, body in decided}
        self.arms = {id: tuple(one["arm"] for one in slots_of(b)) for id, b in bodies.values()}
        self.values: dict[tuple[str, int], float] = {}
        self.defaults = set[str]()
        self.astray = self.learnt = self.expired = self.twice = 0
        left = {seq: set(range(1, len(slots_of(body)) + 1)) for seq, (_, body) in bodies.items()}
        for kind, of, text in rows.execute(
            "SELECT kind, of, body FROM journal WHERE kind IN ('reward', 'expiry') ORDER BY seq"
        ):
            body = json.loads(text)
            if kind == "expiry":
                for seq in bodies.keys() & set(body["decisions"]):
                    # A decision whose slots are all rewarded has ended.
                    self.twice += not left[seq]
                    self.expired += len(left[seq])
                    left[seq].clear()
            elif of not in bodies:
                self.astray += 1
            else:
                self.reward(bodies[of][0], body, left[of])
        self.open = sum(map(len, left.values()))
        arrived = rows.execute("SELECT ref FROM journal WHERE kind = 'arrival'")
        self.arrived = {ref for (ref,) in arrived}
        activated = rows.execute("SELECT of FROM journal WHERE kind = 'activation'")
        self.activated = {bodies[of][0] for (of,) in activated}
        asleep = {id for id, body in bodies.values() if not body.get("active", True)}
        self.asleep = asleep - self.activated
        self.events = [ref for (ref,) in rows.execute("SELECT ref FROM journal WHERE kind='event'")]
        self.learnt += len(self.events)
        self.users = {user for (user,) in rows.execute("SELECT DISTINCT user FROM journal")}
        count = rows.execute("SELECT count(*) FROM journal WHERE kind = 'eviction'")
        self.evictions = int(count.fetchone()[0])

    def reward(self, id: str, body: dict[str, Any], left: set[int]) -> None:
        """Count a reward that was learnt."""
        slot = body.get("slot", 1)
        self.learnt += 1
        self.twice += slot not in left
        left.discard(slot)
        if body.get("default"):
            self.defaults.add(id)
        else:
            self.values[id, slot] = body["value"]


def slots_of(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return arm and context of each slot of a decision."""
    return [body, *body.get("slots", [])]


def miscounted(state: State, journal: Told, witness: Witness) -> int:
    """Return by how much the number of rewards learnt differs from the lines that say so.

    The count keeps the share of a user who was pushed out, got into a base, and was erased later:
    nothing but the archive knew by then how many rewards they had.
    """
    more = state.total.version - journal.learnt
    allowed = witness.unlearnt if journal.evictions else 0
    return max(0, more - allowed, -more)


def fact(rows: sqlite3.Connection, name: str) -> int:
    """Return a number that a journal says about itself."""
    return int(rows.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()[0])


def everything(folder: Path) -> sqlite3.Connection:
    """Return all lines, the archived ones included, read with nothing of the service."""
    made = sqlite3.connect(":memory:")
    made.execute("CREATE TABLE journal (seq PRIMARY KEY, at, kind, ref, user, of, body)")
    made.execute("CREATE TABLE meta (name, value)")
    made.execute("INSERT INTO meta VALUES ('base', 0)")
    journal = sqlite3.connect(folder / JOURNAL)
    archived = fact(journal, "archived")
    kept = journal.execute("SELECT * FROM journal WHERE seq > ?", (archived,)).fetchall()
    journal.close()
    for file in sorted((folder / "archive").glob("*.parquet")):
        if int(file.stem.rpartition("-")[2]) <= archived:
            kept += [tuple(row.values()) for row in pyarrow.parquet.read_table(file).to_pylist()]
    made.executemany("INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?, ?)", kept)
    return made


def serial(
    rows: sqlite3.Connection, spec: PolicySpec, scratch: Path, *, upto: int = 2**62
) -> Policy:
    """Replay base and journal with nothing but a policy: no state, no engine, no service."""
    policy, base = policies.make(spec.name, spec.dim, **spec.options), fact(rows, "base")
    if base:
        parts = rows.execute(
            "SELECT bytes FROM base WHERE file = 'base.policy' AND generation = ? ORDER BY part",
            (fact(rows, "generation"),),
        )
        (scratch / "base.bits").write_bytes(b"".join(part for (part,) in parts))
        policy = policies.load(scratch / "base.bits")
    contexts: dict[tuple[int, int], tuple[str, list[float]]] = {}
    for seq, kind, user, of, text in rows.execute(
        "SELECT seq, kind, user, of, body FROM journal WHERE seq <= ? ORDER BY seq", (upto,)
    ):
        body = json.loads(text)
        if kind == "decision":
            for slot, one in enumerate(slots_of(body), 1):
                contexts[seq, slot] = (user, one["x"])
        elif seq <= base:
            continue
        elif kind == "eviction":
            policy.forget(user)
        elif kind == "absorbed":
            for told in body["contributions"]:
                theirs = Contribution.from_bytes(base64.b64decode(told))
                policy.absorb([theirs], shard="here")
        elif kind == "event":
            policy.learn(user, body["x"], body["value"])
        elif kind == "reward" and (place := (of, body.get("slot", 1))) in contexts:
            policy.learn(*contexts[place], body["value"])
    return policy


def saved(policy: Policy, folder: Path) -> bytes:
    """Return a policy as bytes."""
    policy.save(folder / "serial.bits")
    return (folder / "serial.bits").read_bytes()


def differ(one: Policy, other: Policy) -> int:
    """Count users for whom two policies decide differently, or whom only one knows."""
    arms = [[1.0, 0.0, 0.0], [0.3, -0.5, 0.2], [-0.1, 0.4, 0.9]]
    both = set(one.users) & set(other.users)
    return len(set(one.users) ^ set(other.users)) + sum(
        one.decide(user, arms) != other.decide(user, arms) for user in both
    )


BROKEN = (
    "lost decisions",
    "lost rewards",
    "lost activations",
    "lost observations",
    "rewards of no decision",
    "late rewards learnt",
    "defaults learnt of inactive decisions",
    "decisions that never ended",
    "slots that ended twice",
    "observations journaled twice",
    "learnt too often or too rarely",
    "erased but in the journal",
    "erased but on the disk",
    "erased but in the archive",
    "lines of another tenant",
    "wrong answers",
    "snapshots that differ from a serial replay",
    "live state differs from the journal's",
    "live policy differs from a serial replay",
    "live policy decides other than all lines say",
    "recovered policy differs from a serial replay",
)


def main() -> None:
    """Torment a service and tell how it went."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--policy", choices=SPECS, default="atlas")
    parser.add_argument("--minutes", type=float, default=math.inf, help="end earlier, after these")
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        ordeal = Ordeal(Path(name), told.policy, seed=told.seed)
        found = ordeal.suffer(told.kills, seconds=60 * told.minutes)
        wrong = [one for witness in ordeal.witnesses.values() for one in witness.wrong]
    for what, count in sorted(found.items(), key=lambda item: (item[0] in BROKEN, item[0])):
        sys.stdout.write(f"{what:50} {count}\n")
    for one in wrong[:20]:
        sys.stdout.write(f"{one}\n")
    sys.exit(any(found[what] for what in BROKEN))


if __name__ == "__main__":
    main()
