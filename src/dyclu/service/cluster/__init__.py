"""Several processes on one database: which partition a user is in, and which process owns it.

Ownership only decides who serves. That nobody else can write is ensured in `disk.postgres`, by the
epoch that each write checks; nothing here may replace that check.
"""
