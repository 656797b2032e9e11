"""Tables of results, settings and policies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations
from statistics import fmean, median

from dyclu.sim.reports.document import NOTHING, Table
from dyclu.sim.reports.spread import Spread, by_setting, grouped, paired, policies_of, regrets
from dyclu.sim.runs import contestants
from dyclu.sim.runs.results import Result, Timing
from dyclu.sim.runs.stream import contestants as stream_contestants
from dyclu.sim.runs.stream.job import relative_reward_curve
from dyclu.sim.runs.stream.play import MILESTONES, milestones
from dyclu.sim.worlds.population import Population

NO_NEIGHBOURS = frozenset({"dlinucb", "dlinucb-sigma"})
"""Policies with several models per user, none of them shared: their segments have no neighbours."""

SHARES = tuple(f"after {share:.0%}" for share in MILESTONES)
"""Columns of `reward_table`."""

COMPARED = tuple((f"dyclu{width}", f"linucb{width}") for width in ("", stream_contestants.CONSTANT))
"""Pairs of policies in `lead_table`: DyClu and LinUCB with the same kind of width."""


def regret_table(results: Iterable[Result], published: Mapping[str, Mapping[str, float]]) -> Table:
    """Return the regret of every policy in every setting, with the paper's in brackets."""
    results = list(results)
    spreads, runs = regrets(results), by_setting(results)
    policies = policies_of(spreads)
    order = ("paper's order",) if published else ()
    rows = []
    for setting, row in spreads.items():
        theirs = published.get(setting, {})
        cells = [_regret_cell(row[policy], theirs.get(policy)) for policy in policies]
        order_cell = [_order_cell(runs[setting], theirs)] if published else []
        rows.append((setting, *cells, *order_cell))
    note = "Mean over seeds ± its standard error" + (
        "; in brackets the paper's figure, and ours by it. The last column says whether the "
        "policies come in the paper's order, or how many pairs of them do. A pair whose difference "
        "over the seeds could be chance, at the level of 5 % by Student's t, is undecided. "
        "Settings with equal tastes and periods are the same worlds with other noise."
        if published
        else "."
    )
    return Table(header=("setting", *policies, *order), rows=tuple(rows), note=note)


def reward_table(results: Iterable[Result], largest_norm: str = "") -> Table:
    """Return the reward on a stream divided by that of random choice, at `MILESTONES`.

    `largest_norm` explains the baseline `LargestNorm`, if it played.
    """
    rows = []
    for (_, policy), runs in grouped(results).items():
        passed = zip(*(milestones(relative_reward_curve(run)) for run in runs), strict=True)
        rows.append((policy, *(Spread.of(values).text(2) for values in passed)))
    note = (
        "Reward so far by what random choice is expected to have by then. "
        "Mean over seeds ± its standard error."
    )
    names = [name for name, *_ in rows]
    note += f" {largest_norm}" if largest_norm and "largest-norm" in names else ""
    return Table(header=("policy", *SHARES), rows=tuple(rows), note=note)


def lead_table(results: Iterable[Result]) -> Table:
    """Return the difference of DyClu and LinUCB on a stream for both widths, at `MILESTONES`."""
    runs = {policy: found for (_, policy), found in grouped(results).items()}
    measures = [partial(_reward_at, i) for i in range(len(MILESTONES))]
    played = [(a, b) for a, b in COMPARED if a in runs and b in runs]
    rows = [
        (f"{a} − {b}", *(_gap(paired(runs[a], runs[b], measure)) for measure in measures))
        for a, b in played
    ]
    note = (
        "Differences of the rewards above, of the same seed, which is the same stream for both: "
        "mean ± its standard error."
    )
    return Table(header=("difference", *SHARES), rows=tuple(rows), note=note)


def stream_contestants_table(names: Sequence[str]) -> Table:
    """Return width and options of policies on a stream."""
    rows = [
        (name, stream_contestants.width(name), _options_text(stream_contestants.options(name)))
        for name in names
    ]
    return Table(
        header=("policy", "width", "told, beside the dimension"),
        rows=tuple(rows),
        words=("width", "told, beside the dimension"),
        note="The width of a confidence interval is its factor times √(xᵀA⁻¹x): Eq. (2)'s, which "
        "grows with the noise and the data, or a constant. All estimate the noise, where they "
        "need it; t counts all events.",
    )


def contestants_table(names: Sequence[str], setting: Population) -> Table:
    """Return the options of policies in a simulated setting."""
    rows = [(name, _options_text(contestants.options(name, setting))) for name in names]
    return Table(
        header=("policy", "told, beside the dimension"),
        rows=tuple(rows),
        words=("told, beside the dimension",),
        note="In the first setting; the noise is each setting's own, what is not listed a "
        "policy's default. The oracle is told who follows what besides. dLinUCB's width_noise is "
        "σ² where its theory has σ, which comes nearer the published column: dlinucb-sigma plays "
        "with σ.",
    )


def choices_table(options: Mapping[str, object]) -> Table:
    """Return the options from which a stream was drawn."""
    rows = tuple((name, str(value)) for name, value in options.items())
    return Table(header=("option", "value"), rows=rows, words=("value",))


def detection_table(results: Iterable[Result]) -> Table:
    """Return alarms and neighbourhoods of the policies that look for changes or neighbours."""
    rows = [
        (setting, policy, *_detection_cells(policy, runs))
        for (setting, policy), runs in grouped(results).items()
        if policy != "oracle" and any(map(_has_detections, runs))
    ]
    measured = ("true alarms", "false alarms", "missed changes", "median delay")
    header = ("setting", "policy", *measured, "precision", "recall")
    known = [i for i in range(len(header)) if any(row[i] != NOTHING for row in rows)]
    return Table(
        header=tuple(header[i] for i in known),
        rows=tuple(tuple(row[i] for i in known) for row in rows),
        words=("policy",),
        note="Means over seeds. Delay in the user's own rounds, from the change to its alarm. "
        "Precision and recall of the neighbourhoods. Policies that look for neither changes nor "
        "neighbours, and the oracle, which is told of them, are left out.",
    )


def timing_table(results: Iterable[Result]) -> Table:
    """Return the speed of every policy."""
    runs_of: dict[str, list[Timing]] = {}
    for run in results:
        runs_of.setdefault(run.policy, []).append(run.timing)
    together = {"all": [timing for timings in runs_of.values() for timing in timings]}
    rows = [
        (policy, str(len(runs)), _speed(runs), f"{sum(run.seconds for run in runs):,.1f}")
        for policy, runs in (runs_of | together).items()
    ]
    return Table(
        header=("policy", "runs", "median rounds per second", "seconds in all"),
        rows=tuple(rows),
        note="Wall-clock time inside the policy, the one time each run was made, with whatever "
        "else the machine did then.",
    )


def settings_table(settings: Mapping[str, Population]) -> Table:
    """Return the options of the settings."""
    header = ("users", "parameters", "features", "arms", "rounds", "periods", "noise")
    return Table(
        header=("setting", *header, "separation"),
        rows=tuple((name, *_setting_cells(setting)) for name, setting in settings.items()),
        note="Users are served in turn; rounds and periods are each user's own. "
        "Without a number of parameters, every period has one of its own.",
    )


def _reward_at(milestone: int, run: Result) -> float:
    return milestones(relative_reward_curve(run))[milestone]


def _gap(gap: Spread | None) -> str:
    return NOTHING if gap is None else gap.text(2)


def _options_text(options: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value:g}" for name, value in options.items()) or NOTHING


def _regret_cell(ours: Spread, theirs: float | None) -> str:
    if theirs is None:
        return str(ours)
    return f"{ours}\n({theirs:,.0f}; {ours.mean / theirs:.2f}×)"


def _order_cell(ours: Mapping[str, Sequence[Result]], theirs: Mapping[str, float]) -> str:
    """Return how many pairs of policies have the paper's order, from differences per seed."""
    pairs = list(combinations([name for name in ours if name in theirs], 2))
    gaps = [(paired(ours[a], ours[b]), theirs[a] - theirs[b]) for a, b in pairs]
    decided = [(gap.mean, theirs_gap) for gap, theirs_gap in gaps if gap and gap.decided]
    same, open_ = sum(a * b > 0 for a, b in decided), len(pairs) - len(decided)
    if not pairs:
        return NOTHING
    if same == len(pairs):
        return "yes"
    if open_ == len(pairs):
        return "undecided"
    return f"{same} of {len(pairs)}" + (f"\n({open_} undecided)" if open_ else "")


def _detection_cells(policy: str, runs: Sequence[Result]) -> Iterator[str]:
    for name in ("alarms_true", "alarms_false", "alarms_missed", "median_delay"):
        yield _mean([getattr(run, name) for run in runs], digits=1)
    for name in ("precision", "recall"):
        known = [] if policy in NO_NEIGHBOURS else [getattr(run, name) for run in runs]
        yield _mean(known, digits=2)


def _has_detections(run: Result) -> bool:
    return bool(run.alarms_true or run.alarms_false or run.precision is not None)


def _mean(values: Iterable[float | None], *, digits: int) -> str:
    known = [value for value in values if value is not None]
    return f"{fmean(known):,.{digits}f}" if known else NOTHING


def _speed(runs: Iterable[Timing]) -> str:
    speeds = [run.rounds_per_second for run in runs if run.rounds_per_second is not None]
    return f"{median(speeds):,.0f}" if speeds else NOTHING


def _setting_cells(setting: Population) -> tuple[str, ...]:
    changes = setting.shortest < setting.rounds
    return (
        f"{setting.users:,}",
        NOTHING if setting.parameters is None else f"{setting.parameters:,}",
        str(setting.dim),
        f"{setting.offered:,} of {setting.arms:,}",
        f"{setting.rounds:,}",
        f"{setting.shortest:,}–{setting.longest:,}" if changes else "no changes",
        f"{setting.noise:g}",
        f"{setting.separation:g}",
    )
