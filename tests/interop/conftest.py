"""The fixtures of the tests with Redisson, which uses the same server as aiolock."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from aiolock._embedded_server import Server
from tests.interop.build import build, missing
from tests.interop.service import Redisson, Service

VERSIONS = ("3.17.7", "3.52.0", "4.7.0")
# The first build fetches Redisson.
BUILDING = 300.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents and "jvm" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(BUILDING))


@pytest.fixture(scope="session", params=VERSIONS)
def jvm(request: pytest.FixtureRequest) -> Iterator[Service]:
    """A JVM with that version of Redisson, for the whole session."""
    if (what := missing()) is not None:
        pytest.skip(f"{what}: no Redisson to share locks with")
    service = Service(request.param, build(request.param))
    yield service
    service.stop()


@pytest.fixture
async def redisson(jvm: Service, server: Server, redis: Redis) -> AsyncIterator[Redisson]:
    """A client of Redisson on the server that `redis` has emptied."""
    client = await jvm.connect(server.url)
    yield client
    await client.shutdown()
