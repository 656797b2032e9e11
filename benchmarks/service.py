"""CPU time of the service per decision, beside a bare endpoint that only scores the same arms.

``python -m benchmarks.service`` starts both, asks them the same things in turns, and compares the
CPU time their processes took: a ratio within one run, which a busy machine hardly moves.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import numpy as np

from dyclu.service.loadtest import Load, People
from dyclu.service.wire import Wire

DIM, ARMS, CLIENTS = 25, 10, 64

BARE = """
import sys, msgspec, numpy as np, uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
import dyclu

class Arm(msgspec.Struct):
    id: str
    features: list[float]

class Ask(msgspec.Struct):
    user: str
    decision_id: str
    arms: list[Arm]

decode, encode = msgspec.json.Decoder(Ask).decode, msgspec.json.Encoder().encode
policy = dyclu.LinUCB(int(sys.argv[2]), alpha=0.3)

async def decide(request: Request) -> Response:
    asked = decode(await request.body())
    arms = np.array([arm.features for arm in asked.arms])
    decision = policy.decide(asked.user, arms)
    answer = {"arm": asked.arms[decision.arm].id, "mean": decision.mean, "width": decision.width}
    return Response(encode(answer), media_type="application/json")

app = Starlette(routes=[Route("/v1/decisions", decide, methods=["POST"])])
uvicorn.run(app, port=int(sys.argv[1]), http="httptools", access_log=False, log_level="warning")
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def cpu(pid: int) -> float:
    """CPU seconds a process has taken, all its threads."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


async def ask(port: int, people: People, count: int) -> list[int]:
    """Ask for decisions, from all clients at once, and return their numbers."""
    asked: list[int] = []

    async def client(share: int) -> None:
        wire = Wire("127.0.0.1", port, None)
        for _ in range(share):
            number, _, body = people.round()
            status, _ = await wire.post("/v1/decisions", body)
            assert status == 200, status
            asked.append(number)
        wire.close()

    await asyncio.gather(*(client(count // CLIENTS) for _ in range(CLIENTS)))
    return asked


async def reward(port: int, people: People, numbers: list[int]) -> None:
    """Reward these decisions, from all clients at once."""

    async def client(share: list[int]) -> None:
        wire = Wire("127.0.0.1", port, None)
        for number in share:
            path = f"/v1/decisions/{people.run}-{number}/reward"
            status, _ = await wire.post(path, b'{"value":0.5}')
            assert status == 200, status
        wire.close()

    await asyncio.gather(*(client(numbers[i::CLIENTS]) for i in range(CLIENTS)))


async def wait_for(port: int) -> None:
    for _ in range(200):
        try:
            await Wire("127.0.0.1", port, None).get("/healthz")
            return
        except OSError:
            await asyncio.sleep(0.1)
    raise SystemExit("a server did not start")


def started(script: str, *words: str) -> subprocess.Popen[bytes]:
    nowhere = subprocess.DEVNULL
    return subprocess.Popen([sys.executable, "-c", script, *words], stdout=nowhere, stderr=nowhere)


def measured(rounds: int, count: int, folder: Path) -> dict[str, float]:
    bare_port, port = free_port(), free_port()
    serve = "from dyclu.cli import main; main()"
    flags = ["serve", f"--port={port}", f"--data={folder}", f"--dim={DIM}"]
    flags += ["--policy=linucb", "--options=alpha=0.3"]
    bare, ours = started(BARE, str(bare_port), str(DIM)), started(serve, *flags)
    people = People(Load(arms=ARMS), DIM)
    costs: dict[str, list[float]] = {"bare": [], "service": [], "reward": []}
    try:
        for where in (bare_port, port):
            asyncio.run(wait_for(where))
            asyncio.run(ask(where, people, CLIENTS * 4))
        for _ in range(rounds):
            for name, child, where in (("bare", bare, bare_port), ("service", ours, port)):
                before = cpu(child.pid)
                asked = asyncio.run(ask(where, people, count))
                costs[name].append((cpu(child.pid) - before) / len(asked) * 1e6)
            before = cpu(ours.pid)
            asyncio.run(reward(port, people, asked))
            costs["reward"].append((cpu(ours.pid) - before) / len(asked) * 1e6)
    finally:
        for child in (bare, ours):
            child.terminate()
            child.wait()
    ratios = np.array(costs["service"]) / np.array(costs["bare"])
    return {
        "bare_us_per_decision": round(median(costs["bare"]), 1),
        "service_us_per_decision": round(median(costs["service"]), 1),
        "ratio": round(float(np.median(ratios)), 2),
        "service_us_per_durable_reward": round(median(costs["reward"]), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=3200, help="decisions per round")
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measured(told.rounds, told.count, Path(folder)), indent=2))


if __name__ == "__main__":
    main()
