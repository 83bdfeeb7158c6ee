"""Another server takes over an address, and the old connections do not end."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection

from aiolock import LockConfig
from aiolock._backend import Client
from aiolock._config import Timing
from aiolock._embedded_server import Server
from aiolock._redis.backend import OneServer
from aiolock._redis.connector import Connector
from aiolock._scripts import INSPECT, MARK
from tests.support.inside import submit
from tests.support.observe import pubsub_channels, subscribed_clients, until


@pytest.fixture
async def old(own: Server) -> AsyncIterator[Redis]:
    client = Redis.from_url(own.url)
    yield client
    await client.aclose()


@asynccontextmanager
async def watching(connect: Callable[[], AbstractConnection]) -> AsyncIterator[OneServer]:
    """A backend that is connected, and listens to the channel "news"."""
    timing = Timing.of(LockConfig())
    backend = OneServer(connect, timing, Client())
    try:
        backend.notifier.watch("news", lambda message: None)
        await submit(backend, INSPECT, ("nobody",))
        await until(lambda: backend.notifier.confirmed("news"))
        yield backend
    finally:
        await backend.aclose()


async def test_messages_are_listened_for_where_commands_are_answered_now(redis: Redis, old: Redis) -> None:
    primary = old

    def connect() -> AbstractConnection:
        return Connector.of(primary, None, 5)()

    async with watching(connect) as backend:
        assert await pubsub_channels(old) == {"news"}
        primary = redis
        await old.client_kill_filter(_type="normal", skipme=True)
        await submit(backend, INSPECT, ("nobody",))

        async def moved() -> bool:
            return await pubsub_channels(redis) == {"news"} and not await pubsub_channels(old)

        await until(moved)


async def test_a_new_connection_to_the_same_server_leaves_the_subscription_alone(old: Redis) -> None:
    async with watching(Connector.of(old, None, 5)) as backend:
        before = await subscribed_clients(old)
        for urgent in (False, True, False):
            await old.client_kill_filter(_type="normal", skipme=True)
            await submit(backend, replace(INSPECT, urgent=urgent), ("nobody",))
        assert await subscribed_clients(old) == before
        assert backend.notifier.confirmed("news")


async def test_a_call_that_a_replica_refuses_goes_to_the_present_primary(redis: Redis, old: Redis) -> None:
    """Nothing ends the connection to the server that was demoted."""
    primary = old

    def connect() -> AbstractConnection:
        return Connector.of(primary, None, 5)()

    async with watching(connect) as backend:
        await old.replicaof("127.0.0.1", "1")
        primary = redis
        assert await submit(backend, MARK, ("me",), ("acquisition", "text", 60_000)) == [1]
        assert await redis.exists("me")
