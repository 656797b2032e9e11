"""`locked`: one process, and one tenant, at a time writes to a folder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

from dyclu.errors import FileError


def locked(path: Path, *, of: Path) -> Callable[[], None]:
    """Lock a file, which is made, or a folder; return what unlocks it. It ends with the process.

    `of` is the folder that is named if another process, or tenant, holds the lock.
    """
    flags = os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT
    try:
        handle = os.open(path, flags, 0o600)
    except OSError as error:
        raise FileError(
            f"cannot write {path} ({error.strerror}); choose a folder that you can write to, on a "
            "disk with free space"
        ) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise FileError(
            f"another dyclu serve, or another tenant, writes to {of}; stop it first, or give each "
            "a folder of its own"
        ) from None
    except OSError as error:
        os.close(handle)
        raise FileError(
            f"{path} cannot be locked ({error.strerror}); choose a folder on a local disk"
        ) from None
    return lambda: os.close(handle)
