"""The policies, one per file, and their registry.

`names` lists them, `make` makes one by name, `load` reads a saved one. `Oracle` and `Told` have no
names here: they need the truth when they are made, and again when they are read from a file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from os import PathLike
from typing import Any

from dyclu.errors import ForeignFile, OptionError, meant
from dyclu.policies.adts import AdTS
from dyclu.policies.atlas.policy import Atlas
from dyclu.policies.club import Club
from dyclu.policies.codband.policy import CoDBand
from dyclu.policies.discounted import DiscountedLinUCB
from dyclu.policies.dlinucb import DLinUCB
from dyclu.policies.dyclu.policy import DyClu
from dyclu.policies.linucb import LinUCB
from dyclu.policies.oracle import Oracle
from dyclu.policies.own import own_loaded
from dyclu.policies.random_effects import RandomEffects
from dyclu.policies.sclub import Sclub
from dyclu.policies.sliding import SlidingLinUCB
from dyclu.policies.told import Told
from dyclu.policies.uniform import Uniform
from dyclu.policy import Policy
from dyclu.storage import damaged_on_error, read

__all__ = [
    "AdTS",
    "Atlas",
    "Club",
    "CoDBand",
    "DLinUCB",
    "DiscountedLinUCB",
    "DyClu",
    "LinUCB",
    "Oracle",
    "RandomEffects",
    "Sclub",
    "SlidingLinUCB",
    "Told",
    "Uniform",
    "load",
    "make",
    "names",
]

_MAKERS: Mapping[str, Callable[..., Policy]] = {
    "uniform": Uniform,
    "linucb": LinUCB,
    "shared-linucb": partial(LinUCB, shared=True),
    "discounted-linucb": DiscountedLinUCB,
    "sliding-linucb": SlidingLinUCB,
    "random-effects": RandomEffects,
    "dlinucb": DLinUCB,
    "adts": AdTS,
    "club": Club,
    "sclub": Sclub,
    "codband": CoDBand,
    "dyclu": DyClu,
    "atlas": Atlas,
}

_KINDS: Mapping[str, Any] = {
    maker.__name__: maker for maker in _MAKERS.values() if isinstance(maker, type)
}


def names() -> tuple[str, ...]:
    """Return the names of all policies.

    >>> names()
    ('uniform', 'linucb', 'shared-linucb', 'discounted-linucb', ..., 'dyclu', 'atlas')
    """
    return tuple(_MAKERS)


def make(name: str, dim: int, **options: Any) -> Policy:
    """Return a new policy by its name.

    >>> make("linucb", 3, alpha=0.3)
    LinUCB(dim=3, noise=None, ridge=0.1, delta=0.1, alpha=0.3, shared=False)
    """
    if name not in _MAKERS:
        raise OptionError(
            f"no policy is called {name!r}; choose one of {', '.join(names())}"
            f"{meant(name, names())}"
        )
    return _MAKERS[name](dim, **options)


def load(path: str | PathLike[str], *, own: str | type | Collection[str | type] = ()) -> Policy:
    """Read a policy from the file that its `save` wrote; it continues bit for bit.

    Parameters
    ----------
    path : path
        The file.
    own : class, ``"module:Class"``, or several of them
        Policies of your own that the file may hold. Only what is named here is imported: a file
        cannot make a program import anything.
    """
    saved = read(path)
    if own and (mine := own_loaded(path, saved, own)) is not None:
        return mine
    if saved.kind in (Oracle.__name__, Told.__name__):
        raise OptionError(
            f"{path} holds a policy that is told the truth, and the truth is not saved with it; "
            f"use {saved.kind}.restore(dyclu.storage.read(path), ...)"
        )
    if saved.kind not in _KINDS:
        raise ForeignFile(
            f"{path} holds a policy of kind {saved.kind!r}, expected one of "
            f'{", ".join(_KINDS)}; name a policy of your own as own="module:Class", '
            "or install the version of dyclu that wrote it"
        )
    with damaged_on_error(path):
        policy: Policy = _KINDS[saved.kind].restore(saved)
        return policy
