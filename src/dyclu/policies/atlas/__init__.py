"""Atlas: the distinct tastes of a population as shared models, and where each user is among them.

The files follow `docs/theory.md`, section 10:

- `policy`: `decide`, `learn`, and what can be asked;
- `inference`: what one reward does to a user in doubt, or to a located one;
- `users`, `tastes`: what is kept of every user, and of every taste;
- `population`: prior, noise and rates, from the whole stream;
- `upkeep`: models are merged, grouped and removed, in slices.
"""

from dyclu.policies.atlas.policy import Atlas

__all__ = ["Atlas"]
