"""Who plays in a study."""

from __future__ import annotations

from collections.abc import Sequence

from dyclu.errors import DycluError, OptionError
from dyclu.sim import paper
from dyclu.sim.population import Population

CONTESTANTS = ("oracle", "linucb", "adts", "dlinucb", "club", "dyclu")
"""The policies of Table 1, in its order."""

LISTENERS = ("uniform", "linucb", "shared-linucb", "dyclu", "club", "dlinucb", "adts")
"""The policies on Last.fm, where nobody knows the truth an oracle would have to be told."""


def check_policies(policies: Sequence[str], dim: int) -> None:
    """Make every policy once: whatever is wrong with one shows before the first run."""
    if not policies:
        raise OptionError(
            f"there are no policies, expected some of {', '.join(paper.contestants())}, "
            'or your own as "module:Class"'
        )
    world = stand_in(dim).world(0)
    for policy in policies:
        try:
            paper.contestant(policy, world)
        except DycluError:
            raise
        except Exception as error:  # whatever somebody's module or class comes up with
            raise OptionError(
                f"{policy!r} cannot be made ({type(error).__name__}: {error}); "
                "repair it or leave it out"
            ) from error


def stand_in(dim: int, *, noise: float = 1.0) -> Population:
    """Return the smallest setting of this dimension and noise."""
    return Population(users=1, parameters=1, dim=dim, arms=1, offered=1, rounds=1, noise=noise)
