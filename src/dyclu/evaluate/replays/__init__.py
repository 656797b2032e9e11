"""Replay: what a policy that learns would have earned, by the rows that it would have produced."""
