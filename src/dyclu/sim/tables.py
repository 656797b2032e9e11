"""Results in tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from statistics import fmean, median

from dyclu.sim import listeners
from dyclu.sim.document import NOTHING, Table
from dyclu.sim.lastfm_job import relative_reward
from dyclu.sim.listening import MILESTONES, milestones
from dyclu.sim.population import Population
from dyclu.sim.records import Result, Timing
from dyclu.sim.spread import Spread, grouped, policies_of, regrets

LARGEST_NORM_NOTE = (
    "largest-norm learns nothing and always takes the longest arm. An artist's features are the "
    "longer the more tags it got, and artists with many tags are the ones that people tag: "
    "popularity leaks into the length, so only what exceeds this line was learnt about anybody."
)
"""What the baseline of the longest arm means."""


def regret_table(results: Iterable[Result], published: Mapping[str, Mapping[str, float]]) -> Table:
    """Return the regret of every policy in every setting, the paper's in brackets."""
    spreads = regrets(results)
    policies = policies_of(spreads)
    order = ("order",) if published else ()
    rows = [
        (
            setting,
            *(_beside(row[policy], published.get(setting, {}).get(policy)) for policy in policies),
            *([_agreement(row, published.get(setting, {}))] if published else []),
        )
        for setting, row in spreads.items()
    ]
    note = "Mean over seeds ± its standard error" + (
        "; in brackets the paper's figure. The last column says whether the policies come in the "
        "paper's order, or how many pairs of them do."
        if published
        else "."
    )
    return Table(header=("setting", *policies, *order), rows=tuple(rows), note=note)


def ratio_table(results: Iterable[Result], published: Mapping[str, Mapping[str, float]]) -> Table:
    """Return our mean regret by the paper's."""
    spreads = regrets(results)
    policies = [
        name for name in policies_of(spreads) if any(name in row for row in published.values())
    ]
    rows = [
        (setting, *(f"{spreads[setting][name].mean / row[name]:.2f}" for name in policies))
        for setting, row in published.items()
    ]
    return Table(header=("setting", *policies), rows=tuple(rows), note="1 is the paper's regret.")


def reward_table(results: Iterable[Result]) -> Table:
    """Return the reward on Last.fm by that of random choice, at parts of the stream."""
    shares = [f"after {share:.0%}" for share in MILESTONES]
    rows = []
    for (_, policy), runs in grouped(results).items():
        passed = zip(*(milestones(relative_reward(run)) for run in runs), strict=True)
        rows.append((policy, *(str(Spread.of(values)) for values in passed)))
    note = (
        "Reward so far by what random choice is expected to have by then. "
        "Mean over seeds ± its standard error."
    )
    names = [name for name, *_ in rows]
    note += f" {LARGEST_NORM_NOTE}" if "largest-norm" in names else ""
    return Table(header=("policy", *shares), rows=tuple(rows), note=note)


def listeners_table(names: Sequence[str]) -> Table:
    """Return how those who play on Last.fm explore, and what they are told."""
    rows = [(name, listeners.width(name), _told(listeners.options(name))) for name in names]
    return Table(
        header=("policy", "width", "told, beside the dimension"),
        rows=tuple(rows),
        note="The width of a confidence interval is its factor times √(xᵀA⁻¹x): Eq. (2)'s, which "
        "grows with the noise and the data, or a constant. All estimate the noise, where they "
        "need it; t counts all events.",
    )


def choices_table(options: Mapping[str, object]) -> Table:
    """Return the options an experiment was drawn with."""
    return Table(header=("option", "value"), rows=tuple((k, str(v)) for k, v in options.items()))


def detection_table(results: Iterable[Result]) -> Table:
    """Return how well changes were noticed and neighbours chosen, by those who try."""
    rows = [
        (setting, policy, *_detection_cells(runs))
        for (setting, policy), runs in grouped(results).items()
        if policy != "oracle" and any(map(_looks, runs))
    ]
    header = ("true alarms", "false alarms", "missed changes", "median delay")
    return Table(
        header=("setting", "policy", *header, "precision", "recall"),
        rows=tuple(rows),
        note="Means over seeds. Delay in the user's own rounds, from the change to its alarm. "
        "Precision and recall of the neighbourhoods. Policies that look for neither changes nor "
        "neighbours, and the oracle, which is told of them, are left out.",
    )


def timing_table(results: Iterable[Result]) -> Table:
    """Return the speed of every policy."""
    runs_of: dict[str, list[Timing]] = {}
    for run in results:
        runs_of.setdefault(run.policy, []).append(run.timing)
    rows = [
        (policy, str(len(runs)), _speed(runs), f"{sum(run.seconds for run in runs):,.1f}")
        for policy, runs in runs_of.items()
    ]
    return Table(
        header=("policy", "runs", "median rounds per second", "seconds in all"),
        rows=tuple(rows),
        note="Time inside the policy, the one time each run was made, with whatever else the "
        "machine did then.",
    )


def settings_table(settings: Mapping[str, Population]) -> Table:
    """Return the settings in numbers."""
    header = ("users", "parameters", "features", "arms", "rounds", "periods", "noise")
    return Table(
        header=("setting", *header, "separation"),
        rows=tuple((name, *_setting_cells(setting)) for name, setting in settings.items()),
        note="Users are served in turn; rounds and periods are each user's own. "
        "Without a number of parameters, every period has one of its own.",
    )


def _told(options: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value:g}" for name, value in options.items()) or NOTHING


def _beside(ours: Spread, theirs: float | None) -> str:
    return str(ours) if theirs is None else f"{ours}\n({theirs:,.0f})"


def _agreement(ours: Mapping[str, Spread], theirs: Mapping[str, float]) -> str:
    """Return how far the order of the policies is that of the paper.

    >>> ours = {"a": Spread(1.0, None), "b": Spread(3.0, None), "c": Spread(2.0, None)}
    >>> _agreement(ours, {"a": 10, "b": 20, "c": 30}), _agreement(ours, {"a": 10, "b": 20})
    ('2 of 3', 'yes')
    """
    pairs = list(combinations([name for name in ours if name in theirs], 2))
    same = sum((ours[a].mean < ours[b].mean) == (theirs[a] < theirs[b]) for a, b in pairs)
    if not pairs:
        return NOTHING
    return "yes" if same == len(pairs) else f"{same} of {len(pairs)}"


def _detection_cells(runs: Sequence[Result]) -> Iterator[str]:
    for name in ("alarms_true", "alarms_false", "alarms_missed", "median_delay"):
        yield _mean([getattr(run, name) for run in runs], digits=1)
    for name in ("precision", "recall"):
        yield _mean([getattr(run, name) for run in runs], digits=2)


def _looks(run: Result) -> bool:
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
