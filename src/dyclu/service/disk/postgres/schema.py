"""The tables in PostgreSQL, and what is needed of the database; both are checked at the start.

Text that is a key has the collation "C": its order does not change with the operating system.
"""

from __future__ import annotations

from typing import Any

from dyclu.errors import FileError

VERSION = 2
"""Version of the tables below. Those of an earlier one are brought up to date at a start."""

OLDEST = 130000
"""Oldest version of PostgreSQL, as it tells it: 13."""

LOCK = 7_236_551
"""Number of the advisory lock that is held while the tables are made."""

_KEY = 'text COLLATE "C" NOT NULL'
_OF = f"tenant {_KEY}, partition integer NOT NULL"

TABLES = f"""
CREATE SCHEMA dyclu;
CREATE TABLE dyclu.meta (name {_KEY} PRIMARY KEY, value text NOT NULL);
CREATE TABLE dyclu.tenant (name {_KEY} PRIMARY KEY, partitions integer NOT NULL);
CREATE TABLE dyclu.process (
  id {_KEY} PRIMARY KEY, name text NOT NULL, url text NOT NULL, leaving boolean NOT NULL,
  expires timestamptz NOT NULL
);
CREATE TABLE dyclu.partition (
  {_OF}, epoch bigint NOT NULL DEFAULT 0, owner text, since timestamptz,
  PRIMARY KEY (tenant, partition)
);
CREATE TABLE dyclu.journal (
  {_OF}, seq bigint NOT NULL, at bigint NOT NULL, kind {_KEY}, ref text COLLATE "C",
  "user" text COLLATE "C", of bigint, slot integer NOT NULL, body text NOT NULL,
  PRIMARY KEY (tenant, partition, seq)
);
CREATE UNIQUE INDEX journal_ref ON dyclu.journal (tenant, ref, kind)
  WHERE kind IN ('decision', 'event');
CREATE UNIQUE INDEX journal_arrival ON dyclu.journal (tenant, partition, ref)
  WHERE kind = 'arrival';
CREATE UNIQUE INDEX journal_learnt ON dyclu.journal (tenant, partition, of, slot)
  WHERE kind = 'reward';
CREATE INDEX journal_of ON dyclu.journal (tenant, partition, of) WHERE of IS NOT NULL;
CREATE INDEX journal_user ON dyclu.journal (tenant, partition, "user") WHERE "user" IS NOT NULL;
CREATE TABLE dyclu.fact (
  {_OF}, name {_KEY}, value text NOT NULL, PRIMARY KEY (tenant, partition, name)
);
CREATE TABLE dyclu.base (
  {_OF}, generation bigint NOT NULL, file {_KEY}, part integer NOT NULL, bytes bytea NOT NULL,
  PRIMARY KEY (tenant, partition, generation, file, part)
);
CREATE TABLE dyclu.erased (
  {_OF}, epoch bigint NOT NULL, first bigint NOT NULL, PRIMARY KEY (tenant, partition, epoch)
);
CREATE TABLE dyclu.erasing (
  {_OF}, "user" {_KEY}, decisions text NOT NULL, PRIMARY KEY (tenant, partition, "user")
);
CREATE TABLE dyclu.snapshot (
  {_OF}, file {_KEY}, part integer NOT NULL, bytes bytea NOT NULL,
  PRIMARY KEY (tenant, partition, file, part)
);
"""
"""Version 1."""

UPGRADES = {
    1: f"""
ALTER TABLE dyclu.process ADD COLUMN refused integer NOT NULL DEFAULT 0;
CREATE TABLE dyclu.contribution (
  tenant {_KEY}, shard {_KEY}, model bigint NOT NULL, built bigint NOT NULL, number bigint NOT NULL,
  bytes bytea NOT NULL, PRIMARY KEY (tenant, shard, model)
);
CREATE INDEX contribution_number ON dyclu.contribution (number);
CREATE SEQUENCE dyclu.contribution_numbers;
""",
}
"""What leads from a version to the next one. Processes of the version before can go on meanwhile:
columns are added with a default, and nothing is removed."""

_NEEDED = (
    ("fsync", ("on",), "a power cut would lose what was answered"),
    ("full_page_writes", ("on",), "a power cut could damage the tables"),
    (
        "synchronous_commit",
        ("local", "remote_write", "on", "remote_apply"),
        "a crash would lose what was answered",
    ),
    ("transaction_read_only", ("off",), "nothing can be written"),
    ("server_encoding", ("UTF8",), "names of users could not be stored"),
)
"""Settings of the database, the values that they may have, and what else would happen."""


def check_guarantees(connection: Any) -> None:
    """Refuse a database that does not give the guarantees on which the journals rest."""
    version = connection.info.server_version
    if version < OLDEST:
        raise FileError(f"the database has version {version // 10000}, expected 13 or later")
    for name, allowed, why in _NEEDED:
        (value,) = connection.execute(f"SHOW {name}").fetchone()
        if value not in allowed:
            raise FileError(
                f"the database has {name} = {value}: {why}; set it to {' or '.join(allowed)}"
            )


def make_tables(connection: Any) -> None:
    """Make the tables, or bring those of an earlier version up to date; refuse those of a later."""
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        if connection.execute("SELECT to_regclass('dyclu.meta')").fetchone()[0] is None:
            connection.execute(TABLES)
            connection.execute(
                "INSERT INTO dyclu.meta VALUES ('version', '1'), "
                "('key', replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''))"
            )
        found = connection.execute("SELECT value FROM dyclu.meta WHERE name = 'version'").fetchone()
        if found is None or not 1 <= int(found[0]) <= VERSION:
            told = "no version" if found is None else f"version {found[0]}"
            raise FileError(
                f"the tables in the schema dyclu have {told}, this dyclu works with version "
                f"{VERSION}; run the dyclu that made them, or name another database"
            )
        for version in range(int(found[0]), VERSION):
            connection.execute(UPGRADES[version])
        connection.execute(
            "UPDATE dyclu.meta SET value = %s WHERE name = 'version'", (str(VERSION),)
        )
