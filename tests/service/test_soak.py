"""An hour's worth of events in a moment: what is kept does not grow with what has passed."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path

import pytest

from benchmarks.soak import MOST_GROWTH, ROUNDS, soak
from tests.service.bench import Bench
from tests.service.engine.test_engine_machine import MEMORY


@pytest.mark.parametrize("policy", ["linucb", "atlas"])
def test_memory_stays_constant_while_decisions_are_rewarded_or_expire(
    tmp_path: Path, policy: str
) -> None:
    """Half of the decisions are rewarded, half expire; users and pending decisions are as many."""
    rounds = 600
    folder = MEMORY / f"soak-{tmp_path.name}" if MEMORY.is_dir() else tmp_path
    folder.mkdir(exist_ok=True)
    bench = Bench(folder, policy=policy, options={}, reward_wait=100.0, default_reward=0.0)

    def live(some: int) -> None:
        for _ in range(some):
            bench.now += 1.0
            answer = bench.decide(f"u{bench.count % 50}")
            if bench.count % 2:
                bench.reward(answer.decision_id, 0.5)
            bench.expire()
        gc.collect()

    live(300)
    tracemalloc.start()
    try:
        live(rounds)
        first, _ = tracemalloc.get_traced_memory()
        live(rounds)
        second, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        bench.close()
        for file in sorted(folder.rglob("*"), reverse=True):
            file.unlink() if file.is_file() else file.rmdir()
    assert len(bench.state.pending) <= 101
    # Less than 20 bytes per round: anything kept of each would be many times that.
    assert second - first < 20 * rounds


@pytest.mark.long
@pytest.mark.parametrize("policy", ["linucb", "atlas"])
def test_the_memory_of_the_process_stays_constant_under_load(tmp_path: Path, policy: str) -> None:
    """The real one, under load, seen from outside: what `make soak` does."""
    assert soak(ROUNDS, tmp_path, f"--policy={policy}").growth < MOST_GROWTH
