"""The policies, one per file, and their registry.

`names` lists them, `make` makes one by name, `load` reads back one that was saved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from os import PathLike
from typing import Any

from dyclu.errors import NewerFile, OptionError
from dyclu.policies.dyclu import DyClu
from dyclu.policies.linucb import LinUCB
from dyclu.policies.uniform import Uniform
from dyclu.policy import Policy
from dyclu.storage import Saved, read

__all__ = ["DyClu", "LinUCB", "Uniform", "load", "make", "names"]

_MAKERS: Mapping[str, Callable[..., Policy]] = {
    "uniform": Uniform,
    "linucb": LinUCB,
    "shared-linucb": partial(LinUCB, shared=True),
    "dyclu": DyClu,
}

_RESTORERS: Mapping[str, Callable[[Saved], Policy]] = {
    kind.__name__: kind.restore for kind in (Uniform, LinUCB, DyClu)
}


def names() -> tuple[str, ...]:
    """Return the names of all policies.

    >>> names()
    ('uniform', 'linucb', 'shared-linucb', 'dyclu')
    """
    return tuple(_MAKERS)


def make(name: str, dim: int, **options: Any) -> Policy:
    """Return a new policy by its name.

    >>> make("linucb", 3, alpha=0.3)
    LinUCB(dim=3, noise=None, ridge=0.1, delta=0.1, alpha=0.3, shared=False)
    """
    if name not in _MAKERS:
        raise OptionError(f"no policy is called {name!r}; choose one of {', '.join(names())}")
    return _MAKERS[name](dim, **options)


def load(path: str | PathLike[str]) -> Policy:
    """Read back a policy that was saved; it continues bit for bit."""
    saved = read(path)
    if saved.kind not in _RESTORERS:
        raise NewerFile(
            f"{path} holds a policy of kind {saved.kind!r}, this dyclu knows "
            f"{', '.join(_RESTORERS)}; install the dyclu that wrote it"
        )
    return _RESTORERS[saved.kind](saved)
