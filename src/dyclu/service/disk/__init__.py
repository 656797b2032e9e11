"""What is on disk: the journal, snapshots of the state, and what made them.

The state follows from the journal. A snapshot only makes a start faster; it may be deleted at any
time.
"""
