"""What the tests of the scripts ask for."""

import pytest
from redis.asyncio import Redis

from tests.lua.table import Table


@pytest.fixture
def table(redis: Redis) -> Table:
    return Table(redis)
