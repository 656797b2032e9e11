"""Which partition of a cluster a user is in, and which one a decision's id tells."""

from __future__ import annotations

import hashlib
import re

_MADE = re.compile(r"[0-9a-f]{14}-[0-9a-f]{16}-p([0-9a-f]{1,4})")


def partition_of(user: str, partitions: int) -> int:
    """Return the partition of a user: BLAKE2b of the name, 8 bytes, big-endian, modulo.

    It must never change: the lines of the user are there.

    >>> [partition_of(user, 64) for user in ("ana", "bea", "žofie")]
    [59, 13, 8]
    """
    digest = hashlib.blake2b(user.encode(), digest_size=8, person=b"dyclu-partition").digest()
    return int.from_bytes(digest, "big") % partitions


def with_partition(id: str, partition: int) -> str:
    """Return a new id that tells its partition.

    >>> told_by(with_partition("0005f6c1a2b3c4-00112233445566ff", 31))
    31
    """
    return f"{id}-p{partition:x}"


def told_by(id: str) -> int | None:
    """Return the partition that an id tells; None if a caller chose the id.

    >>> told_by("order-7")
    """
    found = _MADE.fullmatch(id)
    return None if found is None else int(found[1], 16)
