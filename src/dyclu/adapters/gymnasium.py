"""gymnasium: a simulated world as an environment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import gymnasium
import numpy as np
from gymnasium import spaces

from dyclu.errors import OptionError
from dyclu.sim.worlds.population import Population
from dyclu.sim.worlds.rounds import Round, Simulated, Size
from dyclu.validation import LARGEST_FEATURE, FloatArray

Observation = dict[str, Any]


class Drawable(Size, Protocol):
    """A setting from which worlds are drawn: `dyclu.sim.Population`, `dyclu.sim.Wild`."""

    @property
    def offered(self) -> int:
        """Number of arms that a round offers."""

    def world(self, seed: int) -> Simulated:
        """Draw a world."""


class WorldEnv(gymnasium.Env[Observation, np.int64]):
    """A world of `dyclu.sim` as a gymnasium environment.

    An observation has the `user` who visits and the `arms` (offered, dim) that could be shown. An
    action is the row to show. An episode has all rounds of one world; then it is truncated. The
    `info` of a step has the expected `regret` of the action, which a policy must not use.

    Parameters
    ----------
    setting : Population or Wild
        From which each `reset` draws a world, by its seed. Rewards must come at once (`delay` 0).

    Examples
    --------
    >>> env = WorldEnv(Population(users=3, parameters=2, dim=4, rounds=2, shortest=2))
    >>> observation, info = env.reset(seed=1)
    >>> observation["arms"].shape
    (10, 4)
    >>> observation, reward, terminated, truncated, info = env.step(0)
    >>> int(observation["user"]), terminated, truncated
    (1, False, False)
    """

    metadata = {"render_modes": []}  # noqa: RUF012 - gymnasium's own name and type

    def __init__(self, setting: Drawable | None = None) -> None:
        self.setting: Drawable = Population() if setting is None else setting
        if getattr(self.setting, "delay", 0):
            raise OptionError(
                "rewards of this world come late, and an environment gives them at once; "
                "pass a setting with delay=0"
            )
        # A setting does not know bounds of its features; these are those of every policy.
        shape = (self.setting.offered, self.setting.dim)
        arms = spaces.Box(-LARGEST_FEATURE, LARGEST_FEATURE, shape, np.float64)
        self.observation_space = spaces.Dict(
            {"user": spaces.Discrete(self.setting.users), "arms": arms}
        )
        self.action_space = spaces.Discrete(self.setting.offered)
        self._rounds: Iterator[Round] = iter(())
        self._round: Round | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Draw a world and return the first visit."""
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(2**63)) if seed is None else seed
        self._rounds = iter(self.setting.world(drawn))
        self._round = next(self._rounds)
        return self._observation(self._round), {}

    def step(self, action: np.int64 | int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Show an arm; return the next visit and the reward of this one."""
        if self._round is None:
            raise OptionError("there is no visit to act on; call reset first")
        if not self.action_space.contains(action):
            raise OptionError(
                f"the action is {action!r}, expected a row of the arms, 0 to "
                f"{self.setting.offered - 1}"
            )
        now, arm = self._round, int(action)
        info = {"regret": now.regret(arm)}
        following = next(self._rounds, None)
        self._round = following
        shown = now if following is None else following
        return self._observation(shown), now.reward(arm), False, following is None, info

    def _observation(self, visit: Round) -> Observation:
        arms: FloatArray = visit.arms.copy()
        return {"user": np.int64(visit.user), "arms": arms}
