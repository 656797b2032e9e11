"""CoDBand: users follow shared models, whose number is drawn too. Differences: decision 017.

- `policy`: `decide`, `learn`, and what can be asked;
- `segments`: the data of each user since their last change, and the detector of changes;
- `mixture`: the shared models, and how probable each of them is for a segment;
- `sums`: the sums of observations that both are made of.
"""

from dyclu.policies.codband.policy import CoDBand

__all__ = ["CoDBand"]
