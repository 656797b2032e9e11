"""How soon a new process is ready: imports, and the first decision."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from tempfile import TemporaryDirectory

from benchmarks.results import Effort, Results, Row, Target, by_repetition

NUMPY = "import numpy, scipy.linalg"
IMPORT = "import dyclu"
BEYOND = "import dyclu, numpy loaded"
DECIDE = "policy.decide('ana', [[1.0] * 25] * 10)"
LEARN = "policy.learn('ana', [1.0] * 25, 1.0)"
READY = "import dyclu; policy = dyclu.DyClu(25)"

MOST_IMPORT = 2.0
"""Longest time to import dyclu, in units of the time to import numpy and scipy.linalg."""

MOST_BEYOND = 0.35
"""Longest time to import dyclu in a process that has imported numpy, in seconds."""

MOST_FIRST = 1.0
"""Longest time of the first decision, in seconds, with stored machine code."""

REPETITIONS = 7
"""Processes of each kind: starting a process is the noisiest measurement."""

COLD = 2
"""Processes that compile everything; this takes so long that two measurements suffice."""

WHOLE = "all of these together"

NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"


@dataclass(frozen=True, slots=True)
class Start:
    """Code that a new process runs before the clock starts, and code that is timed."""

    before: str
    timed: str

    def seconds(self, environment: Mapping[str, str] | None = None) -> float:
        """Return the CPU seconds of the timed code in a new process."""
        code = (
            f"import json, time\n{self.before}\nstart = time.process_time()\n{self.timed}\n"
            "print(json.dumps(time.process_time() - start))"
        )
        # An installed package has bytecode; without it, compiling the sources would be timed.
        kept = {name: value for name, value in os.environ.items() if name != NO_BYTECODE}
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**kept, **(environment or {})},
            check=True,
            capture_output=True,
            text=True,
        )
        return float(json.loads(done.stdout))


STARTS = {
    NUMPY: Start("", NUMPY),
    IMPORT: Start("", IMPORT),
    BEYOND: Start("import numpy", IMPORT),
    "first decide": Start(READY, DECIDE),
    "first learn after it": Start(f"{READY}\n{DECIDE}", LEARN),
    WHOLE: Start("", f"{READY}\n{DECIDE}\n{LEARN}"),
}


def run(effort: Effort) -> Results:
    """Start processes of each kind in turn."""
    warm_ups, repetitions = (0, 1) if effort.quick else (1, REPETITIONS)
    rounds = [
        {name: start.seconds() for name, start in STARTS.items()}
        for _ in range(warm_ups + repetitions)
    ][warm_ups:]
    seconds = {name: tuple(each[name] for each in rounds) for name in STARTS}
    rows = tuple(_row(name, values, seconds[NUMPY]) for name, values in seconds.items())
    found = {row.name: row for row in rows}
    return Results(
        title="A fresh process",
        against="× numpy",
        rows=rows if effort.quick else (*rows, _cold()),
        targets=(
            _target(IMPORT, found[IMPORT].ratio, MOST_IMPORT, "× numpy and scipy.linalg"),
            _target(BEYOND, found[BEYOND].median, MOST_BEYOND, "s"),
            _target("first decide", found["first decide"].median, MOST_FIRST, "s"),
        ),
        notes=(
            "CPU time. Kernels are compiled once per installation and kept on disk; "
            "only the very first process finds nothing compiled.",
        ),
    )


def _cold() -> Row:
    values = []
    for _ in range(COLD):
        with TemporaryDirectory() as folder:
            values.append(STARTS[WHOLE].seconds({"NUMBA_CACHE_DIR": folder}))
    return Row(name=f"{WHOLE}, compiling", unit="s", values=tuple(values))


def _row(name: str, values: tuple[float, ...], reference: tuple[float, ...]) -> Row:
    return Row(name=name, unit="s", values=values, ratios=by_repetition(values, reference))


def _target(name: str, value: float, limit: float, unit: str) -> Target:
    return Target(name=name, value=value, sense="at most", limit=limit, unit=unit)
