"""Shards: users divided among policies that send each other what they learn, over a poor network.

`play_shards` plays a world with one policy per shard. What a shard publishes reaches the others
later, perhaps in another order, twice, or never.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np

from dyclu.contributions import Contribution, Registry
from dyclu.policy import THRESHOLD, Policy
from dyclu.sim.worlds.rounds import Simulated
from dyclu.validation import as_threshold, as_whole, as_within


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """How shards send each other contributions.

    Attributes
    ----------
    threshold : float
        Growth of a model that is news: ``α`` of `Policy.contributions`.
    delay : int
        Mean number of rounds, of all users, that a message takes. Each takes a random number from
        0 to twice as many, so that messages overtake each other.
    lost, twice : float
        Probability that a message never arrives, and that it arrives twice. What is lost is not
        sent again; the next contribution of the same model replaces it.
    every : int
        Rewards of a shard between two times that it asks whether it has news.
    silent : bool
        Send nothing: the shards are isolated.
    seed : int
        Seed of delays, losses and repetitions.
    """

    threshold: float = THRESHOLD
    delay: int = 0
    lost: float = 0.0
    twice: float = 0.0
    every: int = 1
    silent: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        as_threshold(self.threshold)
        as_whole(self.delay, "delay", least=0)
        as_whole(self.every, "every", least=1)
        as_within(self.lost, "lost", 0.0, 1.0)
        as_within(self.twice, "twice", 0.0, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What shards lost and sent.

    Attributes
    ----------
    regret : float
        Accumulated over all rounds.
    rewards : int
        Number of rounds.
    published : int
        Contributions that were published.
    messages, bytes : int
        Messages: each contribution counts once as it is published, and once for every other shard.
    every : int
        Messages that are needed to publish every reward on its own.
    """

    regret: float
    rewards: int
    published: int
    messages: int
    bytes: int
    every: int

    @property
    def share(self) -> float:
        """Messages by those that are needed to publish every reward; 0 if there is one shard."""
        return self.messages / self.every if self.every else 0.0


@dataclass(slots=True, eq=False)
class _Post:
    """Messages on their way, with the round at which they arrive."""

    network: Network
    _way: list[tuple[int, int, int, Contribution]] = field(default_factory=list)
    _sent: int = 0

    def __post_init__(self) -> None:
        self._chance = np.random.default_rng(self.network.seed)

    _chance: np.random.Generator = field(init=False)

    def send(self, contribution: Contribution, to: int, now: int) -> None:
        """Send a contribution to a shard."""
        network, chance = self.network, self._chance
        for _ in range(2 if chance.random() < network.twice else 1):
            if chance.random() >= network.lost:
                at = now + 1 + int(chance.integers(2 * network.delay + 1))
                self._sent += 1
                heappush(self._way, (at, self._sent, to, contribution))

    def deliver(self, policies: Sequence[Policy], now: int) -> None:
        """Let policies absorb what has arrived."""
        while self._way and self._way[0][0] <= now:
            _, _, to, contribution = heappop(self._way)
            policies[to].absorb([contribution], shard=name_of(to))


def play_shards(
    policies: Sequence[Policy],
    world: Simulated,
    network: Network,
    *,
    progress: Callable[[int], object] | None = None,
) -> Shared:
    """Let policies serve every round of a world, each its own users; return what it cost.

    User `u` belongs to policy ``u mod K``. After a reward, a shard publishes what is news.

    Examples
    --------
    >>> from dyclu import LinUCB
    >>> from dyclu.sim import Population
    >>> world = Population(users=4, parameters=1, dim=3, rounds=50).world(seed=0)
    >>> def shards():
    ...     return [LinUCB(3, alpha=0.3, shared=True) for _ in range(4)]
    >>> alone = play_shards(shards(), world, Network(silent=True))
    >>> together = play_shards(shards(), world, Network(threshold=1.0, delay=5))
    >>> together.regret < alone.regret, together.messages < 0.2 * together.every
    (True, True)
    """
    post, said = _Post(network), [Registry() for _ in policies]
    regret, published, sent = 0.0, 0, 0
    others, learnt = len(policies) - 1, [0] * len(policies)
    for turn in world:
        post.deliver(policies, turn.index)
        shard = turn.user % len(policies)
        policy = policies[shard]
        arm = policy.decide(turn.user, turn.arms).arm
        regret += turn.regret(arm)
        policy.learn(turn.user, turn.arms[arm], turn.reward(arm))
        learnt[shard] += 1
        if others and not network.silent and learnt[shard] % network.every == 0:
            for one in policy.contributions(
                name_of(shard), since=said[shard], threshold=network.threshold
            ):
                said[shard].add(one)
                published += 1
                sent += len(one.to_bytes())
                for other in range(len(policies)):
                    if other != shard:
                        post.send(one, other, turn.index)
        if progress is not None:
            progress(turn.index + 1)
    return Shared(
        regret=regret,
        rewards=len(world),
        published=published,
        messages=published * (1 + others),
        bytes=sent * (1 + others),
        every=len(world) * (1 + others) if others else 0,
    )


def name_of(shard: int) -> str:
    """Return the name of a shard.

    >>> name_of(3)
    'shard-3'
    """
    return f"shard-{shard}"


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Return mean and standard error; the error of a single value is not a number.

    >>> mean_and_error([1.0, 3.0])
    (2.0, 1.0)
    """
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, math.nan
    squares = math.fsum((value - mean) ** 2 for value in values)
    return mean, math.sqrt(squares / (len(values) - 1) / len(values))
