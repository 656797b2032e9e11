"""Figures that notebooks show as pictures; imported by `drawing.canvas` only."""

from __future__ import annotations

from io import BytesIO

from matplotlib.figure import Figure

DPI = 110
"""Resolution in a notebook: 704 pixels for the width of a picture."""


class Shown(Figure):
    """A figure that a notebook shows, whether or not it has imported `matplotlib.pyplot`."""

    def _repr_png_(self) -> bytes:
        """Return the picture as a PNG image."""
        with BytesIO() as buffer:
            self.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
            return buffer.getvalue()
