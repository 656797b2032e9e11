"""Saved policies: one file of plain numbers and JSON, never code.

::

    dyclu-policy 1                                  what the file is, and its format's version
    {"kind": "DyClu", "options": {...}, ...}        JSON on one line, arrays' names and shapes too
    ........                                        the arrays' bytes, one after the other
    ........                                        SHA-256 of everything above

Writing is atomic: the file appears complete under its name or not at all, and a crash leaves an
older one untouched. Reading checks the digest first, so that nothing altered is ever looked into.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyclu.errors import DamagedFile, FileError, ForeignFile, NewerFile, OlderFile

FORMAT = b"dyclu-policy"
VERSION = 2
DIGEST = hashlib.sha256().digest_size


@dataclass(frozen=True, slots=True)
class Saved:
    """A policy as it is written to disk.

    Attributes
    ----------
    kind : str
        Name of the policy's class.
    options : dict
        The keyword arguments it was made with.
    state : dict
        What it has learnt, as far as JSON holds it.
    arrays : dict of str to array
        What it has learnt, in numbers.
    """

    kind: str
    options: dict[str, Any]
    state: dict[str, Any]
    arrays: dict[str, NDArray[Any]]


def write(path: str | os.PathLike[str], saved: Saved) -> None:
    """Write a policy to `path`, replacing what was there in one step."""
    replace_file(Path(path), *_encoded(saved))


def read(path: str | os.PathLike[str]) -> Saved:
    """Read what `write` wrote, or say what is wrong with the file."""
    target = Path(path)
    try:
        content = target.read_bytes()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise FileError(f"cannot read {target} ({why}); check the path") from None
    body = _checked(content, target)
    with trusting(target):
        return _decoded(content, body)


@contextmanager
def trusting(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn whatever goes wrong with contents that match their digest into a `DamagedFile`."""
    try:
        yield
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        MemoryError,
        TypeError,
        ValueError,
    ) as error:
        raise DamagedFile(
            f"{path} has a valid digest but makes no sense ({error!r}); "
            "it was not written by policy.save(path) as it stands"
        ) from None


def _encoded(saved: Saved) -> Iterator[bytes | memoryview]:
    """Yield the file piece by piece: a large policy is not copied only to be written."""
    arrays = {name: _portable(array) for name, array in saved.arrays.items()}
    header = {
        "kind": saved.kind,
        "options": saved.options,
        "state": saved.state,
        "arrays": [[name, array.dtype.str, array.shape] for name, array in arrays.items()],
    }
    lines = b"%s %d\n%s\n" % (FORMAT, VERSION, json.dumps(header).encode())
    digest = hashlib.sha256()
    pieces: list[bytes | memoryview] = [lines, *map(_bytes, arrays.values())]
    for piece in pieces:
        digest.update(piece)
        yield piece
    yield digest.digest()


def _bytes(array: NDArray[Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _portable(array: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))


def _checked(content: bytes, target: Path) -> memoryview:
    first_line = content[:64].partition(b"\n")[0]
    name, _, version = first_line.partition(b" ")
    if name != FORMAT or not version.isdigit() or not 0 < len(version) < 9 or int(version) == 0:
        raise ForeignFile(
            f"{target} is not a saved policy; pass a file that policy.save(path) wrote"
        )
    if int(version) != VERSION:
        raise (NewerFile if int(version) > VERSION else OlderFile)(
            f"{target} has format version {int(version)}, this dyclu reads version {VERSION}; "
            "install the dyclu that wrote it"
        )
    # A view: a large policy is not copied only to leave out its digest.
    body, digest = memoryview(content)[:-DIGEST], content[-DIGEST:]
    if hashlib.sha256(body).digest() != digest:
        raise DamagedFile(
            f"{target} is truncated or was altered: its contents do not match their digest; "
            "restore it from a copy, it was whole when it was saved"
        )
    return body


def _decoded(content: bytes, body: memoryview) -> Saved:
    line = content.index(b"\n") + 1
    start = content.index(b"\n", line) + 1
    header = json.loads(content[line:start])
    arrays = {}
    for name, dtype, shape in header["arrays"]:
        count = math.prod(shape)
        arrays[name] = np.frombuffer(body, dtype, count, start).reshape(shape).copy()
        start += arrays[name].nbytes
    return Saved(header["kind"], header["options"], header["state"], arrays)


def replace_file(path: Path, *pieces: bytes | memoryview) -> None:
    """Write a file in one step: whatever happens, it is the old one or the new one, complete.

    A link is followed, and an existing file's permissions are kept.
    """
    try:
        _replace(Path(os.path.realpath(path)), pieces)
    except (OSError, ValueError) as error:
        raise FileError(
            f"cannot write {path} ({getattr(error, 'strerror', None) or error}); "
            "name a file in an existing folder that you may write to, on a disk with space"
        ) from None


def _replace(target: Path, pieces: Iterable[bytes | memoryview]) -> None:
    draft = target.with_name(f".{target.name}.{os.getpid()}-{threading.get_ident()}")
    try:
        with draft.open("wb") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            draft.chmod(stat.S_IMODE(target.stat().st_mode))
        draft.replace(target)
        sync_folder(target.parent)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable: a new file's is only once its folder is."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(folder: Path) -> None:
    """Make a folder, and those it is in, unless it is there."""
    with _explaining(folder):
        folder.mkdir(parents=True, exist_ok=True)


def check_writable(folder: Path) -> None:
    """Make the folder if need be, and find out by trying whether it takes files."""
    make_folder(folder)
    with _explaining(folder), TemporaryFile(dir=folder):
        pass


@contextmanager
def _explaining(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FileError(
            f"cannot write {folder} ({error.strerror or error}); "
            "name a folder that you may write to, on a disk with space"
        ) from None
