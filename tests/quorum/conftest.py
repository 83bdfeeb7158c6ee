"""Three or five servers that know nothing of each other, and clients that take locks on a majority of them."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack

import pytest
from redis.asyncio import Redis

from aiolock import LockClient
from aiolock._embedded_server import Server
from tests.quorum.several import remember
from tests.support.proxy import Proxy


@pytest.fixture(scope="session")
def three(server: Server) -> Iterator[list[Server]]:
    """The servers of the whole session; a test that stops or pauses servers starts servers of its own."""
    with ExitStack() as stack:
        yield [stack.enter_context(Server(server._executable)) for _ in range(3)]


@pytest.fixture
def mine(request: pytest.FixtureRequest, server: Server) -> Iterator[list[Server]]:
    """Servers of one test, which may pause, stop and flush them: three, or as many as its parameter says."""
    with ExitStack() as stack:
        yield [stack.enter_context(Server(server._executable)) for _ in range(getattr(request, "param", 3))]


async def clients_of(servers: list[Server]) -> AsyncIterator[list[Redis]]:
    """Clients of the servers, which are empty, and have a vote, as if they had forgotten nothing."""
    redises = [Redis.from_url(server.url) for server in servers]
    for redis in redises:
        await redis.flushall()
        await remember(redis)
    yield redises
    for redis in redises:
        await redis.aclose()


@pytest.fixture
async def redises(three: list[Server]) -> AsyncIterator[list[Redis]]:
    async for each in clients_of(three):
        yield each


@pytest.fixture
async def of_mine(mine: list[Server]) -> AsyncIterator[list[Redis]]:
    async for each in clients_of(mine):
        yield each


@pytest.fixture
async def locks(redises: list[Redis]) -> AsyncIterator[LockClient]:
    async with LockClient.redlock(redises) as client:
        yield client


@pytest.fixture
async def other(redises: list[Redis]) -> AsyncIterator[LockClient]:
    """Another client, which stands for another process."""
    async with LockClient.redlock(redises) as client:
        yield client


@pytest.fixture
async def proxies(three: list[Server], redises: list[Redis]) -> AsyncIterator[list[Proxy]]:
    """A proxy before each of the shared servers."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(Proxy(each.host, each.port)) for each in three]


@pytest.fixture
async def through(proxies: list[Proxy]) -> AsyncIterator[list[Redis]]:
    """A user's clients behind the proxies."""
    clients = [Redis.from_url(proxy.url) for proxy in proxies]
    yield clients
    for client in clients:
        await client.aclose()
