"""Erasing users from a `Tenant` that serves: nobody else loses anything, and nobody comes back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dyclu.service.records import Erasure, Expiry, line
from dyclu.service.schema import Observation
from dyclu.service.settings import TenantSettings
from dyclu.service.snapshot import JOURNAL
from dyclu.service.state import State
from dyclu.service.tenant import Tenant
from tests.service.bench import Bench
from tests.service.test_store import holding, reading


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


def test_nobody_waits_when_the_journal_is_being_read_during_an_erasure(tmp_path: Path) -> None:
    async def play() -> None:
        served = tenant(tmp_path)
        await served.start(snapshot_every=1000)
        await observe(served, "anastasia", 5)
        with reading(served.folder / JOURNAL):
            async with asyncio.timeout(3):
                await served.erase("anastasia")
                await observe(served, "bob", 5)
                await rebuilt(served)
        async with asyncio.timeout(10):
            while holding(served.folder, b"anastasia"):
                await asyncio.sleep(0.05)
        with reading(served.folder / JOURNAL):
            async with asyncio.timeout(3):
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


def test_who_is_erased_during_a_replay_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        served = tenant(tmp_path)
        await served.start(snapshot_every=1000)
        for user in ("ana", "bob", "cleo"):
            await observe(served, user, 300)
        known: list[bool] = []
        replace = served.engine.replace

        def watched(state: State) -> None:
            known.append("bob" in state.users)
            replace(state)

        monkeypatch.setattr(served.engine, "replace", watched)
        some, read = served._replay_some, asyncio.Event()

        async def slowly(state: State) -> None:
            await some(state)
            if "bob" in state.users and not read.is_set():
                read.set()
                await served.erase("bob")

        monkeypatch.setattr(served, "_replay_some", slowly)
        await served.erase("ana")
        await read.wait()
        await rebuilt(served)
        assert known == [False]
        assert served.state.users.keys() == {"cleo"}
        await served.stop()

    asyncio.run(play())


def test_an_id_that_was_given_again_stays_when_its_first_decision_goes(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.decide("ana", decision_id="d")
    first, second = bench.state.ids["d"], bench.reader.find("d", "decision")
    assert second is not None
    bench.state.apply(line(2, second.at, second.body, ref="d", user="bob"))
    bench.state.apply(line(3, second.at, Expiry([first])))
    assert bench.state.ids == {"d": 2}
    bench.state.apply(line(4, second.at, Expiry([2])))
    assert bench.state.ids == {}
    bench.close()
