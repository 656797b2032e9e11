"""CoDBand: users follow models that they share; a Dirichlet process says how many there are.

Chuanhao Li, Qingyun Wu, Hongning Wang (2021): *When and Whom to Collaborate with in a Changing
Environment: A Collaborative Dynamic Bandit Solution*, SIGIR. How we read it:
``docs/decisions/017-codband.md``.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from dyclu.core.dirichlet import draw, draw_concentration
from dyclu.core.evidence import Prior
from dyclu.core.homogeneity import critical
from dyclu.core.noise import Noise, Residuals
from dyclu.core.randomness import RandomSource, Seed
from dyclu.core.ridge import root, ucb
from dyclu.core.stats import Stats
from dyclu.policies.codband.mixture import NO_MODEL, Belief, Mixture
from dyclu.policies.codband.segments import Segments
from dyclu.policies.common import columns
from dyclu.policies.common.base import Arrays, OneByOne
from dyclu.policy import Change, Decision, Location, Model, Outcome, first_best, no_ids
from dyclu.validation import (
    FloatArray,
    Ids,
    User,
    as_dim,
    as_positive,
    as_probability,
    as_user,
    as_whole,
)

NO_ARMS = np.empty(0)
"""Input of the generator for `learn`: no decision has it, so both draw different numbers."""

CONCENTRATION_SHAPE, CONCENTRATION_RATE = 7.5, 1.0
"""Gamma prior of the concentration, as in the published experiments."""

FIRST_CONCENTRATION = 1.0
"""Concentration before the first reward, if it is not given."""

SHARED = "shared "
"""Prefix of the names of the mixture's arrays in a saved file."""


class CoDBand(OneByOne):
    """Thompson sampling with models that users share, and a new choice of model after a change.

    A *segment*, the data of one user between two changes, belongs to one of the shared models.
    After each reward the model of the user's open segment is drawn again, given all other segments:
    an existing model, or a new one. Rewards that contradict the open segment are not learnt. If
    there are too many of them, the user has changed: the segment is closed and stays in its model,
    and an empty one is opened.

    Memory is O(d²) per user and per model. A reward costs O(d³) per model and O(d²) per user of the
    same model. The number of models grows with the number of changes, but slowly.

    Parameters
    ----------
    dim : int
        Number of features of a context.
    noise : float or None
        Standard deviation σ of the rewards' noise; None estimates it from prediction errors.
    ridge : float
        λ: precision of the base distribution, from which a new model's parameter is drawn,
        ``θ ~ N(0, I/λ)``.
    window : int
        τ: number of a user's latest rewards that the detector looks at.
    window_delta : float
        δ₂: probability of a false alarm at a given time.
    change_level : float
        δ₁: probability that a reward surprises although nothing has changed.
    concentration : float or None
        α₀ of the Dirichlet process: a large value makes new models likely. None learns it, with the
        prior Gamma(7.5, 1).
    seed : int, SeedSequence or Generator
        Source of all random draws.

    Examples
    --------
    >>> policy = CoDBand(1, noise=0.1)
    >>> for _ in range(20):
    ...     for user, reward in (("ana", 1.0), ("ben", -1.0), ("cem", 1.0)):
    ...         outcome = policy.learn(user, [1.0], reward)
    >>> [(model.users, model.estimate.round(2)) for model in policy.models]
    [(2, array([1.])), (1, array([-1.]))]
    """

    def __init__(
        self,
        dim: int,
        *,
        noise: float | None = None,
        ridge: float = 0.1,
        window: int = 20,
        window_delta: float = 0.1,
        change_level: float = 0.01,
        concentration: float | None = None,
        seed: Seed = 0,
    ) -> None:
        self.dim = as_dim(dim)
        self.ridge = as_positive(ridge, "ridge")
        self.window = as_whole(window, "window", least=1)
        self.window_delta = as_probability(window_delta, "window_delta")
        self.change_level = as_probability(change_level, "change_level")
        given = None if concentration is None else as_positive(concentration, "concentration")
        self.concentration = given
        self._known = None if noise is None else Noise.known(noise)
        self._random, self._clock = RandomSource.of(seed), 0
        self._base_mean = np.zeros(self.dim)
        self._drawn_concentration = FIRST_CONCENTRATION if given is None else given
        self._residuals = Residuals()
        self._mixture = Mixture(self.dim)
        self._segments = Segments(
            self.dim,
            window=self.window,
            level=self.change_level,
            delta=self.window_delta,
        )
        self._changes: list[Change] = []

    def _decide(self, user: User, arms: FloatArray) -> Decision:
        """Choose the best arm for a parameter drawn from its posterior; changes nothing.

        A user without data since their last change is served by a model that is drawn too, by the
        number of its segments. `mean` and `width` are mean and standard deviation of the chosen
        arm's drawn score. The probability of an arm has no closed form: `propensity` is None.
        """
        rng, prior = self._random.generator(self._clock, arms), self._prior()
        model = self._model_of(user)
        if model == NO_MODEL:
            belief = self._mixture.popularity(self._drawn_concentration)
            model = belief.ids[draw(belief.probabilities, rng)]
        noise = math.sqrt(prior.noise_variance)
        theta, inverse = self._posterior(model, prior)
        drawn = theta + noise * (root(inverse) @ rng.standard_normal(self.dim))
        scores = ucb(theta, inverse, arms, alpha=noise)
        best = first_best(arms @ drawn)
        mean, width = float(scores.mean[best]), float(scores.width[best])
        return Decision(user, best, mean, width, theta=theta, propensity=None)

    def _learn(self, user: User, x: FloatArray, y: float) -> Outcome:
        """Learn from the reward: is it a change, and which model does the user follow now?"""
        segments = self._segments
        row = segments.sums.row.get(user)
        if row is None:
            row = segments.enter(user, self._clock)
        self._clock += 1
        if not x.any():
            # No taste explains the reward of a context of zeros, and no change of taste either.
            return self._outcome(user, row)
        surprised = self._surprises(row, x, y)
        changed = segments.rings(row, surprised)
        if changed:
            self._restart(user, row)
        elif not surprised:
            self._add(row, x, y)
        return self._outcome(user, row, surprised=surprised, changed=changed)

    @property
    def noise(self) -> float:
        """Standard deviation of the noise: as given, or as estimated so far."""
        return self._noise().deviation

    @property
    def changes(self) -> tuple[Change, ...]:
        """All changes noticed so far, oldest first; `before` and `after` are ids of segments."""
        return tuple(self._changes)

    @property
    def models(self) -> tuple[Model, ...]:
        """The shared models, most data first."""
        mixture = self._mixture
        ids = sorted(mixture.row, key=lambda id: (-int(mixture.all.count[mixture.row[id]]), id))
        return tuple(map(self._model, ids))

    def locate(self, user: Hashable) -> Location:
        """Return the model that the user follows, and the probabilities of all models."""
        user, segments = as_user(user), self._segments
        row = segments.sums.row.get(user)
        if row is None:
            belief, new = _readable(self._mixture.popularity(self._drawn_concentration))
            return Location(user, since=self._clock, belief=belief, new=new, segments=())
        own = segments.model_of(row)
        belief, new = _readable(self._belief(row))
        return Location(
            user,
            model=None if own == NO_MODEL else own,
            located=own != NO_MODEL,
            since=int(segments.joined[row]),
            belief=belief,
            new=new,
            segments=(segments.summary(row),),
            neighbours=tuple(self._neighbours(row).tolist()),
        )

    @property
    def _by_user(self) -> Mapping[User, Any]:
        return self._segments.sums.row

    def _forget(self, user: User) -> None:
        """Remove the user's open segment and changes; closed segments stay in their models.

        The sums of closed segments are not kept apart, so their share cannot be removed. The
        estimates of the noise and of the concentration stay too.
        """
        row = self._segments.sums.row[user]
        own = self._segments.model_of(row)
        if own != NO_MODEL:
            self._mixture.leave(own, self._others(row))
        self._segments.remove(user)
        self._changes = [change for change in self._changes if change.user != user]

    def _dump(self) -> tuple[dict[str, Any], Arrays]:
        mixture, shared = self._mixture.dump()
        state, arrays = self._segments.dump()
        state |= {"key": self._random.key, "clock": self._clock, "mixture": mixture}
        state |= {"concentration": self._drawn_concentration, "residuals": asdict(self._residuals)}
        state["changes"] = [asdict(change) for change in self._changes]
        return state, arrays | columns.prefixed(shared, SHARED)

    def _fill(self, state: dict[str, Any], arrays: Arrays) -> None:
        self._random, self._clock = RandomSource(state["key"]), state["clock"]
        self._drawn_concentration = state["concentration"]
        self._residuals = Residuals(**state["residuals"])
        self._changes = [Change(**change) for change in state["changes"]]
        self._mixture.fill(state["mixture"], columns.part(arrays, SHARED))
        self._segments.fill(state, arrays)

    def _surprises(self, row: int, x: FloatArray, y: float) -> bool:
        """Return whether a reward contradicts the data of the user's segment."""
        noise, squared_gap = self._noise(), self._segments.surprise(row, x, y)
        if self._known is None:
            self._residuals = self._residuals.after(y, squared_gap)
        if squared_gap is None:
            return False
        return squared_gap > float(critical(1, noise, self.change_level))

    def _add(self, row: int, x: FloatArray, y: float) -> None:
        """Add an observation to a user's segment, and draw the segment's model again."""
        segments, mixture = self._segments, self._mixture
        segments.sums.add(row, x, y)
        rng = self._random.generator(self._clock, NO_ARMS)
        own, belief = segments.model_of(row), self._belief(row)
        drawn = belief.ids[draw(belief.probabilities, rng)]
        if drawn == NO_MODEL and own not in belief.ids:
            # The only segment of a model would leave it for a new one, which is the same.
            drawn = own
        if drawn == own != NO_MODEL:
            mixture.add(own, x, y, self._clock)
        else:
            self._move(row, drawn)
        if self.concentration is None:
            self._drawn_concentration = draw_concentration(
                self._drawn_concentration,
                groups=len(mixture),
                members=mixture.size,
                shape=CONCENTRATION_SHAPE,
                rate=CONCENTRATION_RATE,
                rng=rng,
            )

    def _move(self, row: int, model: int) -> None:
        """Assign a user's segment to a model, or to a new one for `NO_MODEL`."""
        segments, mixture = self._segments, self._mixture
        own = segments.model_of(row)
        if own != NO_MODEL:
            mixture.leave(own, self._others(row))
        id = mixture.found(self._clock) if model == NO_MODEL else model
        mixture.join(id, segments.sums.stats(row), self._clock)
        segments.assign(row, id, self._clock)

    def _restart(self, user: User, row: int) -> None:
        """Close a user's segment, whose data stay in its model, and begin the next one."""
        segments = self._segments
        before, own = int(segments.id[row]), segments.model_of(row)
        if own != NO_MODEL:
            self._mixture.close(own, segments.sums.stats(row))
        segments.restart(row, self._clock)
        self._changes.append(Change(user, self._clock, before, int(segments.id[row])))

    def _belief(self, row: int) -> Belief:
        """Return the probabilities of the models for a user's segment, given all other segments."""
        return self._mixture.belief(
            self._segments.sums.stats(row),
            self._prior(),
            self._drawn_concentration,
            own=self._segments.model_of(row),
            others=self._others(row),
        )

    def _others(self, row: int) -> Stats:
        """Return the sums of all other segments of the model of a user's segment."""
        own, mixture = self._segments.model_of(row), self._mixture
        if own == NO_MODEL:
            return Stats.empty(self.dim)
        return mixture.closed.stats(mixture.row[own]) + self._segments.others(row)

    def _posterior(self, model: int, prior: Prior) -> tuple[FloatArray, FloatArray]:
        """Return mean and covariance, in units of σ², of a model's parameter; or of a new one's."""
        mixture, row = self._mixture, self._mixture.row.get(model)
        if row is None:
            return prior.mean, np.eye(self.dim) / prior.ridge
        return prior.posterior(mixture.all.gram[row], mixture.all.moment[row])

    def _model(self, id: int) -> Model:
        mixture, row = self._mixture, self._mixture.row[id]
        return Model(
            id=id,
            size=int(mixture.all.count[row]),
            estimate=self._posterior(id, self._prior())[0],
            users=len(self._segments.followers(id)),
            founded=int(mixture.founded[row]),
            visited=int(mixture.visited[row]),
        )

    def _outcome(
        self, user: User, row: int, *, surprised: bool = False, changed: bool = False
    ) -> Outcome:
        segment = int(self._segments.id[row])
        return Outcome(user, surprised, changed, segment, self._neighbours(row))

    def _neighbours(self, row: int) -> Ids:
        own = self._segments.model_of(row)
        return no_ids() if own == NO_MODEL else self._segments.alike(own)

    def _noise(self) -> Noise:
        return self._known or self._residuals.noise()

    def _prior(self) -> Prior:
        return Prior(self._base_mean, 1 / self.ridge, self._noise().variance or 1.0)

    def _model_of(self, user: User) -> int:
        row = self._segments.sums.row.get(user)
        return NO_MODEL if row is None else self._segments.model_of(row)


def _readable(belief: Belief) -> tuple[dict[int, float], float]:
    """Return the probabilities of the models by id, and that of a new model."""
    *known, new = belief.probabilities.tolist()
    return dict(zip(belief.ids, known, strict=False)), new
