"""The exceptions of dyclu.

::

    DycluError
    ├── ShapeError         (ValueError)   wrong number of features or axes, no arms, ragged lists
    ├── NumberError        (ValueError)   NaN, ±inf, or too large to square
    ├── KindError          (TypeError)    strings, complex numbers, None, objects where numbers go
    ├── OptionError        (ValueError)   an option outside its range, or an unknown name
    ├── FileError          (ValueError)   a file that cannot be read or written
    │   ├── ForeignFile                     was not written by `save`
    │   ├── DamagedFile                     was truncated or altered after `save`
    │   ├── OlderFile                       was written by an earlier version of dyclu
    │   └── NewerFile                       was written by a later version of dyclu
    ├── SharingError       (ValueError)   bytes that are no contribution, or one of another policy
    │   └── CannotShare                     a policy that does not share what it learns
    ├── MissingExtra       (ImportError)  an optional dependency is not installed
    └── SweepFailed        (RuntimeError) runs of a sweep that failed

Every message says what dyclu got, what it expected and what to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any


class DycluError(Exception):
    """Base class of all errors of dyclu."""


class ShapeError(DycluError, ValueError):
    """An array of the wrong shape."""


class NumberError(DycluError, ValueError):
    """A number that is NaN, infinite or too large."""


class KindError(DycluError, TypeError):
    """A value of the wrong type, such as a string instead of a number."""


class OptionError(DycluError, ValueError):
    """An option outside its range, or an unknown name."""


def meant(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean …?" if a known name is much like the one given, else nothing.

    >>> meant("linUBC", ["linucb", "atlas"]), meant("forest", ["linucb", "atlas"])
    ("; did you mean 'linucb'?", '')
    """
    names = {one.lower(): one for one in known}
    close = get_close_matches(name.lower(), names, n=1)
    return f"; did you mean {names[close[0]]!r}?" if close else ""


class FileError(DycluError, ValueError):
    """A file that cannot be read or written."""


class ForeignFile(FileError):  # noqa: N818 - the name says what was found
    """A file that `save` did not write."""


class DamagedFile(FileError):  # noqa: N818
    """A file that was truncated or altered after `save` wrote it."""


class OlderFile(FileError):  # noqa: N818
    """A file written by an earlier version of dyclu."""


class NewerFile(FileError):  # noqa: N818
    """A file written by a later version of dyclu."""


class SharingError(DycluError, ValueError):
    """Bytes that are no contribution, or a contribution of another kind of policy."""


class CannotShare(SharingError):  # noqa: N818
    """A policy that cannot share what it learns with other shards."""


class MissingExtra(DycluError, ImportError):  # noqa: N818
    """An optional dependency is not installed."""


class SweepFailed(DycluError, RuntimeError):  # noqa: N818
    """Some runs of a sweep failed; the results of all others are stored.

    Attributes
    ----------
    failures : dict of job to BaseException
        The failed jobs and their errors.
    """

    def __init__(self, message: str, failures: Mapping[Any, BaseException]) -> None:
        super().__init__(message)
        self.failures = dict(failures)
