"""Types of answers about how it goes: lift, activity and health."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from dyclu.service.schema.fields import Baseline


class LiftGroup(Struct, frozen=True):
    """Decisions of a group of users, the sum of their rewards, and the reward per decision."""

    decisions: int
    reward: float
    mean: float | None


class LiftDayView(Struct, frozen=True):
    """One day (UTC): both groups on that day.

    `lift`, `low` and `high` are about all days until the end of that day, as one could see them
    then. Of a tenant with several partitions, `low` and `high` of former days are null.
    """

    day: str
    treated: LiftGroup
    control: LiftGroup
    lift: float | None
    low: float | None
    high: float | None


class LiftView(Struct, frozen=True):
    """Reward per decision of the users whom the policy serves, minus that of the control group.

    With probability 95 %, `low` and `high` hold the true difference at all times at once, so one
    may look at any time; they are null while there are too few users. `verdict` says it in words.
    A change of `share` or `baseline` begins a new comparison; `since` is the time of its first
    decision, null if there is none, or if it began before this was written down.
    """

    share: float
    baseline: Baseline
    since: float | None
    treated: LiftGroup
    control: LiftGroup
    lift: float | None
    low: float | None
    high: float | None
    verdict: str
    days: list[LiftDayView]


class Bucket(Struct, frozen=True):
    """What happened in one second or minute, beginning at `at`."""

    at: float
    decisions: int
    rewards: int
    reward_sum: float
    changes: int


class Activity(Struct, frozen=True):
    """The last ten minutes by second and the last day by minute; without those that are empty."""

    now: float
    seconds: list[Bucket]
    minutes: list[Bucket]


class TenantHealth(Struct, frozen=True):
    """Whether a tenant can write; `line` is the number of its journal's last line.

    While it is `starting`, or if it is `stopped`, there is no `line`.
    """

    tenant: str
    status: Literal["ok", "starting", "stopped", "unavailable"]
    reason: str | None
    rebuilding: bool
    line: int | None


class TenantsHealth(Struct, frozen=True):
    """The health of all tenants, for operators."""

    tenants: list[TenantHealth]


class Health(Struct, frozen=True):
    """Whether the service is alive, or ready to take requests.

    It is `degraded` if a tenant cannot serve at all, and others can. While it is `starting`,
    `lines_done` of `lines_total` lines have been replayed, and about `seconds_left` remain.
    """

    status: Literal["ok", "degraded", "starting", "unavailable"]
    reason: str | None = None
    lines_done: int | UnsetType = UNSET
    lines_total: int | UnsetType = UNSET
    seconds_left: float | UnsetType | None = UNSET


class ProcessView(Struct, frozen=True):
    """A process of the cluster: `lease` seconds are left, and it owns so many `partitions`.

    It cannot open `refused` partitions at present; `/v1/cluster` of this process says why.
    """

    name: str
    url: str
    lease: float
    leaving: bool
    partitions: int
    refused: int


class PartitionView(Struct, frozen=True):
    """A partition: its epoch, its owner (None if there is none), and for how many seconds.

    `trouble` is why the process that was asked could not open it, or cannot write to it now; None
    if it can, or did not try.
    """

    tenant: str
    partition: int
    epoch: int
    owner: str | None
    age: float
    trouble: str | None = None


class SharedView(Struct, frozen=True):
    """What partitions have learnt, for each other: so many contributions, read `age` seconds ago.

    `trouble` is why they cannot be read at present, None if they can.
    """

    contributions: int
    age: float
    trouble: str | None


class ClusterView(Struct, frozen=True):
    """Who owns what, as the process that was `asked` saw it `age` seconds ago.

    By then the database took `database` seconds to renew the lease; `trouble` is why it cannot be
    renewed now, None if it can. The process is taking over `starting` partitions at present, and
    does not answer for them yet.
    """

    asked: str
    trouble: str | None
    age: float
    database: float
    starting: int
    processes: list[ProcessView]
    partitions: list[PartitionView]
    shared: SharedView
