"""Pictures of policies, and the style of all pictures; matplotlib is imported only when drawing.

`policy.plot()` is the usual way in. `plot(policy)` also draws policies of your own, if they answer
`models`, `changes` and `locate`.
"""

from dyclu.plots.policies import plot

__all__ = ["plot"]
