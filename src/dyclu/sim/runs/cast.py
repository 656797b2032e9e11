"""Who plays in a study."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dyclu.errors import DycluError, OptionError
from dyclu.sim.runs import paper
from dyclu.sim.worlds.population import Population

CONTESTANTS = ("oracle", "linucb", "adts", "dlinucb", "club", "dyclu")
"""The policies of Table 1, in its order."""


def check_policies(policies: Sequence[str], dim: int) -> None:
    """Make every policy once: whatever is wrong with one shows before the first run."""
    world = stand_in(dim).world(0)
    known = paper.contestants()
    check_makers(policies, lambda name: paper.contestant(name, world), known=known)


def check_makers(
    policies: Sequence[str], make: Callable[[str], object], *, known: Sequence[str]
) -> None:
    """Make every policy once by this function; `known` is what there is to choose from."""
    if not policies:
        raise OptionError(
            f"there are no policies, expected some of {', '.join(known)}, "
            'or your own as "module:Class"'
        )
    for policy in policies:
        try:
            make(policy)
        except DycluError:
            raise
        except (
            Exception,
            SystemExit,
        ) as error:  # whatever somebody's own does
            raise OptionError(
                f"{policy!r} cannot be made ({type(error).__name__}: {error}); "
                "repair it or leave it out"
            ) from error


def stand_in(dim: int) -> Population:
    """Return the smallest setting of this dimension."""
    return Population(users=1, parameters=1, dim=dim, arms=1, offered=1, rounds=1, noise=1.0)
