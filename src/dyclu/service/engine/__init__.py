"""Which requests are accepted, which lines they become, and the state that follows from the lines.

`state` must stay a function of the journal's lines and the policy's options: no clock, no
randomness, no I/O. The rest of this folder decides which lines are written.
"""
