"""The tables of a journal in SQLite, and how its database is opened."""

from __future__ import annotations

import sqlite3
from pathlib import Path

FORMAT = 4
"""Version of the tables below and of the lines in them. Version 1 had no bases, version 2 one
reward per decision, version 3 did not say how the rewards of a decision are combined, nor what is
compared with which baseline. They are brought up to date when they are opened; lines stay as they
were written."""

PATIENCE = 5
"""Seconds for which a write waits for a lock that another process holds."""

TABLES = """
CREATE TABLE IF NOT EXISTS journal (
  seq INTEGER PRIMARY KEY, at INTEGER NOT NULL, kind TEXT NOT NULL, ref TEXT, user TEXT, of INTEGER,
  body TEXT NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS journal_ref ON journal (ref, kind) WHERE ref IS NOT NULL;
DROP INDEX IF EXISTS journal_end;
CREATE UNIQUE INDEX IF NOT EXISTS journal_learnt
  ON journal (of, ifnull(json_extract(body, '$.slot'), 1)) WHERE kind = 'reward';
CREATE INDEX IF NOT EXISTS journal_arrived ON journal (of) WHERE kind = 'arrival';
CREATE INDEX IF NOT EXISTS journal_activated ON journal (of) WHERE kind = 'activation';
CREATE INDEX IF NOT EXISTS journal_user ON journal (user) WHERE user IS NOT NULL;
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS base (
  generation INTEGER NOT NULL, file TEXT NOT NULL, part INTEGER NOT NULL, bytes BLOB NOT NULL,
  PRIMARY KEY (generation, file, part)
);
CREATE TABLE IF NOT EXISTS erased (epoch INTEGER PRIMARY KEY, first INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS erasing (user TEXT PRIMARY KEY, decisions TEXT NOT NULL) WITHOUT ROWID;
"""


def connect(path: Path, *, durable: bool = True) -> sqlite3.Connection:
    """Return a connection for writing."""
    connection = sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, timeout=PATIENCE
    )
    for pragma in (
        "journal_mode = WAL",
        f"synchronous = {'FULL' if durable else 'OFF'}",
        # Checkpoints are ours to make: one that fails inside a commit would look like its failure.
        "wal_autocheckpoint = 0",
        "secure_delete = ON",
    ):
        connection.execute(f"PRAGMA {pragma}").fetchone()
    return connection


class Transaction:
    """A transaction that is rolled back by any exception."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._connection.execute("COMMIT")
        elif self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
