"""The machine and the versions with which figures were measured."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("dyclu", "numpy", "scipy", "numba")


def describe(*extra: str) -> dict[str, str]:
    """Return the machine and the versions in use, with those of further packages.

    >>> sorted(describe())
    ['cores', 'dyclu', 'numba', 'numpy', 'processor', 'python', 'scipy', 'system']
    """
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{name: _version(name) for name in (*PACKAGES, *extra)},
    }


def _processor() -> str:
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text().splitlines() if facts.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
