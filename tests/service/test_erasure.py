"""Erasing users from a `Tenant` that serves: nobody else loses anything, and nobody comes back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dyclu.service.records import Erasure, line
from dyclu.service.schema import Observation
from dyclu.service.settings import TenantSettings
from dyclu.service.state import State
from dyclu.service.tenant import Tenant


def tenant(folder: Path, **rules: Any) -> Tenant:
    told: dict[str, Any] = {"dim": 2, "policy": "linucb", "options": {"alpha": 0.5}}
    return Tenant("t", folder / "data" / "t", TenantSettings(**(told | rules)))


async def observe(served: Tenant, user: str, times: int = 1) -> None:
    told = (Observation(user, [1.0, 0.0], 1.0) for _ in range(times))
    await asyncio.gather(*map(served.observe, told))


async def rebuilt(served: Tenant) -> None:
    while served.rebuilding:
        await asyncio.sleep(0.001)


def test_a_reward_that_arrives_together_with_an_erasure_is_learnt(tmp_path: Path) -> None:
    async def play() -> None:
        served = tenant(tmp_path)
        await served.start(snapshot_every=1000)
        await observe(served, "ana", 5)
        told = Observation("bob", [1.0, 0.0], 1.0)
        await asyncio.gather(served.erase("ana"), served.observe(told))
        await rebuilt(served)
        assert served.state.users["bob"].rewards == 1
        assert [one.kind for one in served._reader.after(0)] == ["erasure", "event"]
        await served.stop()

    asyncio.run(play())


def test_a_line_behind_the_last_one_is_not_taken_in() -> None:
    spec = TenantSettings(dim=2, policy="linucb", options={"alpha": 0.5}).spec()
    state = State(spec.make())
    state.apply(line(2, 0, Erasure()))
    for late in (1, 2):
        with pytest.raises(RuntimeError, match="came after line 2"):
            state.apply(line(late, 0, Erasure()))
    assert state.total.seq == 2
