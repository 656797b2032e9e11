"""The page of the HTTP interface, made from the OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dyclu.service.http.views.openapi import REFUSALS, document
from website.markdown import paragraphs, table

LEAD = """\
# HTTP

All calls, and the types of their bodies and answers. [Serve](../service.md) explains them with
examples. A running service has the same as `/openapi.json`, for code generators. Bodies are JSON,
with `Content-Type: application/json`; with keys, each request has the header `Authorization: Bearer
dyclu_…`.

"""

Json = Mapping[str, Any]


def page() -> str:
    r"""Return the page: all calls, all refusals, all types.

    >>> "### POST /v1/decisions\n" in page()
    True
    """
    told = document()
    calls = "".join(
        _call(method, path, call)
        for path, methods in told["paths"].items()
        for method, call in methods.items()
    )
    rows = [(str(status), meaning) for status, meaning in REFUSALS.items()]
    refusals = table(["status", "meaning"], rows)
    types = "".join(_type(name, kind) for name, kind in told["components"]["schemas"].items())
    return f"{LEAD}## Calls\n\n{calls}## Refusals\n\n{refusals}## Types\n\n{types}"


def _call(method: str, path: str, call: Json) -> str:
    responses = call["responses"]
    answers = [f"{status}: {_content(responses[status])}" for status in responses if status < "400"]
    refusals = [status for status in responses if status >= "400"]
    rows = [
        ("path" if one["in"] == "path" else "query", f"`{one['name']}`: {_shape(one['schema'])}")
        for one in call.get("parameters", ())
    ]
    if body := call.get("requestBody"):
        rows.append(("body", _content(body)))
    rows.append(("answer", ", ".join(answers)))
    if refusals:
        rows.append(("refusals", ", ".join(f"[{one}](#refusals)" for one in refusals)))
    return f"### {method.upper()} {path}\n\n{call['summary']}\n\n{table(['', ''], rows)}"


def _content(told: Json) -> str:
    return ", ".join(_shape(one["schema"]) for one in told["content"].values())


def _type(name: str, kind: Json) -> str:
    needed = set(kind.get("required", ()))
    rows = [
        (f"`{field}`", _shape(shape), _default(field in needed, shape), _meaning(shape))
        for field, shape in kind.get("properties", {}).items()
    ]
    header = ["field", "type", "default", "meaning"]
    if not any(meaning for *_, meaning in rows):
        header, rows = header[:3], [row[:3] for row in rows]  # type: ignore[misc]
    return f"### {name}\n\n{paragraphs(kind.get('description', ''))}{table(header, rows)}"


def _default(needed: bool, shape: Json) -> str:
    if needed:
        return "needed"
    return f"`{shape['default']!r}`" if "default" in shape else ""


def _meaning(shape: Json) -> str:
    said = str(shape.get("description", ""))
    bounds = [
        f"{word} {shape[key]}"
        for key, word in (
            ("minimum", "at least"), ("exclusiveMinimum", "above"), ("maximum", "at most"),
            ("maxLength", "length at most"), ("minItems", "items at least"),
        )
        if key in shape
    ]  # fmt: skip
    limits = (", ".join(bounds) + ".").capitalize() if bounds else ""
    return " ".join(part for part in (said, limits) if part)


def _shape(shape: Json) -> str:
    """Return a type in words.

    >>> _shape({"type": "array", "items": {"$ref": "#/components/schemas/Arm"}})
    'list of [Arm](#arm)'
    >>> _shape({"anyOf": [{"type": "number"}, {"type": "null"}]})
    'number or null'
    """
    if "$ref" in shape:
        name = shape["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in shape:
        return " or ".join(dict.fromkeys(_shape(one) for one in shape["anyOf"]))
    if "enum" in shape:
        return ", ".join(f'`"{one}"`' for one in shape["enum"])
    if shape.get("type") == "array":
        return f"list of {_shape(shape['items'])}"
    if isinstance(values := shape.get("additionalProperties"), Mapping):
        return f"object with values of: {_shape(values)}"
    return str(shape.get("type", "anything"))
