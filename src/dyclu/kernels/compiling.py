"""`compiled`: the decorator of every kernel.

Numba reuses machine code on disk as long as the file of the function is unchanged. That is not
enough here, because kernels call kernels of other files: a caller contains a compiled copy of what
it calls. So machine code is reused only as long as *every* file in this folder is unchanged.
"""

from __future__ import annotations

import hashlib
import importlib
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

_Function = TypeVar("_Function", bound=Callable[..., object])


def _import_numba() -> Any:
    try:
        return importlib.import_module("numba")
    except (ImportError, SystemError):  # missing, or built for another numpy
        return None


def _digest_of_folder() -> bytes:
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(file.read_bytes())
    return digest.digest()


_numba = _import_numba()
COMPILED = _numba is not None and not _numba.config.DISABLE_JIT
_STAMP = _digest_of_folder() if COMPILED else b""

if _numba is None:
    warnings.warn(
        "numba cannot be imported, so dyclu computes the same numbers about a hundred times "
        "slower; install numba, on a Python version that numba supports",
        RuntimeWarning,
        stacklevel=2,
    )


def compiled(function: _Function) -> _Function:
    """Return the function, compiled by numba; its machine code is stored on disk if possible."""
    if not COMPILED:
        return function
    try:
        dispatcher = _numba.njit(cache=True, error_model="numpy")(function)
    except RuntimeError:  # no folder for machine code can be written
        return cast(_Function, _numba.njit(error_model="numpy")(function))
    # Numba has no public way to name further files that a function depends on.
    index = dispatcher._cache._cache_file
    index._source_stamp = (index._source_stamp, _STAMP)
    return cast(_Function, dispatcher)
