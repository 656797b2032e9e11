"""`clear_gaps`: overwrite what SQLite leaves in unused space of its pages.

With `secure_delete` SQLite overwrites what it deletes. But when it moves entries from a page to its
neighbours, because one is full or nearly empty, copies of them can stay in the unused space between
the page's list of entries and its first entry. Such a copy is still there when the entry itself has
been deleted.

SQLite never reads this space, so it may be overwritten whenever no write is under way. Only bytes
in it are written: a process that is killed in between, or one that reads, finds a valid database.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

AT_ONCE = 1000
"""Pages that are looked at in one turn of the writer; requests wait for a few milliseconds."""

_HEADERS = {2: 12, 5: 12, 10: 8, 13: 8}
"""Lengths of the headers of pages with entries, by the first byte of the page."""

_FILE_HEADER = 100
"""Bytes before the header of the first page."""

MOST_PAGES = 1 << 25
"""Pages with entries can be told from others by their first byte in files of up to 137 GB.

Other pages begin with the number of a page, so that this byte is 0.
"""


def clear_gaps(file: int, first: int, *, size: int) -> int:
    """Clear the next pages of a database; return the number of the page after them, 0 at the end.

    `file` is open for writing, `first` counts from 0, `size` is that of a page.
    """
    pages = os.pread(file, AT_ONCE * size, first * size)
    for start, length in _gaps(pages, first, size):
        os.pwrite(file, bytes(length), first * size + start)
    following = first + AT_ONCE
    if following * size < os.fstat(file).st_size and following < MOST_PAGES:
        return following
    os.fsync(file)
    return 0


def _gaps(pages: bytes, first: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield beginning and length of unused space that is not empty."""
    for page in range(0, len(pages), size):
        header = page + (_FILE_HEADER if first == page == 0 else 0)
        length = _HEADERS.get(pages[header])
        if length is None:
            continue
        entries = int.from_bytes(pages[header + 3 : header + 5], "big")
        begin = header + length + 2 * entries
        end = page + (int.from_bytes(pages[header + 5 : header + 7], "big") or size)
        if pages[begin:end].strip(b"\0"):
            yield begin, end - begin
