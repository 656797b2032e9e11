"""What a policy would have earned: estimates from a log, with intervals and a verdict in words.

Nothing here changes a log, and only `replay` changes a policy. Formulas: docs/evaluation.md.
"""

from dyclu.evaluate.comparison import compare
from dyclu.evaluate.intervals import Interval
from dyclu.evaluate.late import LateCounts, LateEvaluation, LateRewards
from dyclu.evaluate.replays.rejection import Replayed, replay
from dyclu.evaluate.results import Comparison, Estimate, Evaluation, Overlap
from dyclu.evaluate.sequences import Lift, UserTotals, lift
from dyclu.evaluate.targets import Target, frozen, uniform

__all__ = [
    "Comparison",
    "Estimate",
    "Evaluation",
    "Interval",
    "LateCounts",
    "LateEvaluation",
    "LateRewards",
    "Lift",
    "Overlap",
    "Replayed",
    "Target",
    "UserTotals",
    "compare",
    "frozen",
    "lift",
    "replay",
    "uniform",
]
