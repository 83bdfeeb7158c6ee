"""The fixtures of the tests of the scripts."""

import pytest
from redis.asyncio import Redis

from tests.lua.table import FairTable, Table


@pytest.fixture(params=[Table, FairTable], ids=["plain", "fair"])
def table(redis: Redis, request: pytest.FixtureRequest) -> Table:
    """A lock, by the scripts of a plain one and by those of a fair one, which differ only for waiters."""
    made: Table = request.param(redis)
    return made


@pytest.fixture
def fair(redis: Redis) -> FairTable:
    return FairTable(redis)
