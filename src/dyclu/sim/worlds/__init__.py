"""Worlds: users, arms and rewards with a known truth, on which policies are tried.

Add a world here. It must be a function of its options and a seed. Nothing here knows a policy.
"""
