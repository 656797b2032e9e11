"""API keys: which tenant a caller belongs to, and what they may do. Only digests are kept."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from dyclu.service.refusal import Refusal
from dyclu.service.schema import Role
from dyclu.service.settings import Key, Operator, Settings


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


def _caller(tenant: str | None, role: Role, key: Key | Operator) -> Caller:
    expires = None if key.expires is None else key.expires.timestamp()
    return Caller(tenant, role, key.name or key.digest[7:15], expires)
