"""API keys: which tenant a caller belongs to, and whether they may write. Only digests are kept."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass

from dyclu.service.refusal import Refusal
from dyclu.service.schema import Role
from dyclu.service.settings import Settings


@dataclass(frozen=True, slots=True)
class Caller:
    """The tenant a key stands for, and whether it may write."""

    tenant: str
    role: Role

    def must_write(self) -> None:
        """Refuse a caller who may only read."""
        if self.role != "read-write":
            raise Refusal(403, "read-only", "this key may only read; use a read-write key")


def new_key() -> str:
    """Return a new key: 256 random bits, so that a plain digest hides it."""
    return f"dyclu_{secrets.token_urlsafe(32)}"


def digest(key: str) -> str:
    """Return what is stored of a key.

    >>> digest("secret")[:15]
    'sha256:2bb80d53'
    """
    return f"sha256:{hashlib.sha256(key.encode()).hexdigest()}"


class Keyring:
    """Finds the caller of a request by its key."""

    def __init__(self, settings: Settings) -> None:
        self._only = Caller(next(iter(settings.tenants)), "read-write")
        self._callers = {
            key.digest: Caller(name, key.role)
            for name, tenant in settings.tenants.items()
            for key in tenant.keys
        }

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
        return found
