"""Bandits for a population of users who resemble each other and change."""

from dyclu import errors, policies
from dyclu.batches import Decisions, Outcomes
from dyclu.errors import DycluError
from dyclu.evidence import resemblance
from dyclu.homogeneity import Evidence, homogeneity
from dyclu.noise import Noise
from dyclu.policies import Atlas, DyClu, LinUCB, Uniform, load
from dyclu.policy import Decision, Outcome, Policy
from dyclu.stats import Stats

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
