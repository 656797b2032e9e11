"""The statistics, as pure functions and frozen values; no policy, no state, no I/O.

Read `stats` and `homogeneity` first. A formula stands here once, with its derivation in
docs/theory.md and a test of it against the definition.
"""
