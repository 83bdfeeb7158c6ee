"""The backend for the user's client, and the topology of one server."""

from collections.abc import Callable, Sequence

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.connection import AbstractConnection

from aiolock._backend import Backend, Client
from aiolock._config import LockConfig, Timing
from aiolock._redis.cluster.discovery import Address
from aiolock._redis.cluster.topology import Cluster
from aiolock._redis.connector import Connector, check_borrowed
from aiolock._redis.greeting import check_kind, place_of
from aiolock._redis.notifier import DEAF, Notifier
from aiolock._redis.sentinel.ask import Guide, Sentinels
from aiolock._redis.sentinel.watch import PrimaryWatch
from aiolock._redis.server import Server
from aiolock._redis.steering import Steering
from aiolock._redis.topology import Topology


def backend_of(redis: Redis | RedisCluster, config: LockConfig) -> Callable[[Client], Backend]:
    """
    A function that connects a client to the servers of *redis*, which still belongs to the user; no I/O happens here.

    Raises:
        TypeError: *redis* is not a client that locks can use; or one of its settings is not valid.
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
        """The nodes from which *cluster* starts, and those that it knows by now."""
        nodes = [*cluster.nodes_manager.startup_nodes.values(), *cluster.get_nodes()]
        return [(node.host, int(node.port)) for node in nodes]

    seeds = known()
    # This checks the settings.
    connect_to(seeds[0])
    remap = cluster.nodes_manager.remap_host_port
    return lambda client: Cluster(lambda: [*seeds, *known()], connect_to, remap, timing, client)


class OneServer(Topology, Steering):
    """The topology of one server: a server at an address, or the primary that Sentinels name, which may change."""

    apart = False
    publish = "PUBLISH"

    def __init__(
        self,
        connect: Callable[[], AbstractConnection],
        timing: Timing,
        client: Client,
        sentinels: Sentinels | None = None,
        deaf: str = DEAF,
    ) -> None:
        super().__init__()
        self.notifier: Notifier = Notifier(connect, patience=timing.patience, deaf=deaf)
        self.only: Server = Server(connect, self, timing, self.notifier)
        self.client = client
        # The server of the last connection, if it reports its own address.
        self._place: bytes | None = None
        self._watch = watch = None if sentinels is None else PrimaryWatch(sentinels, self._primary_is)
        self.is_settled = None if watch is None else lambda: watch.certain

    def server_of(self, keys: tuple[str, ...]) -> Server:
        return self.only

    def servers(self) -> Sequence[Server]:
        return (self.only,)

    async def aclose(self) -> None:
        if self._watch is not None:
            await self._watch.aclose()
        await super().aclose()

    # The methods of `Steering`.

    async def greet(self, connection: AbstractConnection) -> None:
        if self._place is None:
            await check_kind(connection, in_a_cluster=False)
        place = await place_of(connection)
        # A new server: the old connection would not get its messages.
        if self._place not in (None, place):
            self.notifier.connection.fail()
        self._place = place
        # The Sentinels named this server before the connection was made, and may name another one now.
        if self._watch is not None:
            self._watch.ask()

    def broken(self, error: Exception, *, was_open: bool) -> None:
        if was_open:
            self.client.check_holds(lambda key: True)

    def _primary_is(self, address: Address, asked: float) -> None:
        """Close the connections to any other server, if they were made before the Sentinels were *asked*."""
        for connection in self.only.connections:
            # A connection that is not connected has no guide.
            guide = getattr(connection.raw, "connection_pool", None)
            if isinstance(guide, Guide) and guide.asked < asked and guide.told != address:
                connection.fail()
