"""`public`: what everybody may read of the error that stopped a tenant."""

from __future__ import annotations

from dyclu.errors import DamagedFile, FileError, MissingExtra, OptionError
from dyclu.service.disk.journal import StoreError

PUBLIC = (FileError, OptionError, MissingExtra, StoreError)
"""Errors about files, settings and the database. All others may quote a line of the journal."""


def public(error: Exception) -> str:
    """Return the text of an error that quotes no data of users, otherwise its type.

    `/readyz` answers callers without a key. The log has the whole text.

    >>> public(FileError("there is no journal at data/journal.db"))
    'there is no journal at data/journal.db'
    >>> public(KeyError("ana"))
    'KeyError, see the log'
    """
    # What a damaged file says is an error in its contents, such as `KeyError('ana')`.
    if isinstance(error, PUBLIC) and not isinstance(error, DamagedFile):
        return str(error)
    return f"{kind(error)}, see the log"


def kind(error: Exception) -> str:
    """Return the name of an error, that of SQLite's code if it has one.

    >>> kind(KeyError("ana"))
    'KeyError'
    """
    return str(getattr(error, "sqlite_errorname", type(error).__name__))
