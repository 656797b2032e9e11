"""Draw docs/architecture.svg: the rooms of the package, and which room imports which.

The rows are the layers of the import contracts in pyproject.toml; the arrows are the imports that
the code really has, without those that follow from others (A → C is left out beside A → B → C). Run
it after adding a room: ``python -m tests.architecture``. A test fails while the picture is old.
"""

from __future__ import annotations

import ast
import textwrap
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "architecture.svg"
WIDTH, MARGIN, GAP = 980, 20, 24
LINE, PADDING, ROW_GAP = 17, 11, 34
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2933 }
  .name { font-weight: 600; font-family: ui-monospace, monospace }
  .room { fill: #f5f7fa; stroke: #9aa5b1 }
  .inner { fill: #ffffff; stroke: #cbd2d9 }
  .arrow { fill: none; stroke: #52606d; stroke-width: 1.4; marker-end: url(#head) }
"""


@dataclass(frozen=True)
class Room:
    """A module or package: its name, what it is for, and the rooms inside, row by row."""

    module: str
    purpose: str
    inside: tuple[tuple[Room, ...], ...] = ()

    @property
    def name(self) -> str:
        """Return the last part of the module's name, with a slash if it is a folder."""
        return self.module.rpartition(".")[2] + ("/" if path_of(self.module).is_dir() else ".py")


def path_of(module: str) -> Path:
    """Return the folder or file of a module."""
    path = ROOT.joinpath("src", *module.split("."))
    return path if path.is_dir() else path.with_suffix(".py")


def purpose(module: str) -> str:
    """Return the first line of a module's docstring."""
    path = path_of(module)
    file = path / "__init__.py" if path.is_dir() else path
    docstring = ast.get_docstring(ast.parse(file.read_text())) or ""
    return docstring.partition("\n")[0].replace("`", "")


def layers() -> dict[str, list[list[str]]]:
    """Return the layers of every contract by the package that they divide."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    found = {}
    for contract in contracts["contracts"]:
        if contract["type"] != "layers":
            continue
        container = contract.get("containers", [""])[0]
        prefix = f"{container}." if container else ""
        found[container or "dyclu"] = [
            [prefix + name.strip() for name in layer.split("|")] for layer in contract["layers"]
        ]
    return found


def rooms(package: str, divided: Mapping[str, list[list[str]]]) -> tuple[tuple[Room, ...], ...]:
    """Return the rows of rooms in a package."""
    return tuple(
        tuple(
            Room(module, purpose(module), rooms(module, divided) if module in divided else ())
            for module in row
        )
        for row in divided[package]
    )


def arrows(modules: Sequence[str]) -> list[tuple[str, str]]:
    """Return which of these modules import which, without imports that follow from others."""
    graph = grimp.build_graph("dyclu", cache_dir=None)
    direct = {
        (a, b)
        for a in modules
        for b in modules
        if a != b and graph.direct_import_exists(importer=a, imported=b, as_packages=True)
    }
    later = {a: _reached(a, direct) for a in modules}
    return sorted(
        (a, b) for a, b in direct if not any(b in later[c] for x, c in direct if x == a and c != b)
    )


def _reached(start: str, edges: Iterable[tuple[str, str]]) -> set[str]:
    found: set[str] = set()
    left = [start]
    while left:
        new = {b for a, b in edges if a == left[-1]} - found
        left.pop()
        found |= new
        left += new
    return found


@dataclass(frozen=True)
class Box:
    """Where a room is drawn."""

    x: float
    y: float
    width: float
    height: float


def _lines(room: Room, width: float) -> list[str]:
    return textwrap.wrap(room.purpose, max(12, int((width - 2 * PADDING) / 6.9)))


def _height(room: Room, width: float) -> float:
    inner = sum(_row_height(row, width - 2 * PADDING) + PADDING for row in room.inside)
    return LINE * (1 + len(_lines(room, width))) + 2 * PADDING + inner


def _share(row: Sequence[Room], width: float, gap: float) -> list[float]:
    weight = [2.6 if room.inside else 1.0 for room in row]
    free = width - gap * (len(row) - 1)
    return [free * one / sum(weight) for one in weight]


def _row_height(row: Sequence[Room], width: float) -> float:
    shares = _share(row, width, PADDING)
    return max(_height(room, share) for room, share in zip(row, shares, strict=True))


def _draw(room: Room, box: Box, style: str) -> list[str]:
    parts = [
        f'<rect class="{style}" x="{box.x:.0f}" y="{box.y:.0f}" width="{box.width:.0f}" '
        f'height="{box.height:.0f}" rx="6"/>'
    ]
    x, y = box.x + PADDING, box.y + PADDING + 12
    parts.append(f'<text class="name" x="{x:.0f}" y="{y:.0f}">{escape(room.name)}</text>')
    for line in _lines(room, box.width):
        y += LINE
        parts.append(f'<text x="{x:.0f}" y="{y:.0f}">{escape(line)}</text>')
    y += PADDING
    for row in room.inside:
        width = box.width - 2 * PADDING
        height, left = _row_height(row, width), x
        for one, share in zip(row, _share(row, width, PADDING), strict=True):
            parts += _draw(one, Box(left, y, share, height), "inner")
            left += share + PADDING
        y += height + PADDING
    return parts


def _arrow(a: Box, b: Box) -> str:
    x1, y1 = a.x + a.width / 2, a.y + a.height
    x2, y2 = b.x + b.width / 2, b.y - 3
    # Aim at the nearest point of a wide box, so that arrows stay steep.
    x2 = min(max(x1, b.x + 20), b.x + b.width - 20)
    bend = (y2 - y1) / 2
    return (
        f'<path class="arrow" d="M{x1:.0f} {y1:.0f} C{x1:.0f} {y1 + bend:.0f} '
        f'{x2:.0f} {y2 - bend:.0f} {x2:.0f} {y2:.0f}"/>'
    )


def picture() -> str:
    """Return the SVG."""
    rows = rooms("dyclu", layers())
    boxes: dict[str, Box] = {}
    shapes, y = [], float(MARGIN)
    for row in rows:
        width = WIDTH - 2 * MARGIN
        shares, x = _share(row, width, GAP), float(MARGIN)
        height = max(_height(room, share) for room, share in zip(row, shares, strict=True))
        for room, share in zip(row, shares, strict=True):
            boxes[room.module] = Box(x, y, share, height)
            shapes += _draw(room, boxes[room.module], "room")
            x += share + GAP
        y += height + ROW_GAP
    lines = [_arrow(boxes[a], boxes[b]) for a, b in arrows(list(boxes))]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="Rooms and imports" '
            f'viewBox="0 0 {WIDTH} {y - ROW_GAP + MARGIN:.0f}">',
            f"<style>{STYLE}</style>",
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" '
            'markerHeight="8" orient="auto"><path d="M0 0 L8 4 L0 8 z"/></marker></defs>',
            '<rect width="100%" height="100%" fill="white"/>',
            *shapes,
            *lines,
            "</svg>",
            "",
        ]
    )


if __name__ == "__main__":
    PICTURE.write_text(picture())
