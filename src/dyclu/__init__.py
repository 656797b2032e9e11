"""Bandits for a population of users who resemble each other and change."""

from typing import TYPE_CHECKING, Any

from dyclu import errors, policies
from dyclu.contributions import Contribution, Registry
from dyclu.core.evidence import resemblance
from dyclu.core.homogeneity import Evidence, homogeneity
from dyclu.core.noise import Noise
from dyclu.core.stats import Stats
from dyclu.errors import DycluError
from dyclu.policies import Atlas, DyClu, LinUCB, Uniform, load
from dyclu.policies.common.batches import Decisions, Outcomes
from dyclu.policy import Decision, Outcome, Policy, Slate

if TYPE_CHECKING:
    from dyclu import evaluate
    from dyclu.data import Features, Log

__version__ = "0.2.0"

__all__ = [
    "Atlas",
    "Contribution",
    "Decision",
    "Decisions",
    "DyClu",
    "DycluError",
    "Evidence",
    "Features",
    "LinUCB",
    "Log",
    "Noise",
    "Outcome",
    "Outcomes",
    "Policy",
    "Registry",
    "Slate",
    "Stats",
    "Uniform",
    "errors",
    "evaluate",
    "homogeneity",
    "load",
    "policies",
    "resemblance",
]

_LATER = {
    "Features": "dyclu.data",
    "Log": "dyclu.data",
    "data": "dyclu.data",
    "evaluate": "dyclu.evaluate",
}
"""Names that are imported at their first use, because not everybody needs them."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        from dyclu.errors import meant

        raise AttributeError(f"module 'dyclu' has no attribute {name!r}{meant(name, __all__)}")
    from importlib import import_module

    module = import_module(_LATER[name])
    return module if module.__name__ == f"dyclu.{name}" else getattr(module, name)
