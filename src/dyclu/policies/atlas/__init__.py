"""Atlas: the distinct tastes of a population as shared models, and where each user is among them.

- `policy`: `decide`, `learn`, and what can be asked;
- `tracker`: one reward of a user on probation, or of a located user;
- `users`, `tastes`: what is kept of every user, and of every taste;
- `beliefs`, `stream`: chances over tastes, and statistics of the whole stream.
"""

from dyclu.policies.atlas.policy import Atlas

__all__ = ["Atlas"]
