"""`made_by`: the versions and source files that a state depends on, besides journal and options."""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from importlib import metadata
from pathlib import Path

import dyclu
from dyclu.policies.own import own_files

COMPUTES = ("numpy", "scipy", "numba")
"""Libraries that policies compute with."""

SOURCES = (
    "*.py", "core/**/*.py", "kernels/**/*.py", "policies/**/*.py", "data/**/*.py",
    "evaluate/**/*.py", "service/*.py", "service/schema/**/*.py", "service/engine/**/*.py",
)  # fmt: skip
"""Files that the contents of a snapshot depend on: policies, states, and all that they import."""


@cache
def made_by(policy: str = "") -> dict[str, str]:
    """Return the versions that a snapshot must have been made with to be used.

    The version of dyclu is the same between two releases while its code changes, so a digest of
    its sources is included. The sources are read once, when a tenant opens: a process continues to
    run the code it has loaded, even if other code is installed later. The same holds for a `policy`
    of the operator's own, ``"module:Class"``.

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
        **({"policy": _own_source(policy)} if ":" in policy else {}),
    }


def _own_source(policy: str) -> str:
    """Return a digest of the files of an own policy."""
    digest = hashlib.sha256()
    for file in own_files(policy, known=()):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


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


def difference(theirs: object, policy: str = "") -> str:
    """Return in words how other versions differ from these; an empty text if they do not.

    >>> difference(made_by()), difference({**made_by(), "numpy": "1.0"}).partition(",")[0]
    ('', 'made with numpy 1.0')
    >>> difference(None)
    'made by a dyclu that did not say what made it'
    """
    if not isinstance(theirs, dict):
        return "made by a dyclu that did not say what made it"
    ours = made_by(policy)
    return "; ".join(
        f"made with {name} {theirs.get(name, 'unknown')}, this is {ours.get(name, 'unknown')}"
        for name in sorted(ours.keys() | theirs.keys())
        if theirs.get(name) != ours.get(name)
    )
