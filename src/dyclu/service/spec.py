"""`PolicySpec`: which policy a tenant runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dyclu import policies
from dyclu.policy import Policy


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """Which policy serves: its name, dimension and options."""

    name: str
    dim: int
    options: dict[str, Any]

    def make(self) -> Policy:
        """Return a new policy that has learnt nothing."""
        return policies.make(self.name, self.dim, **self.options)
