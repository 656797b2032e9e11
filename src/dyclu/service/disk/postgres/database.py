"""`Database`: connections to PostgreSQL, and the one check that fences off former owners.

Errors are told in our own words: callers may see them. What the driver says, and where the database
is, goes to the log, with the password blotted out.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import unquote

from dyclu.errors import FileError, MissingExtra
from dyclu.service.disk.journal import StoreError
from dyclu.service.disk.postgres.appends import Appends
from dyclu.service.disk.postgres.schema import check_guarantees, make_tables
from dyclu.service.settings import login_of, without_password

LOG = logging.getLogger("dyclu.service")

CONNECT = 5
"""Seconds for which a connection is waited for."""

SILENT = 20
"""Seconds after which a peer that does not acknowledge packets is taken for dead."""

IDLE = 10
"""Seconds after which the database ends a transaction whose process has stopped in it."""

STATES = {
    "25006": "is read-only",
    "53100": "has a full disk",
    "53200": "is out of memory",
    "53300": "takes no more connections",
    "55P03": "keeps a lock for too long",
}
"""What callers are told instead of an error of this code (SQLSTATE)."""

_CLAIMED = (
    "SELECT 1 FROM dyclu.partition WHERE tenant = %(tenant)s AND partition = %(partition)s "
    "AND epoch = %(epoch)s AND owner = %(owner)s FOR UPDATE"
)


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to write to a partition: it ends when the database has another epoch or owner.

    The epoch alone does not do: a failover that loses a take-over gives its epoch out again. So
    the owner is the process that took the partition over, and never looked up later.
    """

    tenant: str
    partition: int
    epoch: int
    owner: str

    @property
    def named(self) -> dict[str, Any]:
        """The claim as parameters of a statement."""
        return asdict(self)


class OwnershipLost(StoreError):  # noqa: N818 - it says what happened
    """Another process owns the partition now; nothing was written."""

    def __init__(self, claim: Claim) -> None:
        super().__init__(
            f"partition {claim.partition} of {claim.tenant} has another owner since epoch "
            f"{claim.epoch}; nothing was written"
        )


def driver() -> Any:
    """Return psycopg, or say that it is missing."""
    try:
        import psycopg
    except ModuleNotFoundError:
        raise MissingExtra(
            "store = \"postgresql://…\" needs psycopg: pip install 'dyclu[cluster]'"
        ) from None
    return psycopg


class Database:
    """Connections to one database, used from any thread; at most `most` at a time.

    Attributes
    ----------
    appends : Appends
        Writes lines of several partitions together.
    """

    def __init__(self, url: str, *, most: int = 8) -> None:
        self.shown = without_password(url)
        self._url, self._driver = url, driver()
        self._secrets = _secrets(url)
        self._told = ""
        self._idle: list[Any] = []
        self._slots = threading.BoundedSemaphore(most)
        self.appends = Appends(self.connection)

    def another(self, *, most: int) -> Database:
        """Return connections of their own to the same database."""
        return Database(self._url, most=most)

    def begin(self) -> None:
        """Check the database, and make its tables if there are none."""
        try:
            with self.connection() as connection:
                check_guarantees(connection)
                make_tables(connection)
        except StoreError as error:
            told = self._told or error
            raise FileError(f"{told}; start the database, or correct store") from None

    @contextmanager
    def connection(self) -> Iterator[Any]:
        """Yield a connection; each statement on it is a transaction, unless one is begun.

        If it breaks, all idle connections are closed too: the database may have been restarted.
        """
        broken = (self._driver.OperationalError, self._driver.InterfaceError)
        if not self._slots.acquire(timeout=SILENT):
            raise StoreError(f"all connections to the database have been busy for {SILENT} s")
        try:
            connection = self._connection()
            try:
                yield connection
            except BaseException as error:
                connection.close()
                if isinstance(error, broken):
                    self._close_idle()
                raise
            self._idle.append(connection)
            self._told = ""
        except self._driver.Error as error:
            state = STATES.get(getattr(error, "sqlstate", None) or "")
            if state is None and not isinstance(error, broken):
                self._tell(f"refuses a statement ({self._said(error)})")
                raise StoreError("the database refuses a statement; the log says why") from None
            state = state or "does not answer"
            self._tell(f"{state} ({self._said(error)})")
            raise StoreError(f"the database {state}") from None
        finally:
            self._slots.release()

    @contextmanager
    def owned(self, claim: Claim) -> Iterator[Any]:
        """Yield a connection in a transaction that is made only if the claim still holds.

        The row of the partition stays locked until the end: nobody can take it over meanwhile, and
        a transaction of ours whose end we did not see has ended.
        """
        with self.connection() as connection, connection.transaction():
            if connection.execute(_CLAIMED, claim.named).fetchone() is None:
                raise OwnershipLost(claim)
            yield connection

    def _connection(self) -> Any:
        try:
            return self._idle.pop()
        except IndexError:
            pass
        try:
            connection = self._driver.connect(
                self._url,
                autocommit=True,
                connect_timeout=CONNECT,
                keepalives_idle=SILENT // 2,
                keepalives_interval=SILENT // 4,
                keepalives_count=2,
                tcp_user_timeout=1000 * SILENT,
                application_name="dyclu",
            )
        except self._driver.ProgrammingError:
            # What it says may be a part of the password.
            self._tell("has an address that cannot be read: write % as %25, & as %26, = as %3D")
            raise StoreError("the address of the database cannot be read") from None
        connection.isolation_level = self._driver.IsolationLevel.READ_COMMITTED
        # A statement that is cancelled while it waits for a standby would look committed.
        connection.execute(
            f"SET statement_timeout = 0; SET idle_in_transaction_session_timeout = {1000 * IDLE}"
        )
        return connection

    def _tell(self, trouble: str) -> None:
        """Log what is wrong with the database; once, until it works again."""
        told = f"the database {self.shown} {trouble}"
        if told != self._told:
            LOG.error("%s", told)
        self._told = told

    def _said(self, error: Exception) -> str:
        """Return the first line of an error, without passwords."""
        said = (str(error).strip() or type(error).__name__).splitlines()[0]
        for secret in self._secrets:
            said = said.replace(secret, "…")
        return said

    def close(self) -> None:
        """Close the connections, and end the thread that writes."""
        self.appends.close()
        self._close_idle()

    def _close_idle(self) -> None:
        while self._idle:
            try:
                self._idle.pop().close()
            except IndexError:
                return


def _secrets(url: str) -> list[str]:
    """Return the passwords in an address, as they are written and as they are meant."""
    found = [login_of(url).partition(":")[2]]
    for parameter in url.partition("?")[2].split("&"):
        name, _, value = parameter.partition("=")
        if unquote(name) in ("password", "sslpassword"):
            found.append(value)
    return [one for one in {*found, *map(unquote, found)} if one]
