"""Messages for names that do not exist: the nearest one that does."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

SHOWN = 12
"""Names listed in a message at most."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return which names are expected, the most similar one first.

    >>> nearest("categry", ["price", "category"])
    "'category' (or 'price')"
    >>> nearest("x", [])
    'nothing'
    """
    names = list(known)
    if not names:
        return "nothing"
    close = get_close_matches(str(name), names, n=1)
    if not close:
        return f"one of {_listed(names)}"
    others = [one for one in names if one != close[0]]
    return f"{close[0]!r} (or {_listed(others)})" if others else repr(close[0])


def _listed(names: list[str]) -> str:
    shown = ", ".join(map(repr, names[:SHOWN]))
    return f"{shown}, … ({len(names)} in all)" if len(names) > SHOWN else shown
