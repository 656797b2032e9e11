"""`LinesInFlight`: lines with a number that are not on disk, nor in the state, yet."""

from __future__ import annotations

from collections import Counter

from dyclu.service.engine.lines import (
    About,
    ActivationBody,
    ArrivalBody,
    Body,
    DecisionBody,
    ExpiryBody,
    Line,
    RewardBody,
    make_line,
)


class MustWait(Exception):  # noqa: N818 - not an error
    """The answer depends on a line that is not on disk yet; ask again when it is."""


class LinesInFlight:
    """Numbers lines, and knows which ids, decisions and users they are about.

    Attributes
    ----------
    next : int
        Number of the next line.
    decisions : int
        How many of the lines are decisions.
    taken_ids : set of (str, str)
        Ids, with their kinds, that the journal rejected because they are in use: look them up.

    Examples
    --------
    >>> from dyclu.service.engine.lines import EventBody
    >>> in_flight = LinesInFlight(last=6)
    >>> line = in_flight.add(0, EventBody([1.0], 0.5), ref="e-1", user="ana")
    >>> line.seq, in_flight.next
    (7, 8)
    >>> in_flight.check_id("e-1", "event")
    Traceback (most recent call last):
        ...
    dyclu.service.engine.in_flight.MustWait
    """

    def __init__(self, *, last: int) -> None:
        self.next = last + 1
        self.decisions = 0
        self.taken_ids: set[tuple[str, str]] = set()
        self._ids: set[tuple[str, str]] = set()
        self._decisions_changed: Counter[int] = Counter()
        self._users_erased: set[str] = set()

    def add(
        self,
        at: int,
        body: Body,
        *,
        ref: str | None = None,
        user: str | None = None,
        of: int | None = None,
        about: About | None = None,
    ) -> Line:
        """Return a line with the next number; it is in flight until `remove` or `reject`."""
        line = make_line(self.next, at, body, ref=ref, user=user, of=of, about=about)
        self.next += 1
        if ref is not None:
            self._ids.add((ref, line.kind))
        self._decisions_changed.update(decisions_changed_by(line))
        self.decisions += isinstance(body, DecisionBody)
        return line

    def remove(self, line: Line) -> None:
        """Remove a line that is on disk."""
        for seq in decisions_changed_by(line):
            self._decisions_changed[seq] -= 1
            if self._decisions_changed[seq] <= 0:
                del self._decisions_changed[seq]
        if line.ref is not None:
            self._ids.discard((line.ref, line.kind))
        self.decisions -= isinstance(line.body, DecisionBody)

    def dropped(self, *, last: int) -> LinesInFlight:
        """Return what is left if no line in flight is written: users who are being erased."""
        left = LinesInFlight(last=last)
        left._users_erased = self._users_erased
        return left

    def skip(self, line: Line) -> None:
        """Do not use the number of a line that is on disk and was not in flight."""
        self.next = max(self.next, line.seq + 1)

    def reject(self, line: Line) -> None:
        """Remove a line that the journal left out: its id is in use, or its decision has ended."""
        self.remove(line)
        # Names of arrivals are always looked up.
        if line.ref is not None and not isinstance(line.body, ArrivalBody):
            self.taken_ids.add((line.ref, line.kind))

    def check_id(self, id: str, kind: str) -> None:
        """Raise `MustWait` if a line with this id is in flight."""
        if (id, kind) in self._ids:
            raise MustWait

    def changes_decision(self, seq: int) -> bool:
        """Return whether a line that rewards, activates or expires this decision is in flight."""
        return seq in self._decisions_changed

    @property
    def erases_anybody(self) -> bool:
        """Whether any user is being erased."""
        return bool(self._users_erased)

    def erases(self, user: str) -> bool:
        """Return whether this user is being erased."""
        return user in self._users_erased

    def check_user(self, user: str) -> None:
        """Raise `MustWait` if this user is being erased."""
        if self.erases(user):
            raise MustWait

    def begin_erasure(self, user: str) -> None:
        """Accept no line about a user until `end_erasure`."""
        self.check_user(user)
        self._users_erased.add(user)

    def end_erasure(self, user: str) -> None:
        """Accept lines about a user again."""
        self._users_erased.discard(user)


def decisions_changed_by(line: Line) -> list[int]:
    """Return the numbers of the decisions that a line rewards, activates or expires."""
    match line.body:
        case RewardBody() | ArrivalBody() | ActivationBody():
            return [line.of or 0]
        case ExpiryBody(decisions=decisions):
            return decisions
        case _:
            return []
