"""DyClu as published: Algorithm 1 of the paper. Read `policy.py` beside the paper first.

- `policy`: the algorithm itself, `decide` and `learn`;
- `alarm`: surprises in a window -> has the user changed? (Lemma 3);
- `segments`: the observations of every user between two changes, stacked in arrays;
- `neighbours`: one segment against all others by the test of homogeneity, quickly.

What the algorithm decides must stay as published. How fast it decides may be improved.
"""

from dyclu.policies.dyclu.policy import DyClu

__all__ = ["DyClu"]
