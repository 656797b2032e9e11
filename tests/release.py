"""``python -m tests.release v0.2.0``: check that a tag is that of the version everywhere.

The version is written in ``src/dyclu/__init__.py``. A checkout without tags, a shallow one and an
sdist can therefore be installed; the release fails if its tag says something else.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def versions() -> dict[str, str]:
    """Return the version that each file names."""
    return {
        "src/dyclu/__init__.py": _found("src/dyclu/__init__.py", r'^__version__ = "(.+)"$'),
        "CHANGELOG.md": _found("CHANGELOG.md", r"^## ([\d.]+)"),
        "CITATION.cff": _found("CITATION.cff", r"^version: (.+)$"),
        "clients/typescript/package.json": json.loads(
            (ROOT / "clients/typescript/package.json").read_text()
        )["version"],
    }


def _found(file: str, pattern: str) -> str:
    found = re.search(pattern, (ROOT / file).read_text(), flags=re.MULTILINE)
    assert found, f"{file} has no version"
    return found[1]


def mistakes(tag: str) -> list[str]:
    """Return what contradicts the tag, in words."""
    wrong = [
        f"{file} says {version}, the tag is {tag}"
        for file, version in versions().items()
        if f"v{version}" != tag
    ]
    if re.search(r"^## .*unreleased", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE):
        wrong.append("CHANGELOG.md says unreleased; write the date instead")
    return wrong


if __name__ == "__main__":
    sys.exit("\n".join(mistakes(sys.argv[1])) or 0)
