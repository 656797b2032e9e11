"""The program ``dyclu``, also ``python -m dyclu``: the command line, or what to install for it."""

from __future__ import annotations

import sys
from importlib.util import find_spec

NEEDED = ("rich", "typer")
"""The packages of the extra ``cli``: without them no command can run."""


def main() -> None:
    """Run the command line; without its packages, say what to install and exit with status 2."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        sys.stderr.write(
            f"dyclu: the command line needs {' and '.join(missing)}, not installed here; "
            "pip install 'dyclu[cli]', or 'dyclu[service]' for the service's commands\n"
        )
        sys.exit(2)
    from dyclu.cli import main as run

    run()


if __name__ == "__main__":
    main()
