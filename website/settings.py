"""The page of the service's settings: names and defaults of the code, and meanings."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from dyclu.service.settings import (
    RELOADED,
    RELOADED_OF_TENANT,
    Key,
    Limits,
    Operator,
    Settings,
    TenantSettings,
)
from website.markdown import table

LEAD = """\
# Settings

Settings of `dyclu serve` come from flags (`--port 80`), then from environment variables
(`DYCLU_PORT=80`), then from a TOML file (`--config dyclu.toml`). Those marked *reload* can be
changed while the service runs ([how](../service.md#reloading)); the others need a restart.
[Serve](../service.md#settings) has a complete file as an example.

"""

SERVICE = {
    "host": "address to listen on; anything but a loopback address needs keys",
    "port": "port; 0 takes any free one",
    "data": "folder for journals and snapshots",
    "log": "format of the log",
    "traces": "whether calls are sent to OpenTelemetry as spans",
    "operators": "keys that see metrics and health of all tenants, and no data",
    "own_policies": "policies of your own that tenants may name, each as `module:Class`",
    "tls_cert": "file with the certificate (PEM)",
    "tls_key": "file with the certificate's key (PEM)",
    "tls_ca": "file with the authorities (PEM) that processes of a cluster trust; public ones by "
    "default",
    "max_headers": "bytes of a request's headers",
    "max_body": "bytes of a request's body",
    "idle_timeout": "seconds for which a connection may be idle",
    "body_timeout": "seconds in which a body must arrive",
    "answer_timeout": "seconds in which a client must read something of its answer",
    "max_connections": "connections of all clients together",
    "snapshot_every": "seconds between two snapshots",
    "store": "address of PostgreSQL for the journals of several processes; empty: files in `data`",
    "name": "name of this process among several; machine and port by default",
    "advertise": "address at which the other processes reach this one",
    "lease": "seconds after which the partitions of a silent process are taken over",
}
TENANT = {
    "dim": "number of features of an arm; must be given, unless there are `features`",
    "policy": "name of the policy: one of `dyclu.policies.names()`, or of `own_policies`",
    "options": "options of the policy",
    "mode": "`shadow` learns from choices that the caller makes",
    "epsilon": "share of decisions with a random arm",
    "floor": "least probability of each offered arm",
    "control": "share of the users who are served by the baseline",
    "baseline": "what the control group is shown",
    "reward": "which reward counts if a decision gets several",
    "learn": "when rewards are learnt: as they arrive, or in the order of their decisions",
    "reward_wait": "seconds in which a reward is accepted",
    "default_reward": "reward that is learnt for a decision that got none",
    "position": "the feature into which the position of a slot is written",
    "log_arms": "whether the journal keeps all offered arms",
    "keep": 'how much of the journal is kept: `"90d"`, `"1000000 lines"` or `"all"`',
    "archive": "whether removed lines are written to Parquet files",
    "partitions": "parts into which users are divided, with `store`; it cannot change later",
    "share": "whether partitions learn from each other, with `store`, if the policy can",
    "features": "columns of the product, or the path of a file with them",
    "keys": "keys of callers, as digests",
}
LIMITS = {
    "max_arms": "arms of a decision",
    "max_ranked": "arms of a decision that asks for `rank` or `explain`",
    "max_batch": "items of a batch",
    "max_norm": "length of a vector of features",
    "max_reward": "size of a reward",
    "max_pending": "decisions that wait for a reward",
    "max_users": "users of whom the policy keeps something",
    "max_queue": "lines that wait for the disk",
    "max_bodies": "bytes of bodies that are not answered yet",
    "max_connections": "requests under way, and connections that are kept open",
    "max_rate": "requests per second",
}
KEY = {
    "digest": "what `dyclu key` prints beside the key",
    "role": "what the caller may do",
    "name": "name in the log",
    "expires": "time from which the key is refused",
}


def page() -> str:
    """Return the page: a table per part of the settings.

    >>> "| `port` |" in page()
    True
    """
    all_limits = frozenset(LIMITS)
    return "".join(
        (
            LEAD,
            _part("Service", Settings, SERVICE, reloaded=RELOADED),
            _part("Tenants: `[tenants.NAME]`", TenantSettings, TENANT, reloaded=RELOADED_OF_TENANT),
            _part("Limits: `[tenants.NAME.limits]`", Limits, LIMITS, reloaded=all_limits),
            _part("Keys: `[[tenants.NAME.keys]]`", Key, KEY),
            _part("Operators: `[[operators]]`", Operator, KEY),
        )
    )


def _part(
    title: str, kind: Any, meanings: Mapping[str, str], *, reloaded: Collection[str] = ()
) -> str:
    rows = [
        (
            f"`{field.encode_name}`",
            meanings[field.encode_name] + (" (*reload*)" if field.encode_name in reloaded else ""),
            _default(field),
        )
        for field in msgspec.structs.fields(kind)
        if field.encode_name not in ("tenants", "limits")
    ]
    return f"## {title}\n\n{table(['setting', 'meaning', 'default'], rows)}"


def _default(field: msgspec.structs.FieldInfo) -> str:
    value = field.default
    if field.default_factory is not msgspec.NODEFAULT:
        value = field.default_factory()
    if value is msgspec.NODEFAULT:
        return "must be given"
    return "none" if value in (None, "", [], {}) else f"`{value}`"
