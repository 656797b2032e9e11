"""`dyclu.service.http.serve`: what is ready before the first request comes."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import dyclu
from dyclu.service.http.serve import make_room
from dyclu.service.spec import PolicySpec, warm_up
from tests.service.running import told

FIRST_ROUNDS = """
import sys, numba, numpy as np, dyclu
from dyclu.service.spec import PolicySpec, warm_up

name = sys.argv[1]
warm_up(PolicySpec(name, 4, {}))
files = [getattr(dyclu.kernels, name) for name in dyclu.kernels.__all__]
dispatchers = [one for file in files for one in vars(file).values() if hasattr(one, "signatures")]
loaded = set(sys.modules)
compiled = sum(len(one.signatures) for one in dispatchers)
policy, rng = dyclu.policies.make(name, 4), np.random.default_rng(1)
for turn in range(400):
    arms = rng.standard_normal((3, 4))
    x = arms[policy.decide(f"u{turn % 5}", arms).arm]
    policy.learn(f"u{turn % 5}", x, float(x[turn // 200] + 0.1 * rng.standard_normal()))
assert sum(len(one.signatures) for one in dispatchers) == compiled, name
late = sorted(one for one in set(sys.modules) - loaded if not one.startswith("encodings"))
assert not late, late
"""


@pytest.mark.parametrize("name", dyclu.policies.names())
def test_warm_up_works_for_every_policy(name: str) -> None:
    warm_up(PolicySpec(name, 7, {}))


@pytest.mark.parametrize("name", ["linucb", "dyclu", "atlas"])
def test_rounds_after_warm_up_import_and_compile_nothing(name: str) -> None:
    subprocess.run([sys.executable, "-c", FIRST_ROUNDS, name], check=True)


@pytest.fixture
def few_files() -> Iterator[int]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, before[1]))
    yield before[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_limit_of_open_files_is_raised_for_the_connections(
    tmp_path: Path, few_files: int, caplog: pytest.LogCaptureFixture
) -> None:
    make_room(told(tmp_path, max_connections=60))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert (soft, hard) == (220, few_files)
    make_room(told(tmp_path, max_connections=10))
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 220
    assert not caplog.records


def test_a_low_hard_limit_of_open_files_is_reported(tmp_path: Path) -> None:
    """In a process of its own: what is given up cannot be taken back."""
    code = (
        "import logging, resource, sys; from pathlib import Path;"
        "from dyclu.service.http.serve import make_room; from tests.service.running import told;"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 150));"
        "logging.basicConfig(); make_room(told(Path(sys.argv[1])));"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "(150, 150)\n"
    assert "lower max_connections" in done.stderr
