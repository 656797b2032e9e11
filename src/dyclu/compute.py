"""The way to the compiled kernels, which only those who compute need to wait for."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any


@cache
def kernels() -> Any:
    """Return the module `dyclu.kernels`, imported when it is first asked for.

    Warns
    -----
    RuntimeWarning
        If numba is missing, and the kernels run uncompiled.
    """
    from dyclu import kernels as module

    if not module.COMPILED:
        warnings.warn(
            "numba cannot be imported, so dyclu computes the same numbers some hundred times "
            "slower; install numba, on a Python that it supports",
            RuntimeWarning,
            stacklevel=3,
        )
    return module
