"""Benchmarks that `make bench` runs: speed, memory and start-up, as ratios within one run.

Docs: ``docs/benchmarks.md``. ``python -m benchmarks --help`` lists the groups.
"""
