"""Policies of your own, named ``"module:Class"``: import, check, make as ``Class(dim)``, load.

Importing a module runs its code. So names come from who starts a program: a call, a command line,
settings; never from a request or a file.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from dyclu.errors import OptionError, meant
from dyclu.policy import Policy
from dyclu.storage import Saved

MEMBERS = (
    "dim",
    "decide",
    "learn",
    "save",
    "users",
    "changes",
    "models",
    "warnings",
    "locate",
    "forget",
    "shares",
    "contributions",
    "absorb",
    "withdraw",
)
"""The members of `Policy`."""


def own_class(spec: str, *, known: Sequence[str]) -> Callable[..., Any]:
    """Return the class ``"module:Class"``; an error message lists the `known` names.

    >>> own_class("dyclu.policies:LinUCB", known=())
    <class 'dyclu.policies.linucb.LinUCB'>
    """
    module, _, name = spec.partition(":")
    if not (module and name):
        raise OptionError(
            f"no policy is called {spec!r}; choose one of {', '.join(known)}, "
            f'or name your own as "module:Class"{meant(spec, known)}'
        )
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError as error:
        raise OptionError(
            f"{spec!r} cannot be imported ({error}); install the module, or run from its folder"
        ) from error
    except SystemExit as error:
        raise OptionError(
            f"{spec!r} cannot be imported: the module ends the program (SystemExit: {error}); "
            'end it only under if __name__ == "__main__"'
        ) from None
    if not callable(found):
        file = getattr(sys.modules[module], "__file__", None) or "built in"
        raise OptionError(
            f"{spec!r}: {module} ({file}) has no class called {name}; check the spelling; if "
            "this is not your module, rename yours"
        )
    return cast(Callable[..., Any], found)


def own_policy(
    spec: str,
    dim: int,
    *,
    known: Sequence[str],
    seed: int | None = None,
    options: Mapping[str, Any] = MappingProxyType({}),
) -> Policy:
    """Return a new policy of the class ``"module:Class"``; an error message lists `known` names.

    A `seed` is passed if the class takes one.
    """
    policy = _instance(spec, own_class(spec, known=known), dim, seed, options)
    if not isinstance(policy, Policy):
        missing = [member for member in MEMBERS if member not in dir(policy)]
        raise OptionError(
            f"{spec!r} makes a {type(policy).__name__} without {', '.join(missing)}, expected a "
            "policy; see docs/guide/your-own-policy.md"
        )
    return policy


def _instance(
    spec: str,
    maker: Callable[..., Any],
    dim: int,
    seed: int | None,
    options: Mapping[str, Any],
) -> object:
    try:
        signature = inspect.signature(maker)
        seeded = seed is not None and "seed" in signature.parameters
        given = {**options, "seed": seed} if seeded else dict(options)
        signature.bind(dim, **given)
    except (TypeError, ValueError) as error:
        told = f"dim={dim} and {', '.join(options)}" if options else f"dim={dim} alone"
        raise OptionError(
            f"{spec!r} cannot be called with {told} ({error}); "
            "make dim the first parameter, and give all others a default"
        ) from None
    return maker(dim, **given)


def own_files(spec: str, *, known: Sequence[str]) -> list[Path]:
    """Return the named module's file, and the one that defines the class, also of a `partial`.

    >>> [file.name for file in own_files("dyclu.policies:LinUCB", known=())]
    ['__init__.py', 'linucb.py']
    """
    made: Any = own_class(spec, known=known)
    while isinstance(made, partial):
        made = made.func
    named = sys.modules[spec.partition(":")[0]]
    return list(dict.fromkeys(file for one in (named, made) if (file := _file(one))))


def _file(defined: Any) -> Path | None:
    """Return the file that defines an object; None if there is no such file."""
    try:
        file = Path(inspect.getfile(defined))
    except TypeError:  # built in, or defined at a prompt
        return None
    return file if file.is_file() else None


def own_loaded(path: str | PathLike[str], saved: Saved, own: object) -> Policy | None:
    """Return the policy in a file if its kind is one of `own`, by the class's own way of reading.

    `own` is a class, a ``"module:Class"``, or several of them. A class has ``restore(saved)``, as
    those of the library, or ``load(path)``.
    """
    several = own if isinstance(own, (list, tuple, set, frozenset)) else [own]
    for one in several:
        made: Any = own_class(one, known=()) if isinstance(one, str) else one
        if not isinstance(made, type):
            raise OptionError(f'own is {one!r}, expected a class or "module:Class"')
        if made.__name__ != saved.kind:
            continue
        reader = getattr(made, "restore", None) or getattr(made, "load", None)
        if reader is None:
            raise OptionError(
                f"{made.__name__} has neither restore(saved) nor load(path), expected one of them; "
                "see docs/guide/your-own-policy.md"
            )
        policy: Policy = reader(saved if "restore" in dir(made) else path)
        return policy
    return None
