"""`dyclu.sim.runs.measures`: alarms matched with changes, curves, summaries of hand-made runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dyclu.sim.runs.measures import Detections, detections, regret, summary
from dyclu.sim.runs.play import Run
from dyclu.sim.worlds.population import Population, World

Times = Sequence[int]

TWENTY = st.sets(st.integers(0, 19), max_size=8)


def run_of(rounds: int, *users: tuple[Times, Times]) -> Run:
    """Return a run of users given as (times of change, times of alarm), in their own rounds."""
    truth, alarms = np.zeros((2, len(users), rounds), dtype=np.intp)
    for user, (changes, rung) in enumerate(users):
        truth[user, list(changes)] = 1
        alarms[user, list(rung)] = 1
    nothing = np.full(alarms.size, np.nan)
    return Run(
        world=_world(np.cumsum(truth, axis=1)),
        arm=np.zeros(alarms.size, dtype=np.intp),
        reward=np.zeros(alarms.size),
        regret=np.ones(alarms.size),
        surprised=np.zeros(alarms.size, dtype=np.bool_),
        changed=alarms.T.ravel().astype(np.bool_),
        error=nothing,
        precision=nothing,
        recall=nothing,
        seconds=np.full(alarms.size, 0.25),
        warnings=("Seen this.",),
    )


def _world(truth: np.ndarray[tuple[int, int], np.dtype[np.intp]]) -> World:
    users, rounds = truth.shape
    seed = np.random.SeedSequence(0)
    return World(
        setting=Population(users=users, dim=1, rounds=rounds),
        table=np.ones((1, 1)),
        parameters=np.ones((int(truth.max()) + 1, 1)),
        truth=truth,
        pools=seed,
        noises=seed,
    )


@pytest.mark.parametrize(
    ("changes", "alarms", "expected"),
    [
        ([], [], Detections(0, 0, 0, ())),
        ([], [3, 9], Detections(0, 2, 0, ())),
        ([5], [4], Detections(0, 1, 1, ())),  # one round early is no detection
        ([5], [5], Detections(1, 0, 0, (0,))),  # at the very round of the change
        ([5], [7, 8], Detections(1, 1, 0, (2,))),  # only the first alarm counts
        ([5], [2, 19], Detections(1, 1, 0, (14,))),  # as late as the last round
        ([5, 10], [10], Detections(1, 0, 1, (0,))),  # belongs to the second change
        ([5, 10], [9, 12], Detections(2, 0, 0, (4, 2))),
        ([5, 10], [], Detections(0, 0, 2, ())),
        ([5, 10], [1, 6, 7, 11, 12, 13], Detections(2, 4, 0, (1, 1))),
    ],
)
def test_alarms_of_one_user(changes: Times, alarms: Times, expected: Detections) -> None:
    assert detections(run_of(20, (changes, alarms))) == expected


def test_alarms_of_other_users_do_not_count() -> None:
    run = run_of(20, ([5], []), ([], [6]), ([8], [10]))
    assert detections(run) == Detections(1, 1, 1, (2,))


@given(
    st.lists(st.tuples(TWENTY.map(lambda changes: changes - {0}), TWENTY), min_size=1, max_size=4)
)
@settings(deadline=None)
def test_alarms_match_the_definition(users: list[tuple[set[int], set[int]]]) -> None:
    """The definition: look for an alarm from each change up to the next."""
    delays = []
    for changes, alarms in users:
        for change, following in pairwise([*sorted(changes), 20]):
            delays += [alarm - change for alarm in sorted(alarms) if change <= alarm < following][
                :1
            ]
    found = detections(run_of(20, *((sorted(c), sorted(a)) for c, a in users)))
    assert found.delays == tuple(delays)
    assert found.true == len(delays)
    assert found.true + found.false == sum(len(alarms) for _, alarms in users)
    assert found.true + found.missed == sum(len(changes) for changes, _ in users)


def test_regret_accumulates() -> None:
    run = replace(run_of(4, ([], [])), regret=np.array([0.5, 0.0, 1.0, 0.25]))
    assert regret(run).tolist() == [0.5, 0.5, 1.5, 1.75]


def test_summary_by_hand() -> None:
    run = replace(
        run_of(4, ([1, 3], [2, 3]), ([2], [0])),
        error=np.array([2.0, 1.0, np.nan, 0.0, np.nan, np.nan, np.nan, np.nan]),
        precision=np.array([np.nan, 0.5, 1.0, *[np.nan] * 5]),
        recall=np.array([0.25, *[np.nan] * 7]),
    )
    assert asdict(summary(run)) == {
        "regret": 8.0,
        "alarms_true": 2,
        "alarms_false": 1,
        "alarms_missed": 1,
        "median_delay": 0.5,
        "precision": 0.75,
        "recall": 0.25,
        "parameter_error": 1.0,
        "seconds": 2.0,
        "rounds_per_second": 4.0,
        "warnings": ("Seen this.",),
    }


def test_one_late_alarm_does_not_move_the_median() -> None:
    assert summary(run_of(20, ([1, 3, 5], [1, 4, 18]))).median_delay == 1.0


def test_what_was_not_measured_is_none() -> None:
    found = summary(replace(run_of(4, ([], [])), seconds=np.zeros(4)))
    assert found.median_delay is found.precision is found.recall is None
    assert found.parameter_error is found.rounds_per_second is None


def test_a_summary_survives_json() -> None:
    found = asdict(summary(run_of(20, ([5], [6, 7]))))
    assert json.loads(json.dumps(found)) == found | {"warnings": ["Seen this."]}
