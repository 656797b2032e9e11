"""Logs on their way to a service: rows as observations with ids, in batches."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dyclu.client.requests import Request, ServiceError, observations_request, service_error
from dyclu.data import Log
from dyclu.errors import KindError, OptionError
from dyclu.validation import ID, LONGEST_ID

BATCH = 500
"""Observations in one request."""

BATCH_NUMBERS = 50_000
"""Features in one request at most: about a megabyte of JSON."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What became of a log: its rows, and how many of them the service had learnt before."""

    rows: int
    repeated: int


def parts(rows: Iterable[Mapping[str, Any]], size: int) -> Iterator[list[Mapping[str, Any]]]:
    """Yield rows in lists of `size`, the last of which may be shorter."""
    part: list[Mapping[str, Any]] = []
    for row in rows:
        part.append(row)
        if len(part) == size:
            yield part
            part = []
    if part:
        yield part


def checked_log(log: Log, name: str, features: dict[str, Any]) -> None:
    """Read all of a log before any of it is sent; raise an error that names the row."""
    if not _is_id(f"{name}:0"):
        raise OptionError(f"name is {name!r}, expected letters, digits and _.-")
    version = getattr(log.features, "version", None)
    if None not in (version, features["version"]) and version != features["version"]:
        raise OptionError(
            f"the log was read with version {version} of the features, the service has version "
            f"{features['version']}; read it with features=client.features()"
        )
    if log.dim != len(features["names"]):
        raise OptionError(
            f"the log has vectors of {log.dim} features, the service's have "
            f"{len(features['names'])}; read it with features=client.features()"
        )
    users: dict[str, type[Any]] = {}
    for number, row in enumerate(_rows_of(log, name)):
        for name_of in ("user", "event_id"):
            if not _is_id(row[name_of]):
                raise OptionError(
                    f"row {number}: {name_of} is {row[name_of]!r}, expected an id of up to "
                    f"{LONGEST_ID} letters, digits and _.:@+=~-; replace it by a hash"
                )
        kind = users.setdefault(row["user"], row["kind"])
        if kind is not row["kind"]:
            raise KindError(
                f"row {number}: user {row['user']} is a {row['kind'].__name__}, and a "
                f"{kind.__name__} before, expected one of them; the service knows only text"
            )


def _rows_of(log: Log, name: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a log as observations, with the type of the user as `kind`."""
    number = 0
    for chunk in log.chunks():
        contexts = chunk.contexts
        for place, user in enumerate(chunk.user):
            id = number if chunk.decision is None else chunk.decision[place]
            row = {
                "user": str(user),
                "kind": type(user),
                "features": contexts[place],
                "reward": float(chunk.reward[place]),
                "event_id": f"{name}:{id}",
            }
            if chunk.time is not None:
                row["at"] = float(chunk.time[place])
            if chunk.propensity is not None:
                row["propensity"] = float(chunk.propensity[place])
            yield row
            number += 1


def log_requests(log: Log, name: str) -> Iterator[Request]:
    """Yield the rows of a log in batches."""
    size = max(1, min(BATCH, BATCH_NUMBERS // log.dim))
    for part in parts(_rows_of(log, name), size):
        yield observations_request(
            {key: value for key, value in row.items() if key != "kind"}
            | {"features": row["features"].tolist()}
            for row in part
        )


def learnt_before(answer: dict[str, Any], first: int) -> list[bool]:
    """Return which rows of a batch had been learnt before; raise an error that names the row."""
    for place, result in enumerate(answer["results"]):
        if result["status"] == "refused":
            raise _of_row(service_error(result["http"], result["error"]), first + place)
    return [result["repeated"] for result in answer["results"]]


def _of_row(error: ServiceError, row: int) -> ServiceError:
    said = f"row {row}: {error}; correct it and load the log again: no row is learnt twice"
    return ServiceError(said, status=error.status, code=error.code, field=error.field)


def renumbered(error: ServiceError, first: int) -> ServiceError:
    """Return a refusal of a batch with the row of the log that it is about."""
    place = re.match(r"observations\[(\d+)\]", error.field or "")
    return error if place is None else _of_row(error, first + int(place[1]))


def _is_id(text: str) -> bool:
    return len(text) <= LONGEST_ID and re.fullmatch(ID, text) is not None
