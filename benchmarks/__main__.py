"""``python -m benchmarks``."""

from __future__ import annotations

import os
import sys

LIBRARIES = ("OMP", "OPENBLAS", "MKL", "BLIS", "VECLIB_MAXIMUM", "NUMEXPR", "NUMBA")


def main() -> int:
    """Run the benchmarks with one thread per library; this must be set before the imports."""
    os.environ |= {f"{library}_NUM_THREADS": "1" for library in LIBRARIES}
    from benchmarks.command import run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
