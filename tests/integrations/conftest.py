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
    Collects the remains of HTTP clients after the test that had them, and ignores the warnings of that.

    A client whose requests are cancelled by the hundred as they connect may lose a socket. The connections of aiolock
    and of its tests are streams, whose warnings have other words, and are still errors.
    """
    yield
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"unclosed (<socket\.socket|transport )", ResourceWarning)
        gc.collect()
    # Frameworks that were imported meanwhile live on: the collector need not look at them again.
    gc.freeze()


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
