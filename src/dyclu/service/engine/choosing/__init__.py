"""Decisions: which arm, with which chance and why, and what the control group shows of them."""
