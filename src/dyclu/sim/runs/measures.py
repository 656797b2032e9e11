"""Measures of a run: pure functions of a `Run`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import chain

import numpy as np

from dyclu.display import html_table
from dyclu.sim.runs.play import Run
from dyclu.validation import FloatArray, Ids


@dataclass(frozen=True, slots=True)
class Detections:
    """The alarms of a run, compared with the true changes.

    Attributes
    ----------
    true : int
        Changes that were detected.
    false : int
        Alarms that detected no change.
    missed : int
        Changes without an alarm before the user's next change, or before the end.
    delays : tuple of int
        For each detected change, the rounds of the user from the change to the alarm; 0 if the
        first reward after the change raised it.
    """

    true: int
    false: int
    missed: int
    delays: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A run in plain values; None where there is nothing to measure.

    Attributes
    ----------
    regret : float
        Accumulated over the run.
    alarms_true, alarms_false, alarms_missed : int
        As in `Detections`.
    median_delay : float or None
        Median of the delays, in rounds of the user.
    precision, recall, parameter_error : float or None
        Means of `Run.precision`, `Run.recall` and `Run.error` over all rounds that have them.
    seconds : float
        Time inside the policy.
    rounds_per_second : float or None
        Rounds divided by that time.
    warnings : tuple of str
        The policy's warnings at the end of the run.
    """

    regret: float
    alarms_true: int
    alarms_false: int
    alarms_missed: int
    median_delay: float | None
    precision: float | None
    recall: float | None
    parameter_error: float | None
    seconds: float
    rounds_per_second: float | None
    warnings: tuple[str, ...] = ()

    def _repr_html_(self) -> str:
        """Return the summary as notebooks show it, warnings below the table."""
        names = [field.name for field in fields(self) if field.name != "warnings"]
        rows = [(name.replace("_", " "), getattr(self, name)) for name in names]
        return html_table("Summary of a run", rows, note=" ".join(self.warnings))


def regret(run: Run) -> FloatArray:
    """Return the accumulated regret after each round, ``R_t = Σ_{s ≤ t} max xᵀθ_s − x_sᵀθ_s``."""
    return np.cumsum(run.regret)


def detections(run: Run) -> Detections:
    """Match alarms with changes, user by user.

    The first alarm in ``[change, next change)`` detects the change; every other alarm is false.
    """
    users = range(run.world.setting.users)
    alarms, changes = _alarms(run), [run.world.changes(user) for user in users]
    found = tuple(chain.from_iterable(delays(alarms[user], changes[user]) for user in users))
    return Detections(
        true=len(found),
        false=int(run.changed.sum()) - len(found),
        missed=sum(map(len, changes)) - len(found),
        delays=found,
    )


def _alarms(run: Run) -> list[Ids]:
    """Return the rounds of each user at which an alarm was raised."""
    served, users = run.world.served, run.world.setting.users
    # A stable sort keeps the order of each user's rounds.
    rounds = np.argsort(served, kind="stable")
    ends = np.cumsum(np.bincount(served, minlength=users))[:-1]
    return [np.flatnonzero(own) for own in np.split(run.changed[rounds], ends)]


def delays(alarms: Ids, changes: Ids) -> list[int]:
    """Return the delay of each detected change of one user.

    >>> delays(np.array([3, 12, 14, 30]), np.array([10, 20, 30]))
    [2, 0]
    """
    period, first = np.unique(np.searchsorted(changes, alarms, side="right"), return_index=True)
    # Period 0 is before the first change: an alarm in it detects no change.
    detected = period > 0
    found: list[int] = (alarms[first[detected]] - changes[period[detected] - 1]).tolist()
    return found


def summary(run: Run) -> Summary:
    """Return the run in plain values, ready for `dataclasses.asdict` and JSON."""
    found = detections(run)
    seconds = float(run.seconds.sum())
    return Summary(
        regret=float(run.regret.sum()),
        alarms_true=found.true,
        alarms_false=found.false,
        alarms_missed=found.missed,
        median_delay=float(np.median(found.delays)) if found.delays else None,
        precision=_mean(run.precision),
        recall=_mean(run.recall),
        parameter_error=_mean(run.error),
        seconds=seconds,
        rounds_per_second=len(run) / seconds if seconds else None,
        warnings=run.warnings,
    )


def _mean(values: FloatArray) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None
