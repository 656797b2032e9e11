"""Signals, as a terminal's programs have them; only POSIX systems can send them."""

from __future__ import annotations

import os
import signal

import pytest

needs_signals = pytest.mark.skipif(
    os.name != "posix", reason="processes are killed and interrupted by POSIX signals"
)


def hear_interrupts() -> None:
    """Let a new process hear Ctrl-C, also where whoever runs the tests does not, as with nohup."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
