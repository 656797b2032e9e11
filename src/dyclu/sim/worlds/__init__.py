"""Worlds: populations that policies are tried on, as data.

A world draws users, arms and rewards, and knows the truth that measures need. Add a world here; it
must be a function of its options and a seed. Nothing here knows a policy.
"""
