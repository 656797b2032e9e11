"""Saved policies: one file of JSON and arrays, without code (no pickle).

::

    dyclu-policy 2                                  name and version of the format
    {"kind": "DyClu", "options": {...}, ...}        JSON on one line, with arrays' names and shapes
    ........                                        the bytes of the arrays, one after the other
    ........                                        SHA-256 of everything above

Writing is atomic: after a crash there is the complete new file or the unchanged old one. Reading
checks the digest before it parses anything. Arrays are read without a second copy, because a policy
can be nearly as large as the memory.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from dyclu.errors import DamagedFile, FileError, ForeignFile, NewerFile, OlderFile

FORMAT = b"dyclu-policy"
VERSION = 2
DIGEST = hashlib.sha256().digest_size
CHUNK = 1 << 20
"""Bytes read at a time while the digest is computed."""


@dataclass(frozen=True, slots=True)
class Saved:
    """A policy as it is written to disk.

    Attributes
    ----------
    kind : str
        Name of the policy's class.
    options : dict
        The keyword arguments of its constructor.
    state : dict
        The part of its state that is stored as JSON.
    arrays : dict of str to array
        The part of its state that is stored as arrays.
    beside : dict of str to Saved
        What is stored in the same file and is not the policy's, such as its features.
    """

    kind: str
    options: dict[str, Any]
    state: dict[str, Any]
    arrays: dict[str, NDArray[Any]]
    beside: Mapping[str, Saved] = field(default_factory=dict)


def write(path: str | os.PathLike[str], saved: Saved) -> None:
    """Write a policy to `path`; an existing file is replaced atomically."""
    replace_file(Path(path), *_encoded(saved))


def read(path: str | os.PathLike[str]) -> Saved:
    """Read a file that `write` wrote; raise a `FileError` if it cannot be read."""
    target = Path(path)
    try:
        with target.open("rb") as file:
            _check(file, target)
            with damaged_on_error(target):
                return _decoded(file)
    except FileError:
        raise
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise FileError(f"cannot read {target} ({why}); check the path") from None


@contextmanager
def damaged_on_error(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise `DamagedFile` if contents whose digest is valid cannot be used.

    An `OlderFile` is raised again with the path.
    """
    try:
        yield
    except OlderFile as error:
        raise OlderFile(f"{path}: {error}") from None
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        MemoryError,
        TypeError,
        ValueError,
    ) as error:
        raise DamagedFile(
            f"{path} has a valid digest but makes no sense ({error!r}), expected a file that "
            "policy.save(path) wrote; save the policy again, or restore a copy of the file"
        ) from None


def _encoded(saved: Saved) -> Iterator[bytes | memoryview]:
    """Yield the contents of the file in pieces, so that a large policy is not copied."""
    arrays: list[NDArray[Any]] = []
    lines = b"%s %d\n%s\n" % (FORMAT, VERSION, json.dumps(_header(saved, arrays)).encode())
    digest = hashlib.sha256()
    pieces: list[bytes | memoryview] = [lines, *map(_bytes, arrays)]
    for piece in pieces:
        digest.update(piece)
        yield piece
    yield digest.digest()


def _header(saved: Saved, arrays: list[NDArray[Any]]) -> dict[str, Any]:
    """Return what is stored as JSON; append the arrays in the order in which it names them."""
    own = {name: _portable(array) for name, array in saved.arrays.items()}
    arrays += own.values()
    header = {
        "kind": saved.kind,
        "options": saved.options,
        "state": saved.state,
        "arrays": [[name, array.dtype.str, array.shape] for name, array in own.items()],
    }
    if saved.beside:
        header["beside"] = {name: _header(one, arrays) for name, one in saved.beside.items()}
    return header


def _bytes(array: NDArray[Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _portable(array: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))


def _check(file: BinaryIO, target: Path) -> None:
    first_line = file.read(64).partition(b"\n")[0]
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
    if not _digest_matches(file):
        raise DamagedFile(
            f"{target} is truncated or was altered: its contents do not match their digest; "
            "restore it from a copy"
        )


def _digest_matches(file: BinaryIO) -> bool:
    left = file.seek(0, os.SEEK_END) - DIGEST
    file.seek(0)
    found = hashlib.sha256()
    while left > 0 and (chunk := file.read(min(left, CHUNK))):
        found.update(chunk)
        left -= len(chunk)
    return found.digest() == file.read()


def _decoded(file: BinaryIO) -> Saved:
    file.seek(0)
    file.readline()
    return _restored(json.loads(file.readline()), file)


def _restored(header: dict[str, Any], file: BinaryIO) -> Saved:
    """Return what a header describes; its arrays come next in the file."""
    arrays = {
        name: np.fromfile(file, dtype, math.prod(shape)).reshape(shape)
        for name, dtype, shape in header["arrays"]
    }
    beside = {name: _restored(one, file) for name, one in header.get("beside", {}).items()}
    return Saved(header["kind"], header["options"], header["state"], arrays, beside)


def replace_file(path: Path, *pieces: bytes | memoryview) -> None:
    """Write a file atomically: after a crash it is the complete old file or the complete new one.

    A symbolic link is followed. An existing file keeps its permissions.
    """
    try:
        _replace(Path(os.path.realpath(path)), pieces)
    except (OSError, ValueError) as error:
        raise FileError(
            f"cannot write {path} ({getattr(error, 'strerror', None) or error}); "
            "choose a file in an existing folder that you can write to, on a disk with free space"
        ) from None


def _replace(target: Path, pieces: Iterable[bytes | memoryview]) -> None:
    temporary = target.with_name(f".{target.name}.{os.getpid()}-{threading.get_ident()}")
    try:
        with temporary.open("wb") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            temporary.chmod(stat.S_IMODE(target.stat().st_mode))
        temporary.replace(target)
        sync_folder(target.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Sync a folder to disk; without it, a new file's name can be lost in a crash."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(folder: Path) -> None:
    """Make a folder and its parents, unless they exist."""
    with _as_file_error(folder):
        folder.mkdir(parents=True, exist_ok=True)


def check_writable(folder: Path) -> None:
    """Make the folder unless it exists, and check that files can be written to it."""
    make_folder(folder)
    with _as_file_error(folder), TemporaryFile(dir=folder):
        pass


@contextmanager
def _as_file_error(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FileError(
            f"cannot write {folder} ({error.strerror or error}); "
            "choose a folder that you can write to, on a disk with free space"
        ) from None
