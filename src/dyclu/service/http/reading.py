"""Reading request bodies: JSON to the types of `schema`, or a `Refusal` that names the field."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from dyclu.service.refusal import Refusal

_PLACE = re.compile(r" - at `\$\.?(.*)`\Z", re.DOTALL)
_UNKNOWN = re.compile(r"(?:unknown|required) field `([^`]*)`")


class Reader:
    """Decodes the bodies of one type of request, which tells its `texts`.

    Examples
    --------
    >>> from dyclu.service.schema import RewardRequest
    >>> Reader(RewardRequest).read(b'{"value": 1}')
    RewardRequest(value=1.0)
    >>> try:
    ...     Reader(RewardRequest).read(b'{"value": "high"}')
    ... except Refusal as refusal:
    ...     print(refusal.field, refusal)
    value Expected `float`, got `str`
    """

    def __init__(self, kind: type[Any]) -> None:
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(kind)

    def read(self, body: bytes) -> Any:
        """Return the request, or refuse a body that is not one."""
        try:
            request = self._decoder.decode(body)
        except msgspec.ValidationError as error:
            raise _invalid(str(error)) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Refusal(
                400, "malformed", f"the body is not JSON: {error}", field="body"
            ) from None
        # Whatever passes the patterns holds no quotation mark, so each string has exactly two.
        if body.count(b'"') != 2 * request.texts():
            raise _repeated(body)
        return request


def _invalid(message: str) -> Refusal:
    place = _PLACE.search(message)
    path = place[1] if place else ""
    said = message[: place.start()] if place else message
    if named := _UNKNOWN.search(said):
        path = f"{path}.{named[1]}" if path else named[1]
    return Refusal(422, "invalid", said, field=path or "body")


def _repeated(body: bytes) -> Refusal:
    """Return the refusal of a body that gives a field twice; the slow way, as it is rare."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        for name in names:
            if names.count(name) > 1:
                raise Refusal(422, "repeated", f"{name} is given twice", field=name)
        return dict(pairs)

    try:
        json.loads(body, object_pairs_hook=once)
    except Refusal as refusal:
        return refusal
    return Refusal(422, "repeated", "a field is given twice", field="body")
