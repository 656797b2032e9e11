"""Style of the pictures, and writing them to files.

Matplotlib is an optional dependency; without it, `drawing` raises `MissingExtra`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dyclu.errors import MissingExtra
from dyclu.storage import replace_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 6.4
"""Width of every picture, in inches."""

INK = "#1b1b1f"
"""Colour of text and axes; `inline_svg` replaces it by the text colour of the page."""

LINES = (
    ("#8a8a8a", ":"),
    ("#d55e00", "--"),
    ("#0080c4", "-"),
    ("#009e73", "-."),
    ("#cc79a7", (0, (5, 1, 1, 1, 1, 1))),
    ("#b58900", (0, (8, 3))),
    ("#8f6bd1", (0, (3, 1))),
    ("#a0623a", (0, (1, 1))),
)
"""Colour and dashes of the policies; distinct without colour, on light and dark pages."""

BANDS = ("#77aadd", "#ee8866", "#eedd88", "#ffaabb", "#99ddff", "#44bb99", "#bbcc33", "#dddddd")
"""Paul Tol's light colours: distinct for colour-blind readers, and legible under dark text."""

ON_BAND = "#000000"

ROOM_FOR_A_NAME = 0.12
"""Least share of the time axis of a period whose name is written in it."""

STYLE = {
    "axes.axisbelow": True,
    "axes.edgecolor": INK,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "grid.alpha": 0.15,
    "grid.color": INK,
    "legend.frameon": False,
    "lines.linewidth": 2,
    "lines.markeredgewidth": 1,
    # Without this, the ids inside an SVG are random.
    "svg.hashsalt": "dyclu",
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


@contextmanager
def drawing() -> Iterator[None]:
    """Use the style of this package while drawing; raise `MissingExtra` without matplotlib."""
    try:
        import matplotlib.style
    except ImportError as error:
        raise MissingExtra(
            f"a picture needs matplotlib, which cannot be imported ({error}); "
            "get it with: pip install 'dyclu[plots]'"
        ) from None
    # Based on matplotlib's defaults, so that a user's matplotlibrc has no influence.
    with matplotlib.style.context(["default", STYLE]):
        yield


def canvas(height: float) -> Figure:
    """Return an empty figure of width `WIDTH`; call it inside `drawing`."""
    from dyclu.plots.shown import Shown

    return Shown(figsize=(WIDTH, height), layout="constrained")


def draw_band(
    axes: Axes, row: int, ends: tuple[float, float], colour: str, name: str, *, within: float
) -> None:
    """Draw a period of a timeline of length `within`, with its name where there is room."""
    start, end = ends
    axes.barh(row, end - start, left=start, height=0.8, color=colour)
    if name and end - start >= ROOM_FOR_A_NAME * within:
        at = ((start + end) / 2, row)
        axes.annotate(name, at, ha="center", va="center", color=ON_BAND)


def arrange(figure: Figure) -> None:
    """Compute the layout once, so that every rendering has the same positions, bit for bit."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")


def write_png(figure: Figure, path: Path) -> None:
    """Write the figure as a PNG image."""
    replace_file(path, _rendered(figure, "png", dpi=160))


def inline_svg(figure: Figure) -> str:
    """Return the figure as an SVG element for a page, in the text colour of the page."""
    no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    svg = _rendered(figure, "svg", facecolor="none", metadata=no_metadata).decode()
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor")
    # Inside HTML, the namespaces of SVG are not needed, and they look like links.
    return re.sub(r' xmlns(:\w+)?="[^"]*"', "", svg)


def _rendered(figure: Figure, form: str, **options: Any) -> bytes:
    with drawing(), BytesIO() as buffer:
        figure.savefig(buffer, format=form, **options)
        return buffer.getvalue()
