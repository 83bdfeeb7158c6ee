"""The move of a slot from one server of a cluster to another, step by step."""

from redis import Redis
from redis.crc import key_slot

from aiolock._embedded_server import Server
from tests.support.topologies import ClusterOf, ask


def begin_to_move(cluster: ClusterOf, name: str, target: Server | None = None) -> tuple[Server, Server]:
    """Open the slot of *name* for its move, to any server or to *target*; returns the source and the target."""
    slot = key_slot(name.encode())
    source = cluster.owner_of(name)
    target = target or next(server for server in cluster.primaries if server is not source)
    ask(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", cluster.id_of(source))
    ask(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", cluster.id_of(target))
    return source, target


def move_keys(cluster: ClusterOf, name: str, source: Server, target: Server) -> None:
    with Redis.from_url(source.url) as client:
        for key in client.execute_command("CLUSTER", "GETKEYSINSLOT", key_slot(name.encode()), 100):
            client.migrate(target.host, cluster.port_of(target), key, 0, 5000)


def end_move(cluster: ClusterOf, name: str, target: Server) -> None:
    for server in (target, *(server for server in cluster.primaries if server is not target)):
        ask(server, "CLUSTER", "SETSLOT", key_slot(name.encode()), "NODE", cluster.id_of(target))


def move_as_a_whole(cluster: ClusterOf, name: str) -> Server:
    """Begin to move the slot of *name* with its keys in one step, to any server, which is returned."""
    slot, source = key_slot(name.encode()), cluster.owner_of(name)
    target = next(server for server in cluster.primaries if server is not source)
    ask(source, "CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", cluster.id_of(target))
    return target


def move(cluster: ClusterOf, name: str, target: Server | None = None) -> Server:
    """Move the slot of *name*, with its keys; returns the target."""
    source, target = begin_to_move(cluster, name, target)
    move_keys(cluster, name, source, target)
    end_move(cluster, name, target)
    return target
