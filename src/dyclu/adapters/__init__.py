"""Adapters to other libraries, one file per neighbour; each imports its neighbour and no other.

Nothing else in dyclu imports these files: import the one that you need, as
``from dyclu.adapters.gymnasium import WorldEnv``.
"""
