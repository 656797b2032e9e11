"""Journals as tables: `decisions` has one row per decision and slot, `arms` one per offered arm.

`files` writes rows as CSV or Parquet. Nothing here changes a journal.
"""
