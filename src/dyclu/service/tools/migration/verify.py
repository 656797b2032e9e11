"""Compare what was moved with what was there: every user's history, and what is learnt from it.

Both sides are read line by line, the journal in its order and the tables partition by partition.
The policy of a partition must be the same, bit for bit, whether it is the fold of the new lines or
learns the rewards of its users from the old ones, one after the other.
"""

from __future__ import annotations

from array import array
from collections import Counter
from hashlib import blake2b
from pathlib import Path

import numpy as np

from dyclu.errors import FileError
from dyclu.policy import Policy
from dyclu.service.cluster.places import partition_of
from dyclu.service.engine.lines import (
    EventBody,
    EvictionBody,
    ExpiryBody,
    Line,
    RewardBody,
    encode,
)
from dyclu.service.engine.state import UNLEARNABLE


class Histories:
    """A digest of everything about each user, in order; lines are counted by kind.

    Attributes
    ----------
    users : dict of str to bytes
        The digests.
    kinds : Counter of str
        How many lines are about users, by kind; of expiries, how many decisions.
    """

    def __init__(self, last: int) -> None:
        self.users: dict[str, bytes] = {}
        self.kinds = Counter[str]()
        self._names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._whose = array("L", [0]) * (last + 1)

    def add(self, line: Line) -> None:
        """Add a line."""
        match line.body:
            case ExpiryBody(decisions=expired):
                for seq in expired:
                    if (user := self._user(seq)) is not None:
                        self._note(user, "expiry", b"%d %d %d" % (line.seq, line.at, seq))
            case _:
                user = self._user(line.of or 0) if line.user is None else line.user
                if user is not None:
                    self._note(user, line.kind, encode(line))
                    if line.kind == "decision":
                        self._remember(line.seq, user)

    def _user(self, decision: int) -> str | None:
        number = self._whose[decision]
        return self._names[number - 1] if number else None

    def _remember(self, decision: int, user: str) -> None:
        if user not in self._numbers:
            self._names.append(user)
            self._numbers[user] = len(self._names)
        self._whose[decision] = self._numbers[user]

    def _note(self, user: str, kind: str, told: bytes) -> None:
        self.users[user] = blake2b(self.users.get(user, b"") + told, digest_size=16).digest()
        self.kinds[kind] += 1


class Serial:
    """Policies that learn the rewards of a journal in its order, each those of its partition."""

    def __init__(self, policies: list[Policy], *, after: int) -> None:
        self.policies, self._after = policies, after

    def add(self, line: Line) -> None:
        """Learn what a line tells."""
        if line.seq <= self._after:
            return
        match line.body:
            case EventBody(x=x, value=value):
                self._learn(line.user or "", x, value)
            case RewardBody(value=value):
                if line.about is not None:
                    self._learn(line.about.user, line.about.x, value)
            case EvictionBody():
                self._of(line.user or "").forget(line.user or "")

    def _of(self, user: str) -> Policy:
        return self.policies[partition_of(user, len(self.policies))]

    def _learn(self, user: str, x: list[float], value: float) -> None:
        try:
            self._of(user).learn(user, np.array(x), value)
        except UNLEARNABLE:
            return  # a state leaves it out, too


def check_histories(tenant: str, before: Histories, after: Histories) -> None:
    """Refuse if a line is missing, was changed, or came in another order for its user."""
    if before.kinds != after.kinds:
        raise FileError(
            f"{tenant} had {_told(before.kinds)}, the database has {_told(after.kinds)}; nothing "
            "was changed"
        )
    wrong = [user for user, found in before.users.items() if after.users.get(user) != found]
    if wrong or len(before.users) != len(after.users):
        raise FileError(
            f"the histories of {len(wrong)} users of {tenant} differ, such as that of "
            f"{wrong[:1]}; nothing was changed"
        )


def _told(kinds: Counter[str]) -> str:
    return ", ".join(f"{count} × {kind}" for kind, count in sorted(kinds.items()))


def check_folds(tenant: str, wrong: list[int]) -> None:
    """Refuse if the fold of a partition was not what a serial learning gives."""
    if wrong:
        raise FileError(
            f"what partitions {wrong} of {tenant} have learnt differs from a serial learning; "
            "nothing was changed"
        )


def saved(policy: Policy, scratch: Path) -> bytes:
    """Return a policy as bytes."""
    policy.save(scratch / "policy")
    return (scratch / "policy").read_bytes()
