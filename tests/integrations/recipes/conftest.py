"""What these tests are about does not depend on the kind of server."""

from collections.abc import AsyncIterator, Iterator

import pytest

from aiolock import LockClient
from aiolock._embedded_server import Server


@pytest.fixture(scope="module")
def redis_server() -> Iterator[Server]:
    with Server() as running:
        yield running


@pytest.fixture
async def watcher(redis_server: Server) -> AsyncIterator[LockClient]:
    """A third party, on a server that is empty."""
    async with LockClient.from_url(redis_server.url) as locks:
        await locks._redis.flushall()
        yield locks
