"""A minimal endpoint that scores arms, without checks or storage: the reference for the service.

``python -m benchmarks.endpoint PORT DIM`` runs Starlette and msgspec with LinUCB.
"""

from __future__ import annotations

import sys

import msgspec
import numpy as np
import uvicorn
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


def main() -> None:
    port, dim = map(int, sys.argv[1:])
    app = application(dim)
    uvicorn.run(app, port=port, http="httptools", access_log=False, log_level="warning")


if __name__ == "__main__":
    main()
