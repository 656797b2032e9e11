"""What `make bench` runs: how fast, how large, how soon ready; figures as ratios within one run.

Docs: ``docs/benchmarks.md``. ``python -m benchmarks --help`` lists the groups.
"""
