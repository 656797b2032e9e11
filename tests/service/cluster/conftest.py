"""One PostgreSQL for all tests of this room; each takes a database of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.service.postgres import Postgres, postgres, programs


@pytest.fixture(scope="session")
def server() -> Iterator[Postgres]:
    if programs() is None:
        pytest.skip("PostgreSQL is not installed (Debian: postgresql)")
    with postgres() as made:
        yield made


@pytest.fixture
def store(server: Postgres) -> str:
    return server.fresh()
