"""Runs: one policy plays in one world; the record, its measures, and many runs at once.

A run is decided by its job alone (world, policy, options, seed), so it can be stored and resumed.
Change `RESULT_VERSION` in `jobs` when a change alters the results of stored runs.
"""
