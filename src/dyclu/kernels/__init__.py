"""The compiled inner loops, one file per part of the library that calls them.

Use them as ``kernels.<file>.<function>(...)`` after ``from dyclu import kernels``. A file is
imported, and with it numba, at its first use: importing `dyclu` does not wait for the compiler.

Every kernel is plain Python over arrays. Numba compiles it at its first call and stores the machine
code on disk. Without numba the same functions run uncompiled: same numbers, about a hundred times
slower. Inner loops add vectors along rows, so results depend neither on the processor's vector
width nor on a BLAS library. Matrices are symmetric, so a row is also a column.

You may add a kernel where a profile shows that a loop is too slow. Input is checked by the caller;
a kernel trusts its arguments and never raises.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dyclu.kernels import (
        atlas,
        births,
        choosing,
        evidence,
        features,
        laws,
        ledger,
        linalg,
        memory,
        neighbours,
        population,
        restarts,
        ridge,
        segments,
        tastes,
    )

__all__ = [
    "atlas",
    "births",
    "choosing",
    "evidence",
    "features",
    "laws",
    "ledger",
    "linalg",
    "memory",
    "neighbours",
    "population",
    "restarts",
    "ridge",
    "segments",
    "tastes",
]


def __getattr__(name: str) -> Any:
    """Import a file of kernels when it is first used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"dyclu.kernels.{name}")
