"""In a cluster, too, a verb that is cancelled wherever it suspends leaves nothing behind."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest
from redis.asyncio import Redis, RedisCluster

from aiolock._embedded_server import Server
from tests.cancellation.rounds import ME, Arena, Run, State, Temperature, each_mode, named, one_server, visit
from tests.cancellation.test_giving_back import renew
from tests.cancellation.verbs import acquire, release, try_once, with_hold, with_lock
from tests.support.cancellation import Mode
from tests.support.resharding import move
from tests.support.topologies import ClusterOf

pytestmark = [one_server, pytest.mark.slow]

Scenario = tuple[State, Run, str | None]
# A "cold" client asks the server that it was told of for the place of the lock. A "warm" client knows the place. A
# "moved" one knows the place that the lock had before it moved.
SCENARIOS: list[tuple[Temperature, Scenario]] = [
    ("cold", ("held", try_once, ME)),
    ("cold", ("message", with_hold, None)),
    ("cold", ("waited", release, ME)),
    ("warm", ("handed", with_lock, None)),
    ("moved", ("free", acquire, ME)),
    ("moved", ("nested", release, ME)),
    ("moved", ("nested", renew, ME)),
]


@dataclass
class ClusterArena(Arena):
    """A cluster, on which the rounds take place."""

    cluster: ClusterOf

    async def connected(self) -> int:
        """The number of clients, without the servers, which stay connected to each other after keys have moved."""
        clients = [client for server in self.servers for client in await server.client_list()]
        return len([client for client in clients if client["cmd"] != "restore-asking"])

    async def channels(self) -> set[str]:
        sharded = {str(name) for server in self.servers for name in await server.pubsub_shardchannels()}
        return sharded | await super().channels()

    def move(self, name: str) -> None:
        move(self.cluster, name)


@pytest.fixture(scope="module")
def calm(server: Server) -> Iterator[ClusterOf]:
    with ClusterOf(server._executable) as running:
        yield running


@pytest.fixture
async def arena(calm: ClusterOf, brief_linger: None, record: Callable[[str, object], None]) -> AsyncIterator[Arena]:
    first = calm.primaries[0]
    async with AsyncExitStack() as stack:
        observer = await stack.enter_async_context(RedisCluster(host=first.host, port=first.port, reinitialize_steps=0))
        servers = [await stack.enter_async_context(Redis.from_url(each.url)) for each in calm.servers]
        for server in servers:
            await server.flushall()
        # The connections of the observer count, too.
        await observer.ping(target_nodes=RedisCluster.ALL_NODES)
        yield ClusterArena(observer, lambda: RedisCluster(host=first.host, port=first.port), record, servers, calm)


def described(scenario: tuple[Temperature, Scenario]) -> str:
    return f"{named(scenario[1])}-{scenario[0]}"


@each_mode
@pytest.mark.parametrize("scenario", SCENARIOS, ids=described)
async def test_a_verb_that_is_cancelled_anywhere_leaves_nothing(
    arena: Arena, scenario: tuple[Temperature, Scenario], mode: Mode
) -> None:
    temperature, (state, run, owner) = scenario
    await visit(arena, mode, temperature, state, run, owner=owner)
