"""``python -m tests.lowest``: print every dependency at the lowest version that is allowed.

The output is a file of constraints for pip: ``make test-lowest`` installs with it.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
EXTRAS = ("archive", "cli", "client", "cluster", "data", "otel", "plots", "service", "sweep")
"""What users install; tools of developers are not bounded from below by their users."""


def lowest() -> Iterator[str]:
    """Yield a constraint for each direct dependency.

    >>> sorted(lowest())[:2]
    ['distributed==2024.1', 'granian==2.8']
    """
    project = tomllib.loads(PROJECT.read_text())["project"]
    needs = list(project["dependencies"])
    for extra in EXTRAS:
        needs += project["optional-dependencies"][extra]
    for need in needs:
        if found := re.match(r"([\w-]+)(?:\[[\w,-]+\])?>=([\d.]+)(?!.*python_version)", need):
            yield f"{found[1]}=={found[2]}"


if __name__ == "__main__":
    sys.stdout.write("\n".join([*lowest(), ""]))
