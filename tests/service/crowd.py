"""Clients that ask for everything a service offers, and write down what they were told.

Each sends one request at a time, and repeats it until it is answered, whatever becomes of the
service meanwhile. So everything they were told is known, and nothing else is.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import httpx

DIM = 3
KEEP = 30.0
"""Seconds for which lines are kept. A client that was without a service for longer may learn that
its decision is not known any more; in time it must not."""

SHARED = 6
"""Users whom all clients of a tenant speak of, and nobody erases."""

REPEATED, IN_DOUBT = "repeated requests", "requests refused in doubt"
"""Names under which attempts are counted that were not answered, because the service was killed;
and those that a process refused which cannot tell what became of them."""

AGAIN = (401, 429, 503)
"""Refusals that pass; one because of the key comes from a service of somebody else."""


@dataclass
class Witness:
    """What the clients of one tenant were told.

    Attributes
    ----------
    adds : bool
        Whether rewards of a slot add up; each then has an id of its own.
    decisions : dict of str to tuple of str
        Arms of the slots by id.
    rewards : dict of str to dict of int to list of float
        What was accepted for each slot, by id of the decision.
    activated, events : set of str
        Ids of decisions that were activated, and of observations.
    late : dict of str to set of (int, str)
        Slots that had expired when their reward came, with the id of the reward, by decision.
    erased : set of str
        Ids of decisions and observations of users who were erased since.
    gone : set of str
        Names of users who were erased and never came back.
    wrong : list of str
        Answers that none of these requests should have had.
    unlearnt : int
        Rewards and observations of users who were erased since.
    answers : int
        How many there have been.
    counts : Counter of str
        How many of each sort.
    """

    adds: bool = False
    decisions: dict[str, tuple[str, ...]] = field(default_factory=dict)
    rewards: dict[str, dict[int, list[float]]] = field(default_factory=dict)
    activated: set[str] = field(default_factory=set)
    events: set[str] = field(default_factory=set)
    late: dict[str, set[tuple[int, str]]] = field(default_factory=dict)
    erased: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    unlearnt: int = 0
    answers: int = 0
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def doubts(self) -> int:
        """How many attempts may have been carried out although the answer did not say so."""
        return self.counts[REPEATED] + self.counts[IN_DOUBT]

    def heard(self, what: str) -> None:
        """Count an answer."""
        self.answers += 1
        self.counts[what] += 1

    def erase(self, ids: set[str]) -> None:
        """Expect nothing of these any more, but that they are gone.

        Other clients write into the same dicts meanwhile, so these are not walked through.
        """
        slots = sum(len(self.decisions[id]) for id in ids if id in self.decisions)
        self.unlearnt += slots + len(ids & self.events)
        told: dict[str, Any]
        for told in (self.decisions, self.rewards, self.late):
            for id in ids:
                told.pop(id, None)
        for some in (self.activated, self.events):
            some -= ids
        self.erased |= ids


class Client(threading.Thread):
    """Asks until it is over, with a `pause` between; `up` says that a service is at `url`."""

    def __init__(self, number: int, key: str, witness: Witness) -> None:
        super().__init__(daemon=True)
        self.rng = random.Random(number)
        self.name, self.witness = f"c{number}", witness
        self.headers = {"Authorization": f"Bearer {key}"}
        self.url, self.pause = "", 0.0
        self.up = threading.Event()
        self.over = threading.Event()
        self.gone = threading.Event()
        self.count = self.people = self.names = 0
        self.born = dict[str, float]()
        self.meet()

    def meet(self) -> None:
        """Begin with another user of one's own, of whom no other client speaks."""
        self.people += 1
        # No name is the beginning of another: they are looked for on the disk.
        self.own, self.ids = f"{self.name}-user-{self.people:06d}", set[str]()

    def run(self) -> None:
        with httpx.Client(timeout=5, headers=self.headers) as http:
            self.http = http
            try:
                while not self.over.wait(self.pause):
                    self.step()
            except Exception as error:
                self.witness.wrong.append(f"{self.name} gave up: {error!r}")
                raise

    def step(self) -> None:
        chance = self.rng.random()
        if chance < 0.15:
            self.observe(self.rng.randrange(1, 4))
        elif chance < 0.30:
            self.decide_batch(self.rng.randrange(2, 5))
        elif chance < 0.315 and self.ids:
            self.erase()
        else:
            self.decide()

    # --- what is asked -----------------------------------------------------------------------

    def decide(self) -> None:
        asked = self.question()
        active, slots = self.rng.random() < 0.8, self.rng.choice((0, 0, 1, 2, 3))
        more: dict[str, Any] = {"slots": slots} if slots else {}
        answer = self.insist("POST", "/v1/decisions", asked | more | {"active": active})
        if not self.fine(answer, "decision"):
            return
        id, told = asked["decision_id"], answer.json()
        arms = tuple(one["arm"] for one in told["slots"]) if slots else (told["arm"],)
        self.witness.decisions[id] = arms
        if not active and not self.activate(id):
            return
        values = {slot: self.worth(asked, arm) for slot, arm in enumerate(arms, 1)}
        if not slots and self.rng.random() < 0.8:
            self.give(id, values, {"value": values[1]})
        elif slots and self.rng.random() < 0.4:
            self.give(id, values, {"values": {str(slot): y for slot, y in values.items()}})
        elif slots:
            self.give_one_by_one(id, values)

    def give_one_by_one(self, id: str, values: dict[int, float]) -> None:
        """Reward some slots, in any order; where rewards add up, some of them again."""
        for slot in self.rng.sample(sorted(values), self.rng.randrange(len(values) + 1)):
            for _ in range(self.rng.randrange(1, 3) if self.witness.adds else 1):
                self.give(id, {slot: values[slot]}, {"slot": slot, "value": values[slot]})
        if values and self.rng.random() < 0.2 and not self.witness.adds:
            # All at once: those that are known are repeated, the others are new.
            self.give(id, values, {"values": {str(slot): y for slot, y in values.items()}})

    def give(self, id: str, values: dict[int, float], body: dict[str, Any]) -> None:
        """Send rewards and write down what became of them; now and then try another value."""
        name = self.new_name()
        more = {"reward_id": name} if self.witness.adds else {}
        path = f"/v1/decisions/{id}/reward"
        answer = self.insist("POST", path, body | more)
        if answer.status_code == 410 or self.forgotten(id, answer.status_code):
            known = self.witness.rewards.get(id, {})
            late = {(slot, name) for slot in values if self.witness.adds or slot not in known}
            self.witness.late.setdefault(id, set()).update(late)
        elif self.fine(answer, "reward"):
            self.note(id, values)
            if self.rng.random() < 0.1:
                slot, value = next(iter(values.items()))
                other = {"slot": slot, "value": value + 1} | more
                if (answer := self.insist("POST", path, other)).status_code != 409:
                    self.witness.wrong.append(f"second value: {answer.text}")

    def note(self, id: str, values: dict[int, float]) -> None:
        """Write down rewards that were accepted."""
        known = self.witness.rewards.setdefault(id, {})
        for slot, value in values.items():
            if self.witness.adds:
                known.setdefault(slot, []).append(value)
            else:
                known[slot] = [value]

    def new_name(self) -> str:
        """Return the id of another reward."""
        self.names += 1
        return f"{self.name}-reward-{self.names}"

    def activate(self, id: str) -> bool:
        """Tell whether a decision counts now; some are never shown to anybody."""
        if self.rng.random() < 0.3:
            return False
        answer = self.insist("POST", f"/v1/decisions/{id}/activate")
        if answer.status_code == 410 or self.forgotten(id, answer.status_code):
            return False
        if self.fine(answer, "activation"):
            self.witness.activated.add(id)
        return True

    def decide_batch(self, some: int) -> None:
        asked = [self.question() for _ in range(some)]
        answer = self.insist("POST", "/v1/decisions:batch", {"decisions": asked})
        values = {}
        for one, told in zip(asked, answer.json()["results"], strict=True):
            if not self.fine_item(told, "decided", "decision in a batch"):
                continue
            self.witness.decisions[one["decision_id"]] = (told["arm"],)
            values[one["decision_id"]] = self.worth(one, told["arm"])
        if not values:
            return
        rows: list[dict[str, Any]] = [
            {"decision_id": id, "value": value, "reward_id": self.new_name()}
            for id, value in values.items()
        ]
        answer = self.insist("POST", "/v1/rewards:batch", {"rewards": rows})
        for row, told in zip(rows, answer.json()["results"], strict=True):
            id = row["decision_id"]
            if told.get("http") == 410 or self.forgotten(id, told.get("http", 0)):
                self.witness.late.setdefault(id, set()).add((1, row["reward_id"]))
            elif self.fine_item(told, "rewarded", "reward in a batch"):
                self.note(id, {1: row["value"]})

    def observe(self, some: int) -> None:
        rows: list[dict[str, Any]] = []
        for _ in range(some):
            user, id = self.about()
            x = self.features()
            rows.append({"user": user, "features": x, "reward": x[0], "event_id": id})
        answer = self.insist("POST", "/v1/observations", {"observations": rows})
        for row, told in zip(rows, answer.json()["results"], strict=True):
            if self.fine_item(told, "observed", "observation"):
                self.witness.events.add(row["event_id"])

    def erase(self) -> None:
        before = self.witness.doubts
        known = self.ids & (self.witness.decisions.keys() | self.witness.events)
        answer = self.insist("DELETE", f"/v1/users/{self.own}")
        again = self.witness.doubts > before
        # The first attempt may have been carried out, and then there is nobody to be erased.
        if answer.status_code == 404 and known and not again:
            self.witness.wrong.append(f"lost before it was erased: {self.own}")
        if answer.is_success and not answer.json()["exact"]:
            self.witness.counts["erasures of which a share stays"] += 1
        if answer.status_code == 404 or self.fine(answer, "erasure"):
            self.witness.erase(self.ids)
            if self.rng.random() < 0.3:
                self.ids = set[str]()
            else:
                self.witness.gone.add(self.own)
                self.meet()

    # --- how it is asked ---------------------------------------------------------------------

    def about(self) -> tuple[str, str]:
        """Return a user and a new id."""
        self.count += 1
        id = f"{self.name}-{self.count}"
        if self.rng.random() < 0.7:
            return f"u{self.rng.randrange(SHARED)}", id
        self.ids.add(id)
        return self.own, id

    def forgotten(self, id: str, status: int) -> bool:
        """Tell whether a decision is unknown, as it may be once its line is no longer kept."""
        ago = time.monotonic() - self.born[id]
        if status == 404 and ago > KEEP:
            self.witness.counts["rewards of decisions no longer kept"] += 1
            return True
        if status == 404:
            self.witness.wrong.append(f"{id} was forgotten {ago:.1f} s after it was asked for")
        return False

    def features(self) -> list[float]:
        return [round(self.rng.uniform(-1, 1), 3) for _ in range(DIM)]

    def question(self) -> dict[str, Any]:
        user, id = self.about()
        self.born[id] = time.monotonic()
        arms = [{"id": str(i), "features": self.features()} for i in range(4)]
        return {"user": user, "arms": arms, "decision_id": id}

    def worth(self, asked: dict[str, Any], arm: str) -> float:
        return float(round(asked["arms"][int(arm)]["features"][0] + self.rng.gauss(0, 0.1), 4))

    def fine(self, answer: httpx.Response, what: str) -> bool:
        if answer.is_success:
            self.witness.heard(what)
        else:
            ago = time.monotonic() - self.asked
            said = f"{what}, {ago:.1f} s after it was first asked"
            self.witness.wrong.append(f"{answer.request.url.path}, {said}: {answer.text}")
        return answer.is_success

    def fine_item(self, told: dict[str, Any], status: str, what: str) -> bool:
        if told["status"] == status:
            self.witness.heard(what)
        else:
            self.witness.wrong.append(f"{what}: {told}")
        return bool(told["status"] == status)

    def insist(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """Send until answered; whether an attempt without answer was carried out is not known."""
        self.asked = time.monotonic()
        while not self.gone.is_set():
            self.up.wait(0.5)
            try:
                answer = self.http.request(method, self.url + path, json=body)
            except (httpx.HTTPError, httpx.InvalidURL):
                self.witness.counts[REPEATED] += 1
                self.up.clear()
                continue
            if not _passes(answer):
                return answer
            # A process that passed it on does not know what became of it.
            self.witness.counts[IN_DOUBT] += _in_doubt(answer)
            time.sleep(0.01)
        raise SystemExit


def _in_doubt(answer: httpx.Response) -> bool:
    """Tell whether a request that was refused for now may have been carried out."""
    return answer.status_code == 503 and answer.json()["error"]["code"] == "unavailable"


def _passes(answer: httpx.Response) -> bool:
    """Tell whether all of a request, or a part of it, may succeed if it is sent again."""
    if answer.status_code in AGAIN:
        return True
    results = answer.json().get("results", []) if answer.is_success else []
    return any(told.get("http") in AGAIN for told in results)
