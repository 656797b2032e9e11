"""API keys: which tenant a caller belongs to, and what they may do. Only digests are kept."""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from dyclu.errors import OptionError
from dyclu.service.refusal import Refusal
from dyclu.service.schema import Role
from dyclu.service.settings import UNITS, Key, Operator, Settings

LOG = logging.getLogger("dyclu.service")

DAY = 86_400.0
"""Seconds of a day: so often the log reminds of a key that is about to expire."""

SOON = 14 * DAY
"""Seconds before the end of a key from which metrics and log tell it."""


@dataclass(frozen=True, slots=True)
class Caller:
    """What a key stands for: a tenant, or no tenant and all tenants' metrics (an operator).

    Attributes
    ----------
    key : str
        The key's name, or the beginning of its digest.
    expires : float or None
        When the key ends, in seconds since 1970.
    """

    tenant: str | None
    role: Role
    key: str = ""
    expires: float | None = None

    def tenant_for(self, *, writing: bool) -> str:
        """Return the tenant whose data they may read, or change if `writing`; or refuse."""
        if self.tenant is None:
            raise Refusal(
                403, "operator", "an operator's key sees metrics and health only; use a tenant's"
            )
        if writing and self.role != "read-write":
            raise Refusal(403, "read-only", "this key may only read; use a read-write key")
        return self.tenant


def new_key() -> str:
    """Return a new key: 256 random bits, so that a plain digest hides it."""
    return f"dyclu_{secrets.token_urlsafe(32)}"


def digest(key: str) -> str:
    """Return what is stored of a key.

    >>> digest("dyclu_example")[:15]
    'sha256:0cfb94a7'
    """
    return f"sha256:{hashlib.sha256(key.encode()).hexdigest()}"


def end_of(text: str, *, now: datetime) -> datetime:
    """Return when a key expires: after a time such as 90d, or at a date (0:00 UTC) or a moment.

    >>> now = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> print(end_of("90d", now=now), end_of("2026-03-01", now=now))
    2026-04-01 12:00:00+00:00 2026-03-01 00:00:00+00:00
    >>> end_of("2025-03-01", now=now)
    Traceback (most recent call last):
        ...
    dyclu.errors.OptionError: expires is '2025-03-01', which is over; name a later time
    """
    try:
        if span := re.fullmatch(r"(\d+)([smhd])", text):
            end = now + timedelta(seconds=int(span[1]) * UNITS[span[2]])
        else:
            end = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise OptionError(
            f'expires is {text!r}, expected a time such as "90d" or "12h", or a date such as '
            '"2027-01-31"'
        ) from None
    end = end.replace(tzinfo=UTC) if end.tzinfo is None else end.astimezone(UTC)
    if end <= now:
        raise OptionError(f"expires is {text!r}, which is over; name a later time")
    return end.replace(microsecond=0)


class Keyring:
    """Finds the caller of a request by its key."""

    def __init__(self, settings: Settings, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._only = Caller(next(iter(settings.tenants)), "read-write")
        self._callers = {
            key.digest: _caller(name, key.role, key)
            for name, tenant in settings.tenants.items()
            for key in tenant.keys
        }
        for key in settings.operators:
            self._callers[key.digest] = _caller(None, "operator", key)

    def caller(self, authorization: str | None) -> Caller:
        """Return who sent this Authorization header; without any keys it is the only tenant."""
        if not self._callers:
            return self._only
        scheme, _, key = (authorization or "").partition(" ")
        found = self._callers.get(digest(key.strip())) if scheme.lower() == "bearer" else None
        if found is None:
            raise Refusal(
                401, "no-key", "no known key; send the header Authorization: Bearer <key>"
            )
        if found.expires is not None and found.expires <= self._clock():
            raise Refusal(401, "expired", f"the key {found.key} has expired; ask for another one")
        return found

    def expiring(self) -> list[tuple[Caller, float]]:
        """Return keys that expire soon, with the seconds left; 0 of keys that have expired."""
        now, found = self._clock(), self._callers.values()
        left = [(one, one.expires - now) for one in found if one.expires is not None]
        return [(one, max(0.0, seconds)) for one, seconds in left if seconds <= SOON]


class Reminders:
    """Log which keys are about to expire, each at most once a day."""

    def __init__(self) -> None:
        self._left: dict[Caller, float] = {}

    def remind(self, keyring: Keyring) -> None:
        """Log the keys of which nothing was said for a day; call it now and then."""
        for key, left in keyring.expiring():
            if left and self._left.get(key, SOON + DAY) - left >= DAY:
                self._left[key] = left
                _remind(key, left)


def _remind(key: Caller, left: float) -> None:
    end = datetime.fromtimestamp(key.expires or 0.0, UTC).isoformat()
    of = "the operators" if key.tenant is None else f"tenant {key.tenant}"
    fields = {"tenant": key.tenant, "key": key.key, "expires": end}
    LOG.warning(
        "the key %s of %s expires in %.1f days (%s); make another one (dyclu key), add it to the "
        "settings, reload, and give it to the callers",
        key.key, of, left / DAY, end, extra={"fields": fields},
    )  # fmt: skip


def _caller(tenant: str | None, role: Role, key: Key | Operator) -> Caller:
    expires = None if key.expires is None else key.expires.timestamp()
    return Caller(tenant, role, key.name or key.digest[7:15], expires)
