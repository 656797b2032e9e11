"""The exceptions of dyclu.

::

    DycluError
    ├── ShapeError         (ValueError)   wrong number of features or axes, no arms, ragged lists
    ├── NumberError        (ValueError)   NaN, ±inf, or too large to square
    ├── KindError          (TypeError)    strings, complex numbers, None, objects where numbers go
    ├── OptionError        (ValueError)   an option outside its range, or a name nobody knows
    ├── FileError          (ValueError)   a saved policy that cannot be read
    │   ├── ForeignFile                     was not written by `save`
    │   ├── DamagedFile                     truncated or altered since
    │   ├── OlderFile                       written by an earlier version of dyclu
    │   └── NewerFile                       written by a later version of dyclu
    ├── MissingExtra       (ImportError)  an optional dependency is not installed
    └── SweepFailed        (RuntimeError) runs of a sweep that could not be made

Every message says what was got, what was expected and what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class DycluError(Exception):
    """Anything dyclu refuses to do."""


class ShapeError(DycluError, ValueError):
    """Numbers in the wrong arrangement."""


class NumberError(DycluError, ValueError):
    """A number nothing can be learnt from."""


class KindError(DycluError, TypeError):
    """Something that is not a real number where one is needed."""


class OptionError(DycluError, ValueError):
    """An option outside its range."""


class FileError(DycluError, ValueError):
    """A saved policy that cannot be read."""


class ForeignFile(FileError):  # noqa: N818 - reads as what it is
    """A file that `save` did not write."""


class DamagedFile(FileError):  # noqa: N818
    """A file that was truncated or altered after `save` wrote it."""


class OlderFile(FileError):  # noqa: N818
    """A file written by an earlier version of dyclu."""


class NewerFile(FileError):  # noqa: N818
    """A file written by a later version of dyclu."""


class MissingExtra(DycluError, ImportError):  # noqa: N818
    """An optional dependency is not installed."""


class SweepFailed(DycluError, RuntimeError):  # noqa: N818
    """A sweep some of whose runs could not be made; all the others are stored.

    Attributes
    ----------
    failures : dict of job to BaseException
        Why each of them failed.
    """

    def __init__(self, message: str, failures: Mapping[Any, BaseException]) -> None:
        super().__init__(message)
        self.failures = dict(failures)
