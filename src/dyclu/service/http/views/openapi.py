"""The OpenAPI document, made from the table of calls and the types that validate."""

from __future__ import annotations

from typing import Any

import msgspec

from dyclu import __version__
from dyclu.service import schema
from dyclu.service.http.calls import CALLS, Call

REFUSALS = {
    400: "The request cannot be read.",
    401: "No key, or an unknown one.",
    403: "The key does not allow this, or without keys a page of another site asks.",
    404: "There is no such thing.",
    408: "The body took too long.",
    409: "It contradicts what is already known.",
    410: "The decision has expired.",
    413: "The body is too large.",
    415: "The body must be application/json.",
    421: "Without keys only loopback host names are answered.",
    422: "A field is missing, wrong or beyond a limit; the answer names it.",
    429: "A limit is reached, which the answer names; try again after Retry-After seconds.",
    431: "The headers are too large.",
    503: "Starting, the disk cannot be written, or others use the same id; try again later.",
}
_EVERYWHERE = (400, 401, 403, 421, 422, 429, 431, 503)
_WITH_BODY = (408, 413, 415)


def document() -> dict[str, Any]:
    """Return the OpenAPI document.

    >>> sorted(document()["paths"])[:2]
    ['/healthz', '/metrics']
    """
    types = {kind for call in CALLS for kind in (call.takes, call.takes_named, call.gives) if kind}
    types |= {schema.Refused, schema.Health, schema.TenantsHealth, schema.ClusterView}
    ordered = sorted(types, key=lambda kind: kind.__name__)
    template = "#/components/schemas/{name}"
    references, components = msgspec.json.schema_components(ordered, ref_template=template)
    shape = dict(zip(ordered, references, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for call in CALLS:
        paths.setdefault(call.path, {})[call.method.lower()] = _operation(call, shape)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "dyclu",
            "version": __version__,
            "summary": "Decisions for users who resemble each other and change.",
        },
        "paths": paths | _plain_paths(shape),
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}, {}],
    }


def _operation(call: Call, shape: dict[type[Any], Any]) -> dict[str, Any]:
    statuses = {*call.refuses, *_EVERYWHERE}
    if call.takes:
        statuses |= {*_WITH_BODY}
    responses = {"202" if call.method == "DELETE" else "200": _content("Done.", shape[call.gives])}
    for status in sorted(statuses):
        responses[str(status)] = _content(REFUSALS[status], shape[schema.Refused])
    told: dict[str, Any] = {
        "operationId": call.name,
        "summary": call.summary,
        "responses": responses,
    }
    if parameters := _parameters(call):
        told["parameters"] = parameters
    if call.takes:
        bodies = [shape[kind] for kind in (call.takes, call.takes_named) if kind]
        told["requestBody"] = {
            "required": True,
            "content": {
                "application/json": {"schema": bodies[0] if len(bodies) == 1 else {"anyOf": bodies}}
            },
        }
    return told


def _parameters(call: Call) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if "{id}" in call.path:
        text = {"type": "string", "maxLength": schema.LONGEST_ID, "pattern": schema.ID}
        found.append({"name": "id", "in": "path", "required": True, "schema": text})
    for name, meaning in call.query.items():
        number = {"type": "integer", "minimum": 0, "maximum": 2**53}
        found.append({"name": name, "in": "query", "description": meaning, "schema": number})
    return found


def _plain_paths(shape: dict[type[Any], Any]) -> dict[str, Any]:
    """Return the paths for machines that watch."""
    health = _content("Yes.", shape[schema.Health])
    unready = _content("No; the reason is given.", shape[schema.Health])
    text = {"description": "Metrics.", "content": {"text/plain": {"schema": {"type": "string"}}}}
    refused = {
        str(status): _content(REFUSALS[status], shape[schema.Refused])
        for status in (400, 401, 403, 421, 431)
    }
    return {
        "/healthz": {"get": {"summary": "Is it alive?", "responses": {"200": health}}},
        "/readyz": {
            "get": {"summary": "Can it write?", "responses": {"200": health, "503": unready}}
        },
        "/tenants": {
            "get": {
                "summary": "Health of each tenant that the key may see; an operator sees all.",
                "responses": {"200": _content("Yes.", shape[schema.TenantsHealth]), **refused},
            }
        },
        "/v1/cluster": {
            "get": {
                "operationId": "cluster",
                "summary": "Show the processes of a cluster, and who owns which partition.",
                "responses": {
                    "200": _content("Done.", shape[schema.ClusterView]),
                    **refused,
                    "404": _content("This service is no cluster.", shape[schema.Refused]),
                },
            }
        },
        "/metrics": {
            "get": {
                "summary": "Numbers for Prometheus.",
                "responses": {"200": text, **refused},
            }
        },
    }


def _content(description: str, schema: Any) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}
