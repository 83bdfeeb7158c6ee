"""Three or five independent servers: no single one has the truth."""

from collections.abc import Sequence
from random import Random

from redis.asyncio import Redis

import aiolock
from aiolock._keys import QUORUM_KEY
from tests.simulation.acts import QUORUM_MIXES
from tests.simulation.network import Network
from tests.simulation.profiles import FOR_A_QUORUM
from tests.simulation.server import Server
from tests.simulation.topologies.base import Topology

_LONGEST_LEASE = 8.0


def _memory(server: Server) -> bytes:
    """The server has forgotten nothing for an hour, so that it has a vote; after a restart it has none for a while."""
    since = (server.microseconds // 1_000_000 - 3600) * 1000
    return b"%s %d %d" % (server.run_id, since, 1000 * _LONGEST_LEASE)


class Quorum(Topology):
    profiles = FOR_A_QUORUM
    mixes = QUORUM_MIXES

    def __init__(self, network: Network, draw: Random, profile: str) -> None:
        super().__init__(network, draw, profile)
        self.servers = [self.add(Server(self.world, f"s{number + 1}")) for number in range(draw.choice((3, 3, 5)))]
        for server in self.servers:
            server.data.values[QUORUM_KEY.encode()] = _memory(server)

    @property
    def truths(self) -> Sequence[Server]:
        return ()

    def truth(self, name: str) -> Server | None:
        return None

    def client(self, config: aiolock.LockConfig) -> aiolock.LockClient:
        redises = [Redis(host=server.name, protocol=self.protocol) for server in self.servers]
        return aiolock.LockClient.redlock(redises, config=config, longest_lease=_LONGEST_LEASE)
