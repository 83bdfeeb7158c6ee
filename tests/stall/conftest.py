"""Servers of every kind that keeps locks."""

import asyncio
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

import pytest
from redis.asyncio import Redis

from aiolock._embedded_server import Server
from tests.quorum.several import remember
from tests.stall.places import Place
from tests.support.certificates import Certificates
from tests.support.ports import reserved_port
from tests.support.topologies import ClusterOf, Replicated, ask


@pytest.fixture(autouse=True)
async def blocks() -> None:
    """The tests block their event loop; asyncio's debug mode is to say nothing."""
    asyncio.get_running_loop().slow_callback_duration = 600


@pytest.fixture
def place(request: pytest.FixtureRequest, server: Server, certificates: Certificates) -> Iterator[Place]:
    """One server, or what the parameter names."""
    start = PLACES[getattr(request, "param", "one")]
    with start(server, certificates) as running:
        yield running


@contextmanager
def one(server: Server, certificates: Certificates) -> Iterator[Place]:
    ask(server, "FLUSHALL")
    yield Place("one", [(server.host, server.port)])


@contextmanager
def sentinel(server: Server, certificates: Certificates) -> Iterator[Place]:
    with Replicated(server._executable, replicas=2, sentinels=3) as running:
        yield Place("sentinel", running.addresses)


@contextmanager
def cluster(server: Server, certificates: Certificates) -> Iterator[Place]:
    with ClusterOf(server._executable) as running:
        yield Place("cluster", [(running.primaries[0].host, running.primaries[0].port)])


@contextmanager
def quorum(server: Server, certificates: Certificates) -> Iterator[Place]:
    with ExitStack() as stack:
        servers = [stack.enter_context(Server(server._executable)) for _ in range(3)]
        for each in servers:
            asyncio.run(forget_nothing(each))
        yield Place("quorum", [(each.host, each.port) for each in servers])


async def forget_nothing(server: Server) -> None:
    redis = Redis.from_url(server.url)
    await remember(redis)
    await redis.aclose()


@contextmanager
def tls(server: Server, certificates: Certificates) -> Iterator[Place]:
    # The embedded Valkey is built without TLS.
    executable = shutil.which("redis-server")
    if executable is None:
        pytest.skip("no redis-server on the path")
    with reserved_port() as port, Server(executable, options=certificates.options(port)) as secure:
        yield Place("one", [(secure.host, port)], {"ssl": True, **certificates.settings})


PLACES: dict[str, Callable[[Server, Certificates], AbstractContextManager[Place]]] = {
    each.__name__: each for each in (one, sentinel, cluster, quorum, tls)
}
