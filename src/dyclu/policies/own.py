"""Policies of your own, named ``"module:Class"``: imported, checked and made as ``Class(dim)``."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any, cast

from dyclu.errors import OptionError
from dyclu.policy import Policy

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
            'or name your own as "module:Class"'
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


def own_policy(spec: str, dim: int, seed: int, *, known: Sequence[str]) -> Policy:
    """Return a new policy of the class ``"module:Class"``; an error message lists `known` names."""
    policy = _instance(spec, own_class(spec, known=known), dim, seed)
    if not isinstance(policy, Policy):
        missing = [member for member in MEMBERS if member not in dir(policy)]
        raise OptionError(
            f"{spec!r} makes a {type(policy).__name__} without {', '.join(missing)}, expected a "
            "policy; see docs/guide/your-own-policy.md"
        )
    return policy


def _instance(spec: str, maker: Callable[..., Any], dim: int, seed: int) -> object:
    try:
        signature = inspect.signature(maker)
        given = {"seed": seed} if "seed" in signature.parameters else {}
        signature.bind(dim, **given)
    except (TypeError, ValueError) as error:
        raise OptionError(
            f"{spec!r} cannot be called with dim={dim} alone ({error}); "
            "make dim the first parameter, and give all others a default"
        ) from None
    return maker(dim, **given)
