"""Decisions without a reward yet: what is kept, for how long, and what becomes of them."""
