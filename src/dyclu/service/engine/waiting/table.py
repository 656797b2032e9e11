"""`WaitingTable`: numbers of pending decisions with a few values each, in compact columns.

A dict of objects takes hundreds of bytes per decision. With a hundred decisions per second and a
day of waiting, eight million are pending; here each takes the bytes of its values, and two dozen
bytes more at most.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCK = 4096
"""Rows per block. A block is searched and scanned as a whole, which takes some microseconds."""

SPARE = 1.5
"""Rows, removed ones included, per row that is left, above which blocks are packed again."""

NEVER = 2**62


class _Block:
    """Rows with increasing numbers; `low` is at most the least value of the ordered column."""

    __slots__ = ("columns", "live", "low", "rows", "used")

    def __init__(self, types: dict[str, Any]) -> None:
        self.columns: dict[str, NDArray[Any]] = {
            name: np.empty(BLOCK, dtype) for name, dtype in types.items()
        }
        self.live: NDArray[np.bool_] = np.zeros(BLOCK, np.bool_)
        self.used = self.rows = 0
        self.low = NEVER

    def find(self, seq: int) -> int | None:
        """Return the row of a number, None if it is not there or was removed."""
        row = int(np.searchsorted(self.columns["seq"][: self.used], seq))
        there = row < self.used and self.columns["seq"][row] == seq and self.live[row]
        return row if there else None


class WaitingTable:
    """Rows by number, added in increasing order of their numbers, removed in any order.

    Parameters
    ----------
    ordered : str
        Name of the column by which `upto` finds rows; its values are whole numbers.
    **types
        Names and numpy types of the columns.

    Examples
    --------
    >>> table = WaitingTable("due", due=np.int64)
    >>> for seq, due in ((3, 50), (5, 40), (9, 60)):
    ...     table.add(seq, due=due)
    >>> table.upto(50, most=9), len(table), 9 in table
    ([5, 3], 3, True)
    >>> table.remove(5), list(table), table.get(3, "due")
    (True, [3, 9], 50)
    """

    def __init__(self, ordered: str, **types: Any) -> None:
        self._ordered = ordered
        self._types = {"seq": np.int64, **types}
        self._blocks: list[_Block] = []
        self._firsts: list[int] = []
        self._rows = self._last = 0

    def __len__(self) -> int:
        return self._rows

    def __iter__(self) -> Iterator[int]:
        for block in self._blocks:
            yield from block.columns["seq"][block.live].tolist()

    def __contains__(self, seq: object) -> bool:
        return isinstance(seq, int) and self._find(seq) is not None

    @property
    def nbytes(self) -> int:
        """Bytes of all columns."""
        row = 1 + sum(int(np.dtype(kind).itemsize) for kind in self._types.values())
        return row * BLOCK * len(self._blocks)

    def add(self, seq: int, **values: int) -> None:
        """Add a row; its number is larger than all before."""
        if not self._blocks or self._blocks[-1].used == BLOCK:
            self._pack_if_sparse()
            self._blocks.append(_Block(self._types))
            self._firsts.append(seq)
        assert seq > self._last
        block, self._last = self._blocks[-1], seq
        row = block.used
        block.columns["seq"][row], block.live[row] = seq, True
        for name, value in values.items():
            block.columns[name][row] = value
        block.low = min(block.low, values[self._ordered])
        block.used, block.rows = row + 1, block.rows + 1
        self._rows += 1

    def get(self, seq: int, name: str) -> int:
        """Return one value of a row that is there."""
        found = self._find(seq)
        if found is None:
            raise KeyError(seq)
        block, row = found
        return int(block.columns[name][row])

    def row(self, seq: int) -> dict[str, int] | None:
        """Return all values of a row; None if it is not there."""
        found = self._find(seq)
        if found is None:
            return None
        block, row = found
        return {name: int(column[row]) for name, column in block.columns.items()}

    def put(self, seq: int, **values: int) -> None:
        """Change values of a row that is there."""
        found = self._find(seq)
        if found is None:
            raise KeyError(seq)
        block, row = found
        for name, value in values.items():
            block.columns[name][row] = value
        block.low = min(block.low, values.get(self._ordered, NEVER))

    def put_all(self, name: str, value: int) -> None:
        """Give all rows this value in a column, which is not the ordered one."""
        assert name != self._ordered
        for block in self._blocks:
            block.columns[name][:] = value

    def remove(self, seq: int) -> bool:
        """Remove a row; return whether it was there."""
        found = self._find(seq)
        if found is None:
            return False
        block, row = found
        block.live[row] = False
        block.rows -= 1
        self._rows -= 1
        if not block.rows and block.used == BLOCK:
            at = self._blocks.index(block)
            del self._blocks[at], self._firsts[at]
        return True

    def upto(self, value: int, *, most: int) -> list[int]:
        """Return numbers of rows whose ordered column is at most `value`, the least value first."""
        found: list[tuple[int, int]] = []
        for block in sorted(self._blocks, key=lambda one: one.low):
            # Blocks are visited by their least value: later ones hold nothing that comes earlier.
            if block.low > value or (len(found) >= most and block.low > found[most - 1][0]):
                break
            found = sorted(found + self._due(block, value))
        return [seq for _, seq in found[:most]]

    def _due(self, block: _Block, value: int) -> list[tuple[int, int]]:
        column = block.columns[self._ordered]
        block.low = int(column[block.live].min()) if block.rows else NEVER
        rows = np.flatnonzero(block.live & (column <= value))
        return list(zip(column[rows].tolist(), block.columns["seq"][rows].tolist(), strict=True))

    def column(self, name: str) -> NDArray[Any]:
        """Return a copy of one column, by increasing number."""
        parts = [block.columns[name][block.live] for block in self._blocks]
        return np.concatenate([np.empty(0, self._types[name]), *parts])

    def fill(self, **columns: NDArray[Any]) -> None:
        """Replace all rows by these, whose numbers (`seq`) increase."""
        self._blocks, self._firsts, self._rows = [], [], len(columns["seq"])
        self._last = max(self._last, int(columns["seq"][-1])) if self._rows else self._last
        for start in range(0, self._rows, BLOCK):
            block = _Block(self._types)
            for name, values in columns.items():
                part = values[start : start + BLOCK]
                block.columns[name][: len(part)] = part
            block.used = block.rows = len(columns["seq"][start : start + BLOCK])
            block.live[: block.used] = True
            block.low = int(block.columns[self._ordered][: block.used].min())
            self._blocks.append(block)
            self._firsts.append(int(block.columns["seq"][0]))

    def _pack_if_sparse(self) -> None:
        if len(self._blocks) * BLOCK > SPARE * self._rows + 2 * BLOCK:
            self.fill(**{name: self.column(name) for name in self._types})

    def _find(self, seq: int) -> tuple[_Block, int] | None:
        at = bisect_right(self._firsts, seq) - 1
        if at < 0 or seq > self._last:
            return None
        row = self._blocks[at].find(seq)
        return None if row is None else (self._blocks[at], row)
