from __future__ import annotations

import subprocess
import sys

EDGES = (
    "scipy.stats",
    "matplotlib",
    "rich",
    "typer",
    "dyclu.sim",
    "dyclu.cli",
    "dyclu.conformance",
)


def test_importing_dyclu_imports_nothing_from_the_edges() -> None:
    code = f"import sys, dyclu; print([name for name in {EDGES!r} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_public_names_are_there() -> None:
    import dyclu

    for name in dyclu.__all__:
        assert getattr(dyclu, name).__doc__
