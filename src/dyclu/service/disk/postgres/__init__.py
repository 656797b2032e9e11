"""Journals in PostgreSQL, one per partition, and the copies from which their owners read.

The database decides what was written, and who may write. A copy in SQLite follows it; it is
thrown away when the ownership ends. `schema` fixes the tables; another version needs a migration.
"""
