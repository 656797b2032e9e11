"""Signals, as a terminal's programs have them."""

from __future__ import annotations

import signal


def hear_interrupts() -> None:
    """Let a new process hear Ctrl-C, also where whoever runs the tests does not, as with nohup."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
