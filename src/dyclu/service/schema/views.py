"""Types of answers about what was learnt: changes, users, models, features, the policy."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from dyclu.service.schema.answers import FeatureWeight
from dyclu.service.schema.fields import Mode


class ChangeView(Struct, frozen=True):
    """A user has changed, from model or segment `before` to `after`.

    `at` is the time; `certainty` is a lower bound of the probability that the change is real, if
    the policy gives one.
    """

    number: int
    at: float
    user: str
    before: int | None
    after: int | None
    certainty: float | None


class Changes(Struct, frozen=True):
    """Changes in their order; ask again with ``since=next`` for those that follow.

    There are more as long as `next` is less than `latest`. Changes before `oldest` are no longer
    kept. Numbers are valid within one `epoch`; a new epoch begins when the policy is rebuilt.
    """

    epoch: int
    oldest: int
    latest: int
    next: int
    changes: list[ChangeView]


class SegmentView(Struct, frozen=True):
    """A user's observations between two changes; times are counted in rewards of all users.

    `id` is that of the segment, or of the model the user was on. `likes` and `dislikes` are those
    of the model, if it still exists.
    """

    id: int | None
    opened: int
    closed: int | None
    observations: int
    likes: list[str] = []
    dislikes: list[str] = []


class BeliefView(Struct, frozen=True):
    """The probability that a user follows a model; model null means a taste not seen before."""

    model: int | None
    probability: float


class UserView(Struct, frozen=True):
    """What the service knows about a user."""

    user: str
    decisions: int
    rewards: int
    mean_reward: float | None
    last_seen: float | None
    model: int | None
    segments: list[SegmentView]
    neighbours: list[int]
    neighbours_total: int
    belief: list[BeliefView]
    changes: list[ChangeView]


class Erased(Struct, frozen=True):
    """The user's lines of the journal are removed; the policy is being rebuilt without them.

    `exact` is false if some of their lines were no longer kept, and the policy can only remove a
    share of what it learnt from them.
    """

    user: str
    erased_records: int
    rebuilding: bool
    exact: bool


class ModelView(Struct, frozen=True):
    """A model and its number of users; similar models have close positions `x`, `y` on the map.

    `likes` and `dislikes` are the features whose weights exceed, and fall below, the average of the
    models most; models count by their observations. Differences within their posterior deviations
    are left out: all that are told of a model have the right sign with a probability of 0.95. Both
    are empty if a model is not told apart from the average, or if a policy that tells deviations
    knows of nobody who follows it for certain. `users` follow it for certain. `likely`
    counts those of the users seen last whose likeliest model it is, for certain or not;
    `mean_reward` is theirs, null if the policy does not tell who they are.
    """

    id: int
    users: int
    observations: int
    growth: int
    x: float
    y: float
    likes: list[FeatureWeight] = []
    dislikes: list[FeatureWeight] = []
    mean_reward: float | None = None
    likely: int = 0


class Models(Struct, frozen=True):
    """The largest models; `users_elsewhere` is the number of users on none of these.

    `named` says that features have declared names; otherwise they are called x0, x1 and so on. Of
    named features, `likes` and `dislikes` are those of the models on average.
    """

    version: int
    total: int
    users_elsewhere: int
    models: list[ModelView]
    named: bool = False
    likes: list[FeatureWeight] = []
    dislikes: list[FeatureWeight] = []


class FeaturesView(Struct, frozen=True):
    """The declared features: `dyclu.Features(**declaration, loadings=loadings)` are the same.

    `names` are those of the numbers of a vector; `version` is a digest of all the rest. Both it and
    the declaration are null if the tenant declares no features.
    """

    version: str | None
    names: list[str]
    declaration: dict[str, Any] | None
    loadings: list[list[float]] | None


class PolicyView(Struct, frozen=True):
    """The policy that serves, its settings and its counters.

    `warnings` are sentences about what seems wrong: first with the service's files and rewards,
    then what the policy itself found, such as too many surprises. It is empty if all is well.
    `partitions` is the number of partitions of the tenant in a cluster, null without one.
    """

    tenant: str
    policy: str
    dim: int
    mode: Mode
    epsilon: float
    version: int
    decisions: int
    rewards: int
    pending: int
    users: int
    changes: int
    agreement: float | None
    rebuilding: bool
    healthy: bool
    warnings: list[str]
    partitions: int | None = None
