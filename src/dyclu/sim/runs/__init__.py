"""Runs: one policy plays in one world; its record, its measures, and sweeps of many runs.

A run depends on its job alone (setting, policy, options, seed), so its result can be stored.
Increase `RESULT_VERSION` in `jobs`, or the policy's number in `POLICY_VERSIONS`, when a change of
the code alters stored results.
"""
