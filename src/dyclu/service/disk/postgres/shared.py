"""Snapshots in the database: the next owner of a partition begins with the latest of them.

A snapshot is two files, cut into parts. A fact of the partition names the one that is whole; parts
of others are deleted when it is put in force, and by each take-over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from dyclu.service.disk.bases import PART
from dyclu.service.disk.postgres.database import Claim
from dyclu.storage import make_folder

SNAPSHOTS = "snapshots"
"""Folder of the snapshots beside the copy of a journal."""

FACT = "snapshot"
"""Fact that names the snapshot in force, without the suffixes of its files."""

SUFFIXES = (".policy", ".state")

_STEM = re.compile(r"[0-9]{8}-[0-9]{20}")
_OURS = "tenant = %(tenant)s AND partition = %(partition)s"
_VALUE = f"SELECT value FROM dyclu.fact WHERE {_OURS} AND name = %(name)s"


def latest(folder: Path) -> Path | None:
    """Return the latest whole snapshot in a folder, without suffix; None if there is none."""
    found = (path.with_suffix("") for path in folder.glob("*.state"))
    whole = [stem for stem in found if _STEM.fullmatch(stem.name)]
    # By line, then by epoch: the name has them the other way round.
    return max(whole, key=lambda stem: stem.name.partition("-")[::-1], default=None)


def pieces(stem: Path) -> Iterator[tuple[str, int, bytes]]:
    """Yield name of the file, number and content of each part of a snapshot."""
    for suffix in SUFFIXES:
        path = stem.with_suffix(suffix)
        with path.open("rb") as file:
            for part, piece in enumerate(iter(partial(file.read, PART), b"")):
                yield path.name, part, piece


def put(connection: Any, claim: Claim, file: str, part: int, content: bytes) -> None:
    """Store a part."""
    connection.execute(
        "INSERT INTO dyclu.snapshot VALUES (%(tenant)s, %(partition)s, %(file)s, %(part)s, "
        "%(content)s) ON CONFLICT (tenant, partition, file, part) "
        "DO UPDATE SET bytes = excluded.bytes",
        {**claim.named, "file": file, "part": part, "content": content},
    )


def put_in_force(connection: Any, claim: Claim, stem: str) -> bool:
    """Note that the next owner begins with this snapshot; return whether that was noted.

    It is not if somebody was erased since the snapshot was made: then its parts are deleted.
    """
    (epoch,) = connection.execute(_VALUE, {**claim.named, "name": "epoch"}).fetchone()
    current = int(stem.partition("-")[0]) == int(epoch)
    if current:
        connection.execute(
            "INSERT INTO dyclu.fact VALUES (%(tenant)s, %(partition)s, %(name)s, %(value)s) "
            "ON CONFLICT (tenant, partition, name) DO UPDATE SET value = excluded.value",
            {**claim.named, "name": FACT, "value": stem},
        )
    drop_others(connection, claim)
    return current


def drop_others(connection: Any, claim: Claim) -> str | None:
    """Delete parts of snapshots that are not in force; return the name of the one that is."""
    row = connection.execute(_VALUE, {**claim.named, "name": FACT}).fetchone()
    stem = None if row is None else str(row[0])
    files = [] if stem is None else [f"{stem}{suffix}" for suffix in SUFFIXES]
    connection.execute(
        f"DELETE FROM dyclu.snapshot WHERE {_OURS} AND file != ALL(%(files)s)",
        {**claim.named, "files": files},
    )
    return stem


def fetch(connection: Any, claim: Claim, tenant: Path) -> str | None:
    """Write the snapshot in force to the folder of a copy; return its name, None without one."""
    stem = drop_others(connection, claim)
    make_folder(tenant / SNAPSHOTS)
    if stem is None:
        return None
    for suffix in SUFFIXES:
        with (tenant / SNAPSHOTS / f"{stem}{suffix}").open("wb") as out:
            rows = connection.execute(
                f"SELECT bytes FROM dyclu.snapshot WHERE {_OURS} AND file = %(file)s ORDER BY part",
                {**claim.named, "file": f"{stem}{suffix}"},
            )
            out.writelines(piece for (piece,) in rows)
    return stem
