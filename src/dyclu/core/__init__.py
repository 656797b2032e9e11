"""The statistics: pure functions and frozen values, without policies, state or I/O.

Read `stats` and `homogeneity` first. Each formula is written once, here. Its derivation is in
docs/theory.md, and a test compares it with its definition.
"""
