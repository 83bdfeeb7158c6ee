"""No test finds what the killed processes of another one have left on the shared server."""

import pytest
from redis.asyncio import Redis

from aiolock._embedded_server import Server


@pytest.mark.parametrize("test", ["one", "another"])
async def test_each_test_begins_with_an_empty_server(test: str, server: Server) -> None:
    async with Redis.from_url(server.url) as client:
        assert await client.keys() == []
        await client.set("it", 1)
