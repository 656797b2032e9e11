"""MLflow: results as metrics, parameters and tags of the active run."""

from __future__ import annotations

import math
import re
from dataclasses import asdict

import mlflow

from dyclu.evaluate import Comparison
from dyclu.policies.common.base import PolicyBase
from dyclu.sim.runs.measures import Summary

NOT_ALLOWED = re.compile(r"[^\w\-./ ]")
"""Characters that MLflow allows in no name."""


def log_policy(policy: PolicyBase) -> None:
    """Log the kind and the options of a policy as parameters."""
    mlflow.log_params({"policy": type(policy).__name__, **policy._options()})


def log_summary(found: Summary, *, prefix: str = "") -> None:
    """Log the numbers of a simulated run as metrics, and its warnings as a tag."""
    values = asdict(found)
    warnings = " ".join(values.pop("warnings"))
    _log({f"{prefix}{name}": value for name, value in values.items()})
    if warnings:
        mlflow.set_tag(f"{prefix}warnings", warnings)


def log_comparison(found: Comparison) -> None:
    """Log each policy's estimate and interval as metrics, and the verdicts as tags.

    Metrics are named ``atlas/value``, ``atlas/low``, ``atlas/high`` and ``atlas/gain``. An end of
    an interval that is unknown is left out. Characters that MLflow does not allow become ``_``.
    """
    _log({"log/value": found.logged.value})
    mlflow.set_tag("verdict", found.verdict)
    for name, one in found.evaluations.items():
        safe, best = NOT_ALLOWED.sub("_", name), one.best
        ends = {"low": best.interval.low, "high": best.interval.high}
        values = {"value": best.value, **ends, "gain": one.gain.value}
        _log({f"{safe}/{key}": value for key, value in values.items()})
        mlflow.set_tag(f"{safe}/verdict", one.verdict)


def _log(values: dict[str, float | None]) -> None:
    """Log all numbers that are known and finite."""
    known = {name: float(value) for name, value in values.items() if value is not None}
    mlflow.log_metrics({name: value for name, value in known.items() if math.isfinite(value)})
