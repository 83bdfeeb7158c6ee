"""The fixtures of the tests with threads: clients of aiolock and a synchronous client of the server, without a loop."""

from collections.abc import Iterator

import pytest
import redis as synchronous

from aiolock._embedded_server import Server
from aiolock.blocking import LockClient, RLock


@pytest.fixture
def database(server: Server) -> Iterator["synchronous.Redis"]:
    """A synchronous client of the server, which is empty."""
    with synchronous.Redis.from_url(server.url) as client:
        client.flushall()
        yield client


@pytest.fixture
def client(server: Server, database: "synchronous.Redis") -> Iterator[LockClient]:
    with LockClient.from_url(server.url) as locks:
        yield locks


@pytest.fixture
def orders(client: LockClient) -> RLock:
    return client.lock("orders")


@pytest.fixture
def elsewhere(server: Server, database: "synchronous.Redis") -> Iterator[LockClient]:
    """Another client, which stands for another process."""
    with LockClient.from_url(server.url) as locks:
        yield locks
