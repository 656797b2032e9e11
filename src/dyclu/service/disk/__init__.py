"""What is on disk: the journal, snapshots of the state, and what made them.

The journal is the truth. A snapshot only shortens a start, and may be deleted at any time.
"""
