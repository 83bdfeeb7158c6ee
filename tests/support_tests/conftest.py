"""The clients that speak to the server through the proxy."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from tests.support.proxy import (
    Proxy,
)
from tests.support_tests.wire import Wire


@pytest.fixture(params=[2, 3], ids=["resp2", "resp3"])
async def client(request: pytest.FixtureRequest, proxy: Proxy) -> AsyncIterator[Redis]:
    """A client behind the proxy that never sends again by itself."""
    client = Redis.from_url(
        proxy.url, protocol=request.param, retry=Retry(NoBackoff(), 0), socket_timeout=5, decode_responses=True
    )
    yield client
    await client.aclose()


@pytest.fixture
async def wire(proxy: Proxy) -> AsyncIterator[Wire]:
    wire = Wire(*await asyncio.open_connection("127.0.0.1", proxy.port))
    yield wire
    await wire.close()
