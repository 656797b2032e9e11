"""`made_by`: what decides over the bits of a state, beside the journal and the policy's options."""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from importlib import metadata
from pathlib import Path

import dyclu

COMPUTES = ("numpy", "scipy", "numba")
"""What policies compute with."""

SOURCES = (
    "*.py", "core/**/*.py", "kernels/**/*.py", "policies/**/*.py",
    "service/*.py", "service/engine/**/*.py",
)  # fmt: skip
"""The files that decide what is in a snapshot: policies, states, and all that they import."""


@cache
def made_by() -> dict[str, str]:
    """Return what a snapshot must have been made by to be gone on with.

    Between two commits dyclu has one version but may compute otherwise, so its sources count too.
    They are read once, when a tenant opens: a process goes on with the code that it has loaded,
    whatever is installed over it later.

    Examples
    --------
    >>> sorted(made_by())
    ['dyclu', 'machine', 'numba', 'numpy', 'scipy', 'source']
    """
    return {
        "dyclu": dyclu.__version__,
        "source": _source(),
        "machine": f"{platform.system()} {platform.machine()}",
        **{name: _version(name) for name in COMPUTES},
    }


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "none"


def _source() -> str:
    """Return a digest of the files that policies and states are made of."""
    package = Path(dyclu.__file__).parent
    digest = hashlib.sha256()
    for file in sorted({file for pattern in SOURCES for file in package.glob(pattern)}):
        digest.update(f"{file.relative_to(package).as_posix()}\n".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def difference(theirs: object) -> str:
    """Return in words how another maker differs from this one, nothing if it does not.

    >>> difference(made_by()), difference({**made_by(), "numpy": "1.0"}).partition(",")[0]
    ('', 'made with numpy 1.0')
    >>> difference(None)
    'made by a dyclu that did not say what made it'
    """
    if not isinstance(theirs, dict):
        return "made by a dyclu that did not say what made it"
    ours = made_by()
    return "; ".join(
        f"made with {name} {theirs.get(name, 'unknown')}, this is {ours.get(name, 'unknown')}"
        for name in sorted(ours.keys() | theirs.keys())
        if theirs.get(name) != ours.get(name)
    )
