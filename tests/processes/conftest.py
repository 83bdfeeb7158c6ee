"""The common part of the tests with many processes."""

import pytest
from redis.asyncio import Redis


@pytest.fixture(autouse=True)
async def empty(redis: Redis) -> None:
    """
    Each test begins with an empty server: the fixture `redis` empties it.

    The processes of several tests use the same names, and a killed process keeps its permits: a permit that no later
    acquire has put back would be missing for ever in a counting semaphore of that name.
    """
