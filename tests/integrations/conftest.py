"""The common part of the tests of web services."""

import gc
import warnings
from collections.abc import AsyncIterator, Iterator

import pytest

from aiolock import LockClient
from aiolock._embedded_server import Server
from tests.support.inside import redis_of


@pytest.fixture(autouse=True)
def sockets_of_http_clients() -> Iterator[None]:
    """
    Collects what HTTP clients leave behind, after the test that had them, where it is no error.

    One that is cancelled by the hundred while it connects may lose a socket. Those of aiolock, and of its tests, are
    streams, which have words of their own for that.
    """
    yield
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"unclosed (<socket\.socket|transport )", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="module")
def redis_server() -> Iterator[Server]:
    """The kind of server makes no difference to processes and recipes."""
    with Server() as running:
        yield running


@pytest.fixture
async def watcher(redis_server: Server) -> AsyncIterator[LockClient]:
    """A third party, on a server that is empty."""
    async with LockClient.from_url(redis_server.url) as locks:
        await redis_of(locks).flushall()
        yield locks
