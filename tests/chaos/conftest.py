"""A proxy before the server, and the Redis clients that users make."""

from collections.abc import AsyncIterator, Callable

import pytest
from redis.asyncio import Redis

from aiolock._server import Server
from tests.support.proxy import Proxy

# How a user's client may be made; redis-py's own retries are 10 in the first two (in recent versions) and 0 else.
USERS: dict[str, Callable[[Proxy], Redis]] = {
    "host_and_port": lambda proxy: Redis(host="127.0.0.1", port=proxy.port),
    "decoding": lambda proxy: Redis(host="127.0.0.1", port=proxy.port, decode_responses=True, protocol=2),
    "from_url": lambda proxy: Redis.from_url(proxy.url, protocol=2),
    "resp3": lambda proxy: Redis.from_url(proxy.url, protocol=3),
    "resp3_decoding": lambda proxy: Redis.from_url(proxy.url, protocol=3, decode_responses=True),
}


@pytest.fixture
async def proxy(server: Server, redis: Redis) -> AsyncIterator[Proxy]:
    """A proxy before the shared server, which `redis` has emptied."""
    async with Proxy(server.host, server.port) as running:
        yield running


@pytest.fixture
async def through(proxy: Proxy) -> AsyncIterator[Redis]:
    """A user's client behind the proxy."""
    client = Redis.from_url(proxy.url)
    yield client
    await client.aclose()
