"""`Flights`: lines on their way to the disk, of which the state knows nothing yet."""

from __future__ import annotations

from dyclu.service.engine.records import Activation, Body, Decision, Expiry, Line, Reward, line


class InFlight(Exception):  # noqa: N818 - not an error
    """It is on its way to the disk; ask again when it has arrived."""


class Flights:
    """Gives lines their numbers, and knows whose ids, ends and names are taken meanwhile.

    Attributes
    ----------
    next : int
        Number of the next line.
    decisions : int
        How many of the lines are decisions.
    newcomers : set of str
        Users of these lines whom the state has never seen.
    suspects : set of (str, str)
        Ids, with their kinds, that turned out to be taken: these are to be looked up.

    Examples
    --------
    >>> from dyclu.service.engine.records import Event
    >>> flights = Flights(last=6)
    >>> made = flights.take_off(0, Event([1.0], 0.5), ref="e-1", user="ana")
    >>> made.seq, flights.next
    (7, 8)
    >>> flights.check_id("e-1", "event")
    Traceback (most recent call last):
        ...
    dyclu.service.engine.flights.InFlight
    """

    def __init__(self, *, last: int) -> None:
        self.next = last + 1
        self.decisions = 0
        self.newcomers: set[str] = set()
        self.suspects: set[tuple[str, str]] = set()
        self._ids: set[tuple[str, str]] = set()
        self._ends: set[int] = set()
        self._erased: set[str] = set()

    def take_off(
        self,
        at: int,
        body: Body,
        *,
        ref: str | None = None,
        user: str | None = None,
        of: int | None = None,
    ) -> Line:
        """Return a line with the next number, which is from now on in flight."""
        made = line(self.next, at, body, ref=ref, user=user, of=of)
        self.next += 1
        if ref is not None:
            self._ids.add((ref, made.kind))
        self._ends.update(_ends_of(made))
        self.decisions += isinstance(body, Decision)
        return made

    def land(self, made: Line) -> None:
        """Take note that a line has arrived."""
        self._ends.difference_update(_ends_of(made))
        if made.ref is not None:
            self._ids.discard((made.ref, made.kind))
        if made.user is not None:
            self.newcomers.discard(made.user)
        self.decisions -= isinstance(made.body, Decision)

    def skip(self, made: Line) -> None:
        """Leave out the number of a line that is on the disk and was not in flight."""
        self.next = max(self.next, made.seq + 1)

    def turn_back(self, made: Line) -> None:
        """Take note that the journal left a line out, as its id or its decision's end is taken."""
        self.land(made)
        if made.ref is not None:
            self.suspects.add((made.ref, made.kind))

    def check_id(self, id: str, kind: str) -> None:
        """Ask to wait if this id is in flight."""
        if (id, kind) in self._ids:
            raise InFlight

    def ending(self, seq: int) -> bool:
        """Tell whether something that changes this decision is in flight."""
        return seq in self._ends

    def leaving(self, user: str) -> bool:
        """Tell whether this user is being erased."""
        return user in self._erased

    def check_stays(self, user: str) -> None:
        """Ask to wait if this user is being erased."""
        if self.leaving(user):
            raise InFlight

    def erase(self, user: str) -> None:
        """Leave a user alone until they are `forgotten`."""
        self.check_stays(user)
        self._erased.add(user)

    def forgotten(self, user: str) -> None:
        """Take note that a user's erasure is complete."""
        self._erased.discard(user)


def _ends_of(made: Line) -> list[int]:
    """Return the decisions that a line changes."""
    match made.body:
        case Reward() | Activation():
            return [made.of or 0]
        case Expiry(decisions=decisions):
            return decisions
        case _:
            return []
