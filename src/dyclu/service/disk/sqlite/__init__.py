"""A journal in SQLite: its tables, the only writer, and readers.

The format of the file is fixed by `tables.FORMAT`; another one needs a migration in `writer`.
"""
