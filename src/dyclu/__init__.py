"""Bandits for a population of users who resemble each other and change."""

from dyclu import errors, policies
from dyclu.core.evidence import resemblance
from dyclu.core.homogeneity import Evidence, homogeneity
from dyclu.core.noise import Noise
from dyclu.core.stats import Stats
from dyclu.errors import DycluError
from dyclu.policies import Atlas, DyClu, LinUCB, Uniform, load
from dyclu.policies.common.batches import Decisions, Outcomes
from dyclu.policy import Decision, Outcome, Policy

__version__ = "0.1.0"

__all__ = [
    "Atlas",
    "Decision",
    "Decisions",
    "DyClu",
    "DycluError",
    "Evidence",
    "LinUCB",
    "Noise",
    "Outcome",
    "Outcomes",
    "Policy",
    "Stats",
    "Uniform",
    "errors",
    "homogeneity",
    "load",
    "policies",
    "resemblance",
]
