"""Settings, from flags, environment variables and a TOML file; flags win, then variables.

::

    host = "127.0.0.1"              # anything but a loopback address needs keys
    port = 8321
    data = "dyclu-data"             # one folder per tenant is made in it

    [tenants.shop]
    dim = 25                        # not needed if there are features
    policy = "atlas"                # any of `dyclu.policies.names()`, or one of own_policies
    options = {alpha = 0.25}        # options of the policy
    epsilon = 0.05

    [tenants.shop.features]         # or features = "shop.dyclu", a file that the library saved
    arm = {genre = {kind = "category", values = ["jazz", "rock"]}}

    [[tenants.shop.keys]]
    digest = "sha256:..."           # `dyclu key` prints a new key and this line
    role = "read-write"
    name = "checkout"               # for the log
    expires = 2027-01-01T00:00:00Z

    [[operators]]                   # keys that see metrics and health of all tenants, and no data
    digest = "sha256:..."

The variable of a setting is ``DYCLU_`` and its name in capitals: ``DYCLU_PORT``. Flags and
variables of a tenant's settings (``--policy``, ``DYCLU_DIM``) are for the tenant ``default``.
"""

from __future__ import annotations

import ipaddress
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from dyclu.data import Features
from dyclu.errors import DycluError, FileError, OptionError
from dyclu.service.schema import ID, Baseline, Combination, Learning, LogFormat, Mode, TenantRole
from dyclu.service.spec import PolicySpec

DEFAULT = "default"
RESERVED_NAMES = frozenset({"lock", "lost+found"})
"""Names in the data folder that a tenant cannot have: our lock, and a file system's folder."""

KNOWN_DIGESTS = frozenset(
    {
        "sha256:" + 64 * "0",
        "sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b",
    }
)
"""Digests that stood in our documents: a placeholder, and that of the word "secret"."""

LIVE_KEYS = 2
"""Keys per role that a tenant may have: the present one and its replacement."""

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
"""Seconds of the units of time in `keep`."""

Whole = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]


OwnPolicy = Annotated[str, Meta(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")]
Digest = Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{64}$")]
KeyName = Annotated[str, Meta(pattern=ID, max_length=64)]
Moment = Annotated[datetime, Meta(tz=True)]


class Key(Struct, frozen=True, forbid_unknown_fields=True):
    """The digest of a key and its role; the key itself is not stored."""

    digest: Digest
    role: TenantRole
    name: KeyName | None = None
    expires: Moment | None = None


class Operator(Struct, frozen=True, forbid_unknown_fields=True):
    """The digest of a key that sees metrics and health of all tenants, and no data."""

    digest: Digest
    name: KeyName | None = None
    expires: Moment | None = None


class Limits(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits; a request beyond one of them is refused."""

    max_arms: Whole = 1000
    max_ranked: Whole = 100
    max_batch: Whole = 1000
    max_norm: Annotated[float, Meta(gt=0, le=1e6)] = 1e3
    max_reward: Annotated[float, Meta(gt=0, le=1e12)] = 1e6
    max_pending: Whole = 10_000_000
    max_users: Whole = 1_000_000
    max_queue: Whole = 4096
    max_bodies: Whole = 32_000_000
    max_connections: Whole = 500
    max_rate: Annotated[float, Meta(gt=0)] | None = None


class Keep(Struct, frozen=True):
    """How much of the journal is kept: the last lines, or those of the last seconds, or all.

    Examples
    --------
    >>> Keep.parsed("90d"), Keep.parsed("1000000 lines")
    (Keep(lines=None, seconds=7776000.0), Keep(lines=1000000, seconds=None))
    >>> Keep.parsed("all").forever
    True
    """

    lines: int | None = None
    seconds: float | None = None

    @classmethod
    def parsed(cls, text: str) -> Keep:
        """Return what a setting says."""
        found = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h|d)|(\d+) lines|all", text.strip())
        if found is None or not re.search("[1-9]|all", text):
            raise OptionError(
                f'keep is {text!r}, expected "all", a time such as "90d", "12h" or "30m", or a '
                'number such as "1000000 lines"'
            )
        number, unit, lines = found.groups()
        if lines is not None:
            return cls(lines=int(lines))
        return cls() if number is None else cls(seconds=float(number) * UNITS[unit])

    @property
    def forever(self) -> bool:
        """Whether nothing is ever removed."""
        return self.lines is None and self.seconds is None


VECTOR = "features"
"""Key of an arm in requests that holds its vector; no column of an arm can have this name."""


class TenantSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of one tenant: policy, features, mode, limits and keys.

    `dim` is that of the features if there are any; otherwise it must be given.

    Examples
    --------
    >>> genre = {"kind": "category", "values": ["jazz", "rock"]}
    >>> TenantSettings(features=Features(arm={"genre": genre})).dim
    4
    """

    dim: Annotated[int, Meta(ge=0, le=10_000)] = 0
    policy: str = "atlas"
    options: dict[str, Any] = {}
    mode: Mode = "online"
    epsilon: Annotated[float, Meta(ge=0, le=1)] = 0.0
    floor: Annotated[float, Meta(ge=0, le=1)] = 0.0
    control: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    baseline: Baseline = "uniform"
    reward: Combination = "first"
    learn: Learning = "arrival"
    reward_wait: Annotated[float, Meta(gt=0, le=10 * 365 * 86400)] = 86400.0
    default_reward: float | None = None
    position: Annotated[int, Meta(ge=0)] | None = None
    log_arms: bool = False
    keep: str = "all"
    archive: bool = False
    partitions: Annotated[int, Meta(ge=1, le=4096)] = 64
    share: bool = True
    features: Features | None = None
    limits: Limits = Limits()
    keys: list[Key] = []

    def __post_init__(self) -> None:
        if self.features is not None:
            _check_features(self.features, self.dim)
            msgspec.structs.force_setattr(self, "dim", self.features.dim)
        elif not self.dim:
            raise OptionError("dim is missing; say how many features an arm has, or declare them")

    def spec(self) -> PolicySpec:
        """Return the policy that serves."""
        return PolicySpec(self.policy, self.dim, self.options)


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """All settings of `dyclu serve`.

    Examples
    --------
    >>> told = settings({"dim": "3", "policy": "dyclu", "noise": "0.1"}, environment={})
    Traceback (most recent call last):
        ...
    dyclu.errors.OptionError: setting noise is not known
    >>> told = settings({"dim": "3", "policy": "dyclu"}, environment={"DYCLU_PORT": "80"})
    >>> told.port, told.tenants["default"].policy
    (80, 'dyclu')
    """

    tenants: dict[str, TenantSettings]
    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8321
    data: str = "dyclu-data"
    log: LogFormat = "plain"
    traces: bool = False
    operators: list[Operator] = []
    own_policies: list[OwnPolicy] = []
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_ca: str | None = None
    max_headers: Annotated[int, Meta(ge=8192)] = 32_768
    max_body: Whole = 2_000_000
    idle_timeout: Seconds = 75.0
    body_timeout: Seconds = 10.0
    answer_timeout: Seconds = 30.0
    max_connections: Whole = 1000
    snapshot_every: Seconds = 300.0
    store: str = ""
    name: KeyName | None = None
    advertise: str | None = None
    lease: Annotated[float, Meta(ge=1)] = 10.0

    def __post_init__(self) -> None:
        if not self.tenants:
            raise OptionError("no tenant is set up; pass --dim, or name tenants in the TOML file")
        _check_names(self.tenants)
        for name, tenant in self.tenants.items():
            _check_listed(name, tenant, self.own_policies)
            _check_tenant(name, tenant)
        self._check_keys()
        if (self.tls_cert is None) != (self.tls_key is None):
            raise OptionError("tls_cert and tls_key belong together; set both, or none of them")
        if self.store:
            _check_cluster(self)

    def _check_keys(self) -> None:
        digests = [key.digest for tenant in self.tenants.values() for key in tenant.keys]
        digests += [key.digest for key in self.operators]
        if KNOWN_DIGESTS.intersection(digests):
            raise OptionError(
                "a key's digest is the example of the documentation, which everybody knows; "
                "`dyclu key` makes a key of your own"
            )
        if len(set(digests)) < len(digests):
            raise OptionError("a key is listed twice; a key says which tenant is meant")
        if (digests or len(self.tenants) > 1) and not all(t.keys for t in self.tenants.values()):
            raise OptionError(
                "a tenant has no key; once there are keys, or several tenants, each needs one: "
                "`dyclu key` makes one"
            )
        if not digests and not is_loopback(self.host):
            raise OptionError(
                f"host is {self.host}, and without keys anybody there could read and write; "
                "set up keys (`dyclu key` makes one), or bind to 127.0.0.1"
            )

    @property
    def keyed(self) -> bool:
        """Whether requests need a key."""
        return any(tenant.keys for tenant in self.tenants.values())


_OF_SERVICE = frozenset(Settings.__struct_fields__) - {"tenants"}
_OF_TENANT = frozenset(TenantSettings.__struct_fields__) - {"limits"}


def settings(
    flags: Mapping[str, Any], *, environment: Mapping[str, str], file: Path | None = None
) -> Settings:
    """Return the settings; a flag that is None was not given."""
    told: dict[str, Any] = _from_file(file) if file else {}
    variables = {
        name: environment[f"DYCLU_{name.upper()}"]
        for name in sorted(_OF_SERVICE | _OF_TENANT)
        if f"DYCLU_{name.upper()}" in environment
    }
    for layer in (variables, {k: v for k, v in flags.items() if v is not None}):
        told = _merged(told, layer)
    try:
        return msgspec.convert(told, Settings, strict=False, dec_hook=as_setting)
    except msgspec.ValidationError as error:
        raise OptionError(f"settings: {error}") from None


def as_setting(kind: type[Any], value: Any) -> Any:
    """Return features from a declaration, or from the path of a file that `Features.save` wrote.

    msgspec calls it for types that it does not know.
    """
    assert kind is Features, kind
    if isinstance(value, Features):
        return value
    try:
        return Features.load(value) if isinstance(value, str) else Features.of(value)
    except DycluError as error:
        raise ValueError(f"features: {error}") from None


def _check_features(features: Features, dim: int) -> None:
    """Refuse features from which a service cannot make the vectors of requests."""
    told = features.dim  # raises if something is left to be fitted
    if dim not in (0, told):
        raise OptionError(f"dim is {dim}, the features make vectors of {told}; leave dim out")
    if VECTOR in features.arm:
        raise OptionError(
            f"a column of the arm is called {VECTOR!r}, which is the key of a vector in requests; "
            "rename it"
        )


def _from_file(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileError(f"cannot read {file} ({error.strerror}); check the path") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FileError(f"{file} is not TOML ({error})") from None
    except RecursionError:
        raise FileError(f"{file} is nested too deeply; settings are tables in tables") from None


def _merged(told: dict[str, Any], layer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with those of `layer` replaced."""
    for name in layer:
        if name not in _OF_SERVICE | _OF_TENANT:
            raise OptionError(f"setting {name} is not known")
    service = {name: _parsed(name, value) for name, value in layer.items() if name in _OF_SERVICE}
    tenant = {name: _parsed(name, value) for name, value in layer.items() if name in _OF_TENANT}
    told = {**told, **service}
    tenants = told.get("tenants", {})
    if tenant:
        if set(tenants) - {DEFAULT}:
            raise OptionError(
                f"{', '.join(tenant)} would be of the tenant {DEFAULT!r}, but the file sets up "
                f"{', '.join(tenants)}; say it in the file"
            )
        tenants = {DEFAULT: {**tenants.get(DEFAULT, {}), **tenant}}
    return {**told, "tenants": tenants}


def _parsed(name: str, value: Any) -> Any:
    """Return options (``noise=0.1,window=30``) and keys (``digest role, ...``) as tables."""
    if name == "options" and isinstance(value, str):
        return as_options(value)
    if name == "own_policies" and isinstance(value, str):
        return [part.strip() for part in value.split(",")]
    if name in _KEYS and isinstance(value, str):
        words = [part.split() for part in value.split(",")]
        return [dict(zip(_KEYS[name], one, strict=False)) for one in words]
    return value


_KEYS = {"keys": ("digest", "role", "name", "expires"), "operators": ("digest", "name", "expires")}
"""Words of a key in a flag or a variable, in order; the last two may be missing."""


def as_options(text: str) -> dict[str, Any]:
    """Return a policy's options from ``name=value,…``.

    >>> as_options("noise=0.1,window=30,shared=true")
    {'noise': 0.1, 'window': 30, 'shared': True}
    """
    try:
        return tomllib.loads("\n".join(text.split(",")))
    except tomllib.TOMLDecodeError as error:
        raise OptionError(
            f"options are {text!r}, expected name=value,name=value ({error})"
        ) from None


def login_of(url: str) -> str:
    """Return what an address has before its last @: user and password, as they are written.

    >>> login_of("postgresql://ann:se/cret@db:5432/shop")
    'ann:se/cret'
    """
    return url.partition("://")[2].rpartition("@")[0]


def without_password(url: str) -> str:
    """Return the address of a database as it may be shown.

    >>> without_password("postgresql://ann:secret@db:5432/shop?sslmode=require")
    'postgresql://ann@db:5432/shop'
    """
    if not url:
        return ""
    scheme, _, rest = url.partition("://")
    user = re.split("[:/?#]", login_of(url))[0]
    place = re.split("[?#]", rest.rpartition("@")[2])[0]
    return f"{scheme}://{f'{user}@' if user else ''}{place}"


ALWAYS_SHOWN = frozenset({"data", "policy", "dim"})
"""Settings that a start prints also if they are the defaults."""


def described(told: Settings) -> list[str]:
    """Return the settings that are not the defaults as lines; of keys, the first digits.

    >>> for line in described(settings({"dim": 3, "epsilon": 0.1}, environment={})):
    ...     print(line)
    data = dyclu-data
    [default] dim = 3
    [default] policy = atlas
    [default] epsilon = 0.1
    all other settings have their defaults
    """
    shown = msgspec.structs.replace(told, store=without_password(told.store))
    lines = [f"{name} = {value}" for name, value in _chosen(shown) if name in _OF_SERVICE]
    for name, tenant in told.tenants.items():
        lines += [f"[{name}] {setting} = {value}" for setting, value in _chosen(tenant)]
    return [*lines, "all other settings have their defaults"]


def _chosen(told: Settings | TenantSettings | Limits) -> Iterator[tuple[str, str]]:
    """Yield the settings to show by name; limits one by one."""
    for field in msgspec.structs.fields(told):
        value = getattr(told, field.name)
        default = field.default
        if field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        if isinstance(value, Limits):
            yield from ((f"limits.{limit}", number) for limit, number in _chosen(value))
        elif value != default or field.name in ALWAYS_SHOWN:
            yield field.name, _shown(value)


def _shown(value: Any) -> str:
    if isinstance(value, Features):
        return f"version {value.version}, {value.dim} features"
    if isinstance(value, list):
        shown = (one if isinstance(one, str) else _shown_key(one) for one in value)
        return ", ".join(shown) or "none"
    return str(value)


def _shown_key(key: Key | Operator) -> str:
    role = key.role if isinstance(key, Key) else "operator"
    until = "" if key.expires is None else f" until {key.expires.isoformat()}"
    return f"{key.name or ''} {key.digest[:15]}… {role}{until}".strip()


RELOADED = frozenset({"operators", "max_body", "body_timeout", "tenants"})
RELOADED_OF_TENANT = frozenset(
    {
        "mode", "epsilon", "floor", "control", "baseline", "reward", "learn", "reward_wait",
        "default_reward", "log_arms", "features", "limits", "keys",
    }
)  # fmt: skip
"""Settings that can be changed while the service runs; all others need a restart."""


def needing_restart(old: Settings, new: Settings) -> list[str]:
    """Return the names of settings that differ and cannot be changed while the service runs.

    >>> old = settings({"dim": 3}, environment={})
    >>> needing_restart(old, settings({"dim": 4, "port": 1, "epsilon": 0.1}, environment={}))
    ['port', '[default] dim']
    """
    found = _differing(old, new, sorted(_OF_SERVICE - RELOADED))
    if old.tenants.keys() != new.tenants.keys():
        return [*found, "tenants"]
    fixed = sorted(frozenset(TenantSettings.__struct_fields__) - RELOADED_OF_TENANT)
    for name in old.tenants:
        names = _differing(old.tenants[name], new.tenants[name], fixed)
        found += [f"[{name}] {setting}" for setting in names]
        found += [
            f"[{name}] features ({why})"
            for why in incompatible(old.tenants[name].features, new.tenants[name].features)
        ]
    return found


def incompatible(old: Features | None, new: Features | None) -> tuple[str, ...]:
    """Return, in sentences, why vectors made by `new` are not those that `old` made.

    Callers may also send vectors. So features can be added to a tenant, or removed.
    """
    return () if old is None or new is None else old.differences(new)


def _differing(old: Struct, new: Struct, names: Sequence[str]) -> list[str]:
    return [name for name in names if getattr(old, name) != getattr(new, name)]


def _check_names(names: Iterable[str]) -> None:
    # The name becomes a folder's, and some file systems ignore case.
    folders: dict[str, str] = {}
    for name in names:
        if len(name) > 64 or not re.fullmatch(ID, name):
            raise OptionError(f"tenant {name!r}: expected a short name of letters, digits, _ and -")
        if name.lower() in RESERVED_NAMES:
            raise OptionError(f"tenant {name!r}: this name is taken; choose another")
        if (other := folders.setdefault(name.lower(), name)) != name:
            raise OptionError(f"tenants {other!r} and {name!r} could be one folder; rename one")


def _check_listed(name: str, tenant: TenantSettings, own: Sequence[str]) -> None:
    """Refuse an own policy that is not listed, before its module is imported."""
    if tenant.spec().own and tenant.policy not in own:
        listed = ", ".join(own) or "none"
        raise OptionError(
            f"tenant {name}: {tenant.policy} is a policy of your own, and own_policies lists "
            f'{listed}; add own_policies = ["{tenant.policy}"] if the service may import it'
        )


def _check_tenant(name: str, tenant: TenantSettings) -> None:
    Keep.parsed(tenant.keep)
    try:
        tenant.spec().make()
    except TypeError as error:
        raise OptionError(f"tenant {name}: {error}; see the policy's options") from None
    if tenant.archive and Keep.parsed(tenant.keep).forever:
        raise OptionError(f'tenant {name}: archive moves old lines to files; set keep = "90d", say')
    default = tenant.default_reward
    if default is not None and not abs(default) <= tenant.limits.max_reward:
        raise OptionError(f"tenant {name}: default_reward is {default}, beyond max_reward")
    _check_comparison(name, tenant)
    for role in ("read-only", "read-write"):
        if sum(key.role == role for key in tenant.keys) > LIVE_KEYS:
            raise OptionError(
                f"tenant {name} has more than {LIVE_KEYS} {role} keys; remove those that were "
                "replaced"
            )


def _check_cluster(told: Settings) -> None:
    """Refuse settings with which several processes cannot serve together."""
    # The address may hold a password: it is not repeated.
    if not re.match("postgres(ql)?://", told.store):
        raise OptionError(
            'store is not an address of PostgreSQL, expected "postgresql://user@host/database"; '
            "leave it out to keep the journals in files"
        )
    if re.search("[/?#]", login_of(told.store)):
        raise OptionError(
            "store has a /, ? or # before its last @, where user and password are; write %2F, %3F, "
            "%23 (and %40 for an @ after that), or give the password in the variable PGPASSWORD"
        )
    if told.host in ("0.0.0.0", "::") and told.advertise is None:
        raise OptionError(
            f"host is {told.host}, where other processes cannot reach this one; say where they "
            'can: advertise = "http://10.0.0.5:8321"'
        )
    for name, tenant in told.tenants.items():
        if tenant.archive:
            raise OptionError(
                f"tenant {name}: archive writes files beside the journal, which is in a database; "
                "set archive = false"
            )


def _check_comparison(name: str, tenant: TenantSettings) -> None:
    """Refuse settings of slots, rewards and control group that contradict each other."""
    if tenant.reward != "first" and tenant.learn != "settled":
        raise OptionError(
            f'tenant {name}: reward is "{tenant.reward}" and learn is "arrival", but what has been '
            'learnt cannot be changed by a later reward; set learn = "settled"'
        )
    if tenant.position is not None and tenant.position >= tenant.dim:
        raise OptionError(
            f"tenant {name}: position is {tenant.position}, expected one of the features 0 to "
            f"{tenant.dim - 1}"
        )
    if tenant.control and tenant.mode == "shadow":
        raise OptionError(
            f"tenant {name}: control is {tenant.control}, but in shadow mode the caller serves all "
            'users; set mode = "online", or control = 0'
        )


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
