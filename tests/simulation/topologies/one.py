"""One server; with the profile of replicas it has one, which lags behind."""

from random import Random

from redis.asyncio import Redis

import aiolock
from tests.simulation.network import Network
from tests.simulation.profiles import FOR_ONE_SERVER
from tests.simulation.replica import Replica
from tests.simulation.server import Server
from tests.simulation.topologies.base import Replicas, Topology


class One(Topology):
    profiles = FOR_ONE_SERVER

    def __init__(self, network: Network, draw: Random, profile: str) -> None:
        super().__init__(network, draw, profile)
        self.servers = [self.add(Server(self.world, "s1"))]
        self._is_replicated = profile == "replica"
        if self._is_replicated:
            self.servers[0].replica = Replica(self.servers[0], self.world.generator("replica"))

    def replicas(self, draw: Random) -> Replicas:
        return draw.choice((1, "all")) if self._is_replicated else None

    def client(self, config: aiolock.LockConfig) -> aiolock.LockClient:
        return aiolock.LockClient(Redis(host="s1", protocol=self.protocol), config=config)
