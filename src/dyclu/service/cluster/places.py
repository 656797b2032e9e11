"""A place: one partition of one tenant. Which partition a user is in, the client knows too."""

from __future__ import annotations

from dyclu.client.partitions import partition_of, told_by, with_partition

Place = tuple[str, int]
"""A tenant, and the number of a partition."""

__all__ = ["Place", "partition_of", "told_by", "with_partition"]
