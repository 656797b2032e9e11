"""`dyclu.service.engine.waiting.deadlines`: whatever a wall clock does, waits have their length."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from dyclu.service.engine.lines import MICRO
from dyclu.service.engine.state import pending_table
from dyclu.service.engine.waiting.deadlines import Deadlines

WAIT = 60 * MICRO

passing = st.sampled_from([0, MICRO, 30 * MICRO, WAIT - 1, WAIT, 90 * MICRO])
wrongs = st.sampled_from([0, 30 * MICRO, -30 * MICRO, 10**13, -(10**13)])
steps = st.one_of(
    st.tuples(st.just("decide"), st.just(0)),
    st.tuples(st.just("pass"), passing),
    st.tuples(st.just("set"), wrongs),
    st.tuples(st.just("restart"), passing),
)


class Life:
    """A service's time: true time, a wall clock that is wrong by some, a start now and then."""

    def __init__(self) -> None:
        self.now, self.wrong, self.number = 10**15, 0, 0
        self.honest = True
        self.made: dict[int, int] = {}
        self.pending = pending_table()
        self.start()

    def start(self) -> None:
        self.booted, self.here = self.now, set[int]()
        self.deadlines = Deadlines(lambda: (self.now - self.booted) / MICRO)
        self.deadlines.resume(self.pending, wall=self.now + self.wrong, longest=WAIT)

    def go(self, step: str, amount: int) -> None:
        match step:
            case "pass":
                self.now += amount
            case "set":
                self.wrong = amount
                self.honest = self.honest and amount == 0
            case "decide":
                self.decide()
            case _:
                self.now += amount
                self.start()

    def decide(self) -> None:
        self.number += 1
        until = self.now + self.wrong + WAIT
        self.pending.add(self.number, until=until, wait=WAIT, active=True)
        self.made[self.number] = self.now
        self.here.add(self.number)
        self.deadlines.grant(self.number, WAIT)

    def end(self) -> list[int]:
        over = self.deadlines.overdue(most=1000)
        assert all(self.deadlines.passed(seq) for seq in over)
        for seq in over:
            self.pending.remove(seq)
            self.deadlines.drop(seq)
        return over


@settings(max_examples=500)
@given(st.lists(steps, min_size=4, max_size=20))
def test_no_decision_ends_early_while_its_process_runs_and_none_ends_late(
    lived: list[tuple[str, int]],
) -> None:
    life = Life()
    for step in lived:
        life.go(*step)
        for seq in life.end():
            if seq in life.here or life.honest:
                assert life.now >= life.made[seq] + WAIT
        for seq in life.pending:
            assert life.now < max(life.made[seq], life.booted) + WAIT
            if life.honest:
                assert life.now < life.made[seq] + WAIT
