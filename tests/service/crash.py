"""Kill a service again and again under load, and hold it to every promise it made.

``python -m tests.service.crash --kills 200`` is ``make crashtest``; the short version is a test.
What the clients were told is written down here, by them; the service has no part in it.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sqlite3
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from dyclu import policies
from dyclu.policy import Policy
from dyclu.service.snapshot import JOURNAL, SNAPSHOTS, Snapshots, recover
from dyclu.service.state import PolicySpec, State
from dyclu.service.store import JournalReader
from tests.service.bench import bits
from tests.service.running import process

DIM = 3
CLIENTS = 6
SPECS = {
    "atlas": PolicySpec("atlas", DIM, {}),
    "dyclu": PolicySpec("dyclu", DIM, {"noise": 0.1}),
}


@dataclass
class Witness:
    """What clients were told, and what they still wait to hear."""

    decisions: dict[str, str] = field(default_factory=dict)
    rewards: dict[str, float] = field(default_factory=dict)
    events: set[str] = field(default_factory=set)
    conflicts: list[str] = field(default_factory=list)
    kills: int = 0
    retried: int = 0

    @property
    def heard(self) -> int:
        """How many successes there have been."""
        return len(self.decisions) + len(self.rewards) + len(self.events)


class Client(threading.Thread):
    """Decides and rewards until the service dies; afterwards repeats what was not answered."""

    def __init__(self, number: int, witness: Witness) -> None:
        super().__init__(daemon=True)
        self.rng = random.Random(number)
        self.name, self.witness = f"c{number}", witness
        self.url = ""
        self.up = threading.Event()
        self.over = threading.Event()
        self.count = 0

    def run(self) -> None:
        with httpx.Client(timeout=5) as http:
            self.http = http
            while not self.over.is_set():
                self.step()

    def step(self) -> None:
        self.count += 1
        id = f"{self.name}-{self.count}"
        user = f"u{self.rng.randrange(12)}"
        x = [[round(self.rng.uniform(-1, 1), 3) for _ in range(DIM)] for _ in range(4)]
        arms = [{"id": str(i), "features": row} for i, row in enumerate(x)]
        if self.count % 5 == 0:
            row = {"user": user, "features": x[0], "reward": x[0][0], "event_id": id}
            if self.insist("/v1/observations", {"observations": [row]}):
                self.witness.events.add(id)
            return
        asked = {"user": user, "arms": arms, "decision_id": id}
        answer = self.insist("/v1/decisions", asked)
        if answer is None:
            return
        self.witness.decisions[id] = answer["arm"]
        value = round(x[int(answer["arm"])][0] + self.rng.gauss(0, 0.1), 4)
        if self.insist(f"/v1/decisions/{id}/reward", {"value": value}):
            self.witness.rewards[id] = value

    def insist(self, path: str, body: Any) -> Any:
        """Send until answered; whether the first attempt was carried out is not known."""
        while not self.over.is_set():
            self.up.wait(0.5)
            try:
                response = self.http.post(self.url + path, json=body)
            except (httpx.HTTPError, httpx.InvalidURL):
                self.witness.retried += 1
                self.up.clear()
                continue
            if response.status_code in (429, 503):
                time.sleep(0.01)
            elif response.is_success:
                return response.json()
            else:
                self.witness.conflicts.append(response.text)
                return None
        return None


def torment(folder: Path, spec: PolicySpec, *, kills: int, seed: int) -> Witness:
    """Run a service under load, and kill it so many times, after any number of answers."""
    witness, rng = Witness(), random.Random(seed)
    clients = [Client(number, witness) for number in range(CLIENTS)]
    options = ",".join(f"{name}={value}" for name, value in spec.options.items())
    flags = [f"--dim={DIM}", f"--policy={spec.name}", f"--options={options}"]
    config = folder / "service.toml"
    config.write_text("snapshot_every = 0.25\n")
    for client in clients:
        client.start()
    for kill in range(kills + 1):
        with process(folder / "data", f"--config={config}", *flags) as (child, url):
            for client in clients:
                client.url = url
                client.up.set()
            wait_for(witness, rng.randrange(60))
            time.sleep(rng.uniform(0.0, 0.02))
            if kill == kills:
                for client in clients:
                    client.over.set()
                    client.join()
            # Now and then it is asked to stop instead, and takes its snapshot.
            child.send_signal(signal.SIGTERM if rng.random() < 0.1 else signal.SIGKILL)
            child.wait()
            witness.kills += 1
    return witness


def wait_for(witness: Witness, more: int, *, seconds: float = 30.0) -> None:
    """Wait until the clients have heard of so many more successes."""
    wanted, end = witness.heard + more, time.monotonic() + seconds
    while witness.heard < wanted and time.monotonic() < end:
        time.sleep(0.001)


def verdict(folder: Path, spec: PolicySpec, witness: Witness) -> dict[str, int]:
    """Compare the journal and what is recovered from it with what the clients were told."""
    tenant = folder / "data" / "default"
    rows = sqlite3.connect(tenant / JOURNAL)
    decided = {ref: json.loads(body) for ref, body in rows.execute(
        "SELECT ref, body FROM journal WHERE kind = 'decision'")}  # fmt: skip
    pairs = rows.execute(
        "SELECT d.ref, json_extract(r.body, '$.value') FROM journal r JOIN journal d "
        "ON r.of = d.seq WHERE r.kind = 'reward'"
    ).fetchall()
    events = [ref for (ref,) in rows.execute("SELECT ref FROM journal WHERE kind = 'event'")]
    rewarded = dict(pairs)
    learnt = len(pairs) + len(events)
    state = recover(JournalReader(tenant / JOURNAL), Snapshots(tenant / SNAPSHOTS, spec))
    fresh = State(spec.make()).apply_all(JournalReader(tenant / JOURNAL).after(0))
    return {
        "kills": witness.kills,
        "acknowledged decisions": len(witness.decisions),
        "acknowledged rewards": len(witness.rewards),
        "acknowledged events": len(witness.events),
        "repeated requests": witness.retried,
        "lost decisions": sum(
            id not in decided or decided[id]["arm"] != arm for id, arm in witness.decisions.items()
        ),
        "lost rewards": sum(rewarded.get(id) != y for id, y in witness.rewards.items()),
        "lost events": len(witness.events - set(events)),
        "rewards journaled twice": len(pairs) - len(rewarded),
        "events journaled twice": len(events) - len(set(events)),
        "learnt too often or too rarely": abs(state.total.version - learnt),
        "refusals": len(witness.conflicts),
        "policy differs from the journal's": int(bits(state, folder) != bits(fresh, folder)),
        "policy differs from a serial replay": int(
            bits(state, folder)[0] != saved(serial(rows, spec), folder)
        ),
    }


def serial(rows: sqlite3.Connection, spec: PolicySpec) -> Policy:
    """Replay the journal with nothing but a policy: no state, no engine, no service."""
    policy = policies.make(spec.name, spec.dim, **spec.options)
    contexts: dict[int, tuple[str, list[float]]] = {}
    for seq, kind, user, of, text in rows.execute(
        "SELECT seq, kind, user, of, body FROM journal ORDER BY seq"
    ):
        body = json.loads(text)
        if kind == "decision":
            contexts[seq] = (user, body["x"])
        elif kind == "event":
            policy.learn(user, body["x"], body["value"])
        elif kind == "reward":
            policy.learn(*contexts[of], body["value"])
    return policy


def saved(policy: Policy, folder: Path) -> bytes:
    """Return a policy as bytes."""
    policy.save(folder / "serial.bits")
    return (folder / "serial.bits").read_bytes()


BROKEN = (
    "lost decisions",
    "lost rewards",
    "lost events",
    "rewards journaled twice",
    "events journaled twice",
    "learnt too often or too rarely",
    "refusals",
    "policy differs from the journal's",
    "policy differs from a serial replay",
)


def main() -> None:
    """Torment a service and tell how it went."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--policy", choices=SPECS, default="atlas")
    told = parser.parse_args()
    spec = SPECS[told.policy]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = verdict(folder, spec, torment(folder, spec, kills=told.kills, seed=told.seed))
    for what, count in found.items():
        sys.stdout.write(f"{what:40} {count}\n")
    sys.exit(any(found[what] for what in BROKEN))


if __name__ == "__main__":
    main()
