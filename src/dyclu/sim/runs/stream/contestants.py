"""Who plays on Last.fm, and what each of them is told there: as in section 4, but not the noise.

The width of the confidence interval decides more on Last.fm than anything else does, so whoever
can play with either has two names: ``dyclu`` explores by Eq. (2), ``dyclu-0.3`` by the constant
that LinUCB has in the paper's simulations.

>>> contestant("linucb", 25)
LinUCB(dim=25, noise=None, ridge=0.1, delta=0.1, alpha=None, shared=False)
>>> contestant("linucb-0.3", 25)
LinUCB(dim=25, noise=None, ridge=0.1, delta=0.1, alpha=0.3, shared=False)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dyclu import policies
from dyclu.errors import OptionError
from dyclu.policy import Policy
from dyclu.sim.runs.contestants import ALPHA, RANDOM, check_makers, stand_in
from dyclu.sim.runs.contestants import options as paper_options
from dyclu.sim.runs.own_policies import own_policy
from dyclu.sim.runs.stream.largest_norm import LargestNorm

CONTESTANTS = (
    "uniform",
    "largest-norm",
    "linucb",
    "linucb-0.3",
    "shared-linucb-0.3",
    "dyclu",
    "dyclu-0.3",
    "club",
    "dlinucb",
    "adts",
)
"""Who plays on Last.fm if nobody else is named."""

EITHER_WIDTH = ("linucb", "shared-linucb", "discounted-linucb", "sliding-linucb", "dyclu")
"""Policies that explore by Eq. (2), or by a constant."""

CONSTANT = f"-{ALPHA}"
"""How the name of one that explores by the constant ends."""

NOT_TOLD = frozenset({"noise", "width_noise"})
"""What section 4 tells a policy, and nobody could tell it here."""

OTHER_WIDTHS = {
    "uniform": "none",
    "largest-norm": "none",
    "dlinucb": "Eq. (2)",
    "adts": "none: it samples",
    "club": "0.1 √log(t + 2)",
    "sclub": "0.3",
}
"""The widths of those that have but one."""


def contestants() -> tuple[str, ...]:
    """Return the names `contestant` knows, apart from anybody's own.

    >>> [name for name in contestants() if name.startswith("dyclu")]
    ['dyclu', 'dyclu-0.3']
    """
    return ("largest-norm", *policies.names(), *(name + CONSTANT for name in EITHER_WIDTH))


def contestant(name: str, dim: int, *, seed: int = 0) -> Policy:
    """Return a fresh policy by name, or one's own (``"module:Class"``), ready for Last.fm."""
    if name == "oracle":
        raise OptionError(
            "oracle cannot play on Last.fm, where nobody knows the truth it has to be told; "
            f"choose from {', '.join(contestants())}"
        )
    if name == "largest-norm":
        return LargestNorm(dim)
    if name not in contestants():
        return own_policy(name, dim, seed, known=contestants())
    dice = {"seed": seed} if name in RANDOM else {}
    return policies.make(kind(name), dim, **options(name), **dice)


def options(name: str) -> dict[str, Any]:
    """Return what a contestant is told beside the dimension, as far as it can be written down.

    >>> options("club"), options("shared-linucb-0.3")
    ({'ridge': 0.1, 'alpha': 0.1, 'tolerance': 2.0}, {'ridge': 0.1, 'alpha': 0.3})
    """
    told = paper_options(kind(name), stand_in(1))
    left_out = NOT_TOLD | ({"alpha"} if kind(name) in EITHER_WIDTH else set())
    constant = {"alpha": ALPHA} if name.endswith(CONSTANT) else {}
    return {key: told[key] for key in told if key not in left_out} | constant


def width(name: str) -> str:
    """Return how wide a contestant's confidence intervals are, in words.

    >>> width("dyclu"), width("dyclu-0.3"), width("mine:Policy")
    ('Eq. (2)', '0.3', 'its own')
    """
    if kind(name) in EITHER_WIDTH:
        return str(ALPHA) if name.endswith(CONSTANT) else "Eq. (2)"
    return OTHER_WIDTHS.get(name, "its own")


def check_contestants(names: Sequence[str], dim: int) -> None:
    """Make every contestant once: whatever is wrong with one shows before the first run."""
    check_makers(names, lambda name: contestant(name, dim), known=contestants())


def kind(name: str) -> str:
    """Return the policy that a contestant is, whatever its width.

    >>> kind("dyclu-0.3")
    'dyclu'
    """
    return name.removesuffix(CONSTANT)
