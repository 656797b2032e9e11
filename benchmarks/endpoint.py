"""A minimal endpoint that scores arms, without checks or storage: the reference for the service.

``python -m benchmarks.endpoint PORT DIM [SERVER]`` runs Starlette and msgspec with LinUCB, on the
server that the service uses or on another one of `SERVERS`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from functools import partial

import msgspec
import numpy as np
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import dyclu
from dyclu.service.http.edge.listener import listening
from dyclu.service.settings import settings


class Arm(msgspec.Struct):
    id: str
    features: list[float]


class Ask(msgspec.Struct):
    user: str
    decision_id: str
    arms: list[Arm]


def application(dim: int) -> Starlette:
    decode, encode = msgspec.json.Decoder(Ask).decode, msgspec.json.Encoder().encode
    policy = dyclu.LinUCB(dim, alpha=0.3)

    async def decide(request: Request) -> Response:
        asked = decode(await request.body())
        arms = np.array([arm.features for arm in asked.arms])
        made = policy.decide(asked.user, arms)
        answer = {"arm": asked.arms[made.arm].id, "mean": made.mean, "width": made.width}
        return Response(encode(answer), media_type="application/json")

    return Starlette(routes=[Route("/v1/decisions", decide, methods=["POST"])])


def on_granian(app: Starlette, port: int) -> None:
    """Serve as the service does."""
    given = settings({"dim": 1, "port": port}, environment={})

    async def serve() -> None:
        async with listening(app, given):
            await asyncio.Event().wait()

    uvloop.run(serve())


def on_uvicorn(app: Starlette, port: int, parser: str) -> None:
    """Serve with uvicorn, and h11 or httptools; needs the extra `bench`."""
    import uvicorn

    uvicorn.run(app, port=port, http=parser, access_log=False, log_level="warning")


SERVERS: dict[str, Callable[[Starlette, int], None]] = {
    "granian": on_granian,
    "h11": partial(on_uvicorn, parser="h11"),
    "httptools": partial(on_uvicorn, parser="httptools"),
}


def main() -> None:
    port, dim = map(int, sys.argv[1:3])
    SERVERS[sys.argv[3] if len(sys.argv) > 3 else "granian"](application(dim), port)


if __name__ == "__main__":
    main()
