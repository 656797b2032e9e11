"""Policies by name for recorded events: options as in section 4, but the noise is not known.

On Last.fm, the width of the confidence interval has more influence than anything else. Policies
that support both widths therefore have two names: ``dyclu`` uses the width of Eq. (2), and
``dyclu-0.3`` the constant that LinUCB has in the paper's simulations.

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
from dyclu.policies.own import own_policy
from dyclu.policy import Policy
from dyclu.sim.runs.contestants import ALPHA, RANDOM, check_made, smallest_setting
from dyclu.sim.runs.contestants import options as paper_options
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
"""The policies that a study of Last.fm compares by default."""

EITHER_WIDTH = ("linucb", "shared-linucb", "discounted-linucb", "sliding-linucb", "dyclu")
"""Policies that support both widths: that of Eq. (2), and a constant."""

CONSTANT = f"-{ALPHA}"
"""Ending of the name of a policy with the constant width."""

UNKNOWN_OPTIONS = frozenset({"noise", "width_noise"})
"""Options of section 4 that are not known for recorded events."""

OTHER_WIDTHS = {
    "uniform": "none",
    "largest-norm": "none",
    "dlinucb": "Eq. (2)",
    "adts": "none: it samples",
    "club": "0.1 √log(t + 2)",
    "sclub": "0.3",
    "codband": "none: it samples",
}
"""The widths of policies that support only one."""


def contestants() -> tuple[str, ...]:
    """Return the names that `contestant` knows, beside ``"module:Class"``.

    >>> [name for name in contestants() if name.startswith("dyclu")]
    ['dyclu', 'dyclu-0.3']
    """
    return ("largest-norm", *policies.names(), *(name + CONSTANT for name in EITHER_WIDTH))


def contestant(name: str, dim: int, *, seed: int = 0) -> Policy:
    """Return a new policy by name, or one of your own (``"module:Class"``)."""
    if name == "oracle":
        raise OptionError(
            "oracle cannot play on recorded events: it needs the true parameters, which are not "
            f"known; choose from {', '.join(contestants())}"
        )
    if name == "largest-norm":
        return LargestNorm(dim)
    if name not in contestants():
        return own_policy(name, dim, seed=seed, known=contestants())
    random = {"seed": seed} if name in RANDOM else {}
    return policies.make(kind(name), dim, **options(name), **random)


def options(name: str) -> dict[str, Any]:
    """Return the options of a policy beside its dimension and seed.

    >>> options("club"), options("shared-linucb-0.3")
    ({'ridge': 0.1, 'alpha': 0.1, 'tolerance': 2.0}, {'ridge': 0.1, 'alpha': 0.3})
    """
    in_section_4 = paper_options(kind(name), smallest_setting(1))
    left_out = UNKNOWN_OPTIONS | ({"alpha"} if kind(name) in EITHER_WIDTH else set())
    constant = {"alpha": ALPHA} if name.endswith(CONSTANT) else {}
    kept = {key: value for key, value in in_section_4.items() if key not in left_out}
    return kept | constant


def width(name: str) -> str:
    """Return the width of a policy's confidence intervals, in words.

    >>> width("dyclu"), width("dyclu-0.3"), width("mine:Policy")
    ('Eq. (2)', '0.3', 'its own')
    """
    if kind(name) in EITHER_WIDTH:
        return str(ALPHA) if name.endswith(CONSTANT) else "Eq. (2)"
    return OTHER_WIDTHS.get(name, "its own")


def check_contestants(names: Sequence[str], dim: int) -> None:
    """Make every policy once, so that errors appear before the first run."""
    check_made(names, lambda name: contestant(name, dim), contestants())


def kind(name: str) -> str:
    """Return the name of the policy without the ending of the constant width.

    >>> kind("dyclu-0.3")
    'dyclu'
    """
    return name.removesuffix(CONSTANT)
