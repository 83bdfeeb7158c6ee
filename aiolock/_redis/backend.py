"""From the user's client to a backend, and the topology of one server."""

from collections.abc import Callable, Sequence

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.connection import AbstractConnection

from aiolock._backend import Backend, Client
from aiolock._config import LockConfig, Timing
from aiolock._redis.cluster import Cluster
from aiolock._redis.connector import Connector, check_borrowed
from aiolock._redis.discovery import Address
from aiolock._redis.greeting import check_kind, place_of
from aiolock._redis.notifier import Notifier
from aiolock._redis.pipeline import Steering
from aiolock._redis.primary_watch import PrimaryWatch
from aiolock._redis.sentinel import Guide, Sentinels
from aiolock._redis.server import Server
from aiolock._redis.topology import Topology


def backend_of(redis: Redis | RedisCluster, config: LockConfig) -> Callable[[Client], Backend]:
    """
    What connects a client to the servers of *redis*, which is borrowed; no I/O happens here.

    Raises:
        TypeError: *redis* is not one that locks can be kept through; or a setting of its is none.
    """
    check_borrowed(redis)
    timing = Timing.of(config)
    if isinstance(redis, RedisCluster):
        return _to_cluster(redis, config, timing)
    connect = Connector.of(redis, config.client_name, timing.patience)
    return lambda client: OneServer(connect, timing, client, connect.sentinels)


def _to_cluster(cluster: RedisCluster, config: LockConfig, timing: Timing) -> Callable[[Client], Backend]:
    def connect_to(address: Address) -> Connector:
        return Connector.of_node(cluster, *address, config.client_name)

    def known() -> list[Address]:
        """Where *cluster* looks for the others, and whom it knows by now."""
        nodes = [*cluster.nodes_manager.startup_nodes.values(), *cluster.get_nodes()]
        return [(node.host, int(node.port)) for node in nodes]

    seeds = known()
    connect_to(seeds[0])  # Checks the settings.
    remap = cluster.nodes_manager.remap_host_port
    return lambda client: Cluster(lambda: [*seeds, *known()], connect_to, remap, timing, client)


class OneServer(Topology, Steering):
    """The topology of one server: that of an address, or whichever the Sentinels name; it may become another one."""

    apart = False
    publish = "PUBLISH"

    def __init__(
        self,
        connect: Callable[[], AbstractConnection],
        timing: Timing,
        client: Client,
        sentinels: Sentinels | None = None,
    ) -> None:
        super().__init__()
        self.notifier: Notifier = Notifier(connect, patience=timing.patience)
        self.only: Server = Server(connect, self, timing, self.traffic, self.notifier)
        self.client = client
        self._place: bytes | None = None  # Who answered last, and is by itself, or would not say.
        self._watch = watch = None if sentinels is None else PrimaryWatch(sentinels, self._primary_is)
        self.settled = None if watch is None else lambda: watch.certain

    def server_of(self, keys: tuple[str, ...]) -> Server:
        return self.only

    def servers(self) -> Sequence[Server]:
        return (self.only,)

    async def aclose(self) -> None:
        if self._watch is not None:
            await self._watch.aclose()
        await super().aclose()

    # What a pipeline asks for.

    async def greet(self, connection: AbstractConnection) -> None:
        if self._place is None:
            await check_kind(connection, in_a_cluster=False)
        place = await place_of(connection)
        if self._place not in (None, place):  # Messages of another server would not arrive on the old connection.
            self.notifier.connection.fail()
        self._place = place
        if self._watch is not None:  # Where it leads to was told before it was made.
            self._watch.ask()

    def broken(self) -> None:
        self.client.doubt(lambda key: True)

    def _primary_is(self, address: Address, asked: float) -> None:
        """Leave any other server that a connection was told before the Sentinels were *asked*."""
        for connection in self.only.connections:
            guide = getattr(connection.raw, "connection_pool", None)  # There is none while it is not connected.
            if isinstance(guide, Guide) and guide.asked < asked and guide.told != address:
                connection.fail()
