"""pandas: comparisons, runs and models as data frames."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

import numpy as np
import pandas

from dyclu.evaluate import Comparison, Estimate, Evaluation
from dyclu.policy import Policy
from dyclu.sim.runs.measures import Summary
from dyclu.sim.runs.play import Run


def comparison_frame(found: Comparison) -> pandas.DataFrame:
    """Return one row per policy and method, with its interval; the log itself is a row, too."""
    rows: list[tuple[str, str, Estimate, Evaluation | None]]
    rows = [("the log", "mean", found.logged, None)]
    for name, one in found.evaluations.items():
        rows += [(name, method, estimate, one) for method, estimate in one.estimates.items()]
    return pandas.DataFrame(
        [
            {
                "policy": name,
                "method": method,
                "value": estimate.value,
                "low": estimate.interval.low,
                "high": estimate.interval.high,
                "gain": None if one is None else one.gain.value,
                "effective_rows": None if one is None else one.overlap.effective,
                "answers": one is None or not one.problems,
            }
            for name, method, estimate, one in rows
        ]
    )


def summary_frame(summaries: Mapping[str, Summary]) -> pandas.DataFrame:
    """Return one row per policy, with the values of its `Summary`."""
    rows = {name: asdict(one) for name, one in summaries.items()}
    return pandas.DataFrame.from_dict(rows, orient="index").rename_axis("policy")


def run_frame(run: Run) -> pandas.DataFrame:
    """Return one row per round: user, arm, reward, regret and what the policy noticed."""
    columns = ("arm", "reward", "regret", "surprised", "changed")
    return pandas.DataFrame(
        {"user": run.world.served, **{name: getattr(run, name) for name in columns}}
    )


def model_frame(policy: Policy, *, names: tuple[str, ...] | None = None) -> pandas.DataFrame:
    """Return one row per model: users, rewards, and its estimate for each feature.

    Examples
    --------
    >>> import dyclu
    >>> policy = dyclu.DyClu(2, noise=0.1)
    >>> for x, reward in (([1.0, 0.0], 1.0), ([0.0, 1.0], -1.0)) * 3:
    ...     outcome = policy.learn("ana", x, reward)
    >>> model_frame(policy, names=("jazz", "rock")).round(1).to_dict("records")
    [{'users': 1, 'rewards': 6, 'jazz': 1.0, 'rock': -1.0}]
    """
    columns = names or tuple(f"x{i}" for i in range(policy.dim))
    models = policy.models
    estimates = np.array([model.estimate for model in models]).reshape(-1, policy.dim)
    frame = pandas.DataFrame(
        {"users": [model.users for model in models], "rewards": [model.size for model in models]},
        index=pandas.Index([model.id for model in models], name="model"),
    )
    return frame.join(pandas.DataFrame(estimates, columns=list(columns), index=frame.index))
