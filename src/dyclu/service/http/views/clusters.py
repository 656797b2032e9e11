"""The service as a member of a cluster: how it begins, its health, and what it shows of others."""

from __future__ import annotations

import secrets
import shutil
import socket
from collections.abc import Sequence
from pathlib import Path

from dyclu.service import schema
from dyclu.service.cluster import registry
from dyclu.service.cluster.keeper import Keeper
from dyclu.service.cluster.places import Place
from dyclu.service.disk.postgres.database import Database
from dyclu.service.settings import Settings


def name_of(settings: Settings) -> str:
    """Return the name of this process: the one in the settings, or machine and port."""
    if settings.name is not None:
        return settings.name
    return f"{socket.gethostname()}-{settings.port or secrets.token_hex(3)}"


def copies_folder(settings: Settings) -> Path:
    """Return the folder for the copies of journals; one per process."""
    return Path(settings.data) / f"copies-{settings.name or settings.port or secrets.token_hex(3)}"


def begun(settings: Settings, folder: Path) -> Keeper:
    """Return the keeper of this process; raises if the database cannot be used."""
    for left in folder.iterdir():
        # Copies of a process that was killed: the database may say something else by now.
        if left.is_dir():
            shutil.rmtree(left)
    database = Database(settings.store)
    database.begin()
    return Keeper(settings, database, folder, name=name_of(settings))


def cluster_health(keeper: Keeper) -> schema.Health:
    """Return whether requests can be answered, here or by other processes."""
    if keeper.trouble is not None:
        joined = bool(keeper.overview.processes)
        return schema.Health("unavailable" if joined else "starting", keeper.trouble)
    places, here = keeper.overview.partitions, [one.tenant for one in keeper.serving.values()]
    orphans = sum(keeper.overview.owner(place) is None for place in places)
    starting = sum(tenant.starting for tenant in here)
    reasons = [
        *([f"{orphans} of {len(places)} partitions have no owner"] if orphans else []),
        *([f"{starting} partitions are being taken over"] if starting else []),
        *keeper.refused.values(),
        *_stale(keeper),
        *(f"{one.name}: {one.trouble}" for one in here if one.serving and one.trouble),
    ]
    if not reasons:
        return schema.Health("ok")
    if orphans < len(places):
        return schema.Health("degraded", "; ".join(reasons))
    return schema.Health("starting" if starting else "unavailable", "; ".join(reasons))


def _stale(keeper: Keeper) -> list[str]:
    """Return that partitions go on with what they knew of each other, if they do."""
    shared = keeper.registry
    if shared.age < registry.STALE:
        return []
    why = shared.trouble or "the database does not answer"
    return [f"what other partitions have learnt was read {shared.age:.0f} s ago: {why}"]


def cluster_view(keeper: Keeper, tenants: Sequence[str]) -> schema.ClusterView:
    """Return all processes, and the partitions of these tenants, as this process knows them."""
    overview = keeper.overview
    places = {place: held for place, held in overview.partitions.items() if place[0] in tenants}
    names = {one.id: one.name for one in overview.processes.values()}
    return schema.ClusterView(
        asked=keeper.name,
        trouble=keeper.trouble,
        age=round(keeper.age, 3),
        database=round(keeper.took, 3),
        starting=sum(one.tenant.starting for one in keeper.serving.values()),
        processes=[
            schema.ProcessView(
                one.name,
                one.url,
                round(one.left, 3),
                one.leaving,
                sum(held.owner == one.id for held in places.values()),
                one.refused,
            )
            for one in sorted(overview.processes.values(), key=lambda one: one.name)
        ],
        partitions=[
            schema.PartitionView(
                tenant,
                number,
                held.epoch,
                None if overview.owner((tenant, number)) is None else names[held.owner or ""],
                round(held.age, 3),
                _trouble(keeper, (tenant, number)),
            )
            for (tenant, number), held in sorted(places.items())
        ],
        shared=schema.SharedView(
            keeper.registry.count(tenants),
            round(keeper.registry.age, 3),
            keeper.registry.trouble,
        ),
    )


def _trouble(keeper: Keeper, place: Place) -> str | None:
    """Return why a partition could not be opened here, or cannot be written by this process."""
    serving = keeper.serving.get(place)
    if serving is not None and serving.tenant.serving and serving.tenant.trouble:
        return serving.tenant.trouble
    return keeper.refused.get(place)
