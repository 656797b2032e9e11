"""One PostgreSQL for all tests of this room; each takes a database of its own.

A new database is a thousand files. They are in memory, if there is room: processes and databases
are killed here, and what they wrote outlives them on any file system.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.service.postgres import Postgres, folder_in_memory, postgres, programs


@pytest.fixture(scope="session")
def server() -> Iterator[Postgres]:
    if programs() is None:
        pytest.skip("PostgreSQL is not installed (Debian: postgresql)")
    with postgres(inside=folder_in_memory()) as made:
        yield made


@pytest.fixture
def store(server: Postgres) -> str:
    return server.fresh()
