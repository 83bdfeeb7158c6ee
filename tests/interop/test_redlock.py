"""RedissonRedLock when a server comes back empty: two hold the lock, as in `tests/quorum/test_peers.py`."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from aiolock._embedded_server import Server
from tests.interop.conftest import VERSIONS
from tests.interop.service import Redisson, Service

NAME = "orders"
LEASE = 60.0


@pytest.fixture
def three(server: Server) -> Iterator[list[Server]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Server(server._executable)) for _ in range(3)]


async def try_lock(jvm: Service, clients: list[Redisson]) -> bool:
    """Whether these clients get the lock on a majority of their servers."""
    return bool(await clients[0].ask("tryLock", NAME, clients=[each.client for each in clients], wait=30, lease=LEASE))


@pytest.mark.parametrize("jvm", VERSIONS[-1:], indirect=True)
async def test_two_hold_a_lock_of_redisson(jvm: Service, three: list[Server]) -> None:
    first = [await jvm.connect(server.url) for server in three]
    three[2].kill()
    assert await try_lock(jvm, first)
    three[1].kill()
    three[1].start()
    three[2].start()
    second = [await jvm.connect(server.url) for server in three]
    assert await try_lock(jvm, second)
    for client in (*first, *second):
        await client.shutdown()
