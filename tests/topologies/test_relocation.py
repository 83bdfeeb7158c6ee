"""A server that becomes another one behind the same address, without ending the old connections."""

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection

from aiolock import LockConfig
from aiolock._backend import Backend
from aiolock._config import Timing
from aiolock._connector import Connector
from aiolock._one_server import OneServer
from aiolock._scripts import READ_CARD
from aiolock._server import Server
from tests.support.observe import pubsub_channels, until


@pytest.fixture
async def old(own: Server) -> AsyncIterator[Redis]:
    client = Redis.from_url(own.url)
    yield client
    await client.aclose()


async def test_messages_are_listened_for_where_commands_are_answered_now(redis: Redis, old: Redis) -> None:
    primary = old

    def connect() -> AbstractConnection:
        return Connector.of(primary, None)()

    timing = Timing.of(LockConfig())
    server = OneServer(connect, timing)
    backend = Backend(server, timing.command_timeout)
    try:
        server.notifier.watch("news", lambda message: None)
        await backend.submit(READ_CARD, ("nobody",))
        await until(lambda: server.notifier.confirmed("news"))
        assert await pubsub_channels(old) == {"news"}
        primary = redis
        await old.client_kill_filter(_type="normal", skipme=True)  # The subscription goes on as if nothing were.
        await backend.submit(READ_CARD, ("nobody",))

        async def moved() -> bool:
            return await pubsub_channels(redis) == {"news"} and not await pubsub_channels(old)

        await until(moved)
    finally:
        await backend.aclose()
