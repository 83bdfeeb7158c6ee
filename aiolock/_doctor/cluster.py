"""What a cluster says of itself: its state, who owns which slots, and who follows whom."""

from dataclasses import dataclass, field
from typing import Any

from redis.exceptions import ResponseError

from aiolock._doctor.check import Check
from aiolock._doctor.facts import Facts, fields
from aiolock._doctor.probe import Probe

Address = tuple[str, int]

_SLOTS = 16384


@dataclass(slots=True)
class Cluster:
    """A cluster as one of its servers sees it; of a primary, the slots that it owns and its replicas that are well."""

    asked: str
    state: str
    sharded: bool
    slots: dict[Address, set[int]] = field(default_factory=dict)
    replicas: dict[Address, set[Address]] = field(default_factory=dict)


async def learn(probe: Probe, facts: Facts, asked: Address) -> Cluster:
    """Ask for everything that a check needs; a server without a name of its own is where it was *asked*."""
    try:
        state = fields(await probe.ask("CLUSTER", "INFO")).get("cluster_state", "not known")
    except ResponseError:
        state = "not known"
    try:
        await probe.ask("PUBSUB", "SHARDNUMSUB")
        sharded = True
    except ResponseError:
        sharded = False
    cluster = Cluster("a replica" if facts.info.get("role") == "slave" else "a primary", state, sharded)
    for first, last, primary, *replicas in await probe.ask("CLUSTER", "SLOTS"):
        owner = _address(primary, asked)
        cluster.slots.setdefault(owner, set()).update(range(first, last + 1))
        cluster.replicas.setdefault(owner, set()).update(_address(replica, asked) for replica in replicas)
    return cluster


def _address(server: Any, asked: Address) -> Address:
    host, port, *_ = server
    return (host.decode() if host else asked[0], port)


def judge(cluster: Cluster) -> list[Check]:
    """Every check of the whole."""
    return [_topology(cluster), _slots(cluster), *([_replicas(cluster)] if cluster.slots else [])]


def _topology(cluster: Cluster) -> Check:
    count = sum(map(len, cluster.replicas.values()))
    found = f"a cluster: primaries {len(cluster.slots)}, replicas {count}; {cluster.asked} was asked"
    return Check("topology", "ok", found)


def _slots(cluster: Cluster) -> Check:
    served = sum(map(len, cluster.slots.values()))
    found = f"{served} of {_SLOTS} have an owner; cluster_state {cluster.state}"
    if served < _SLOTS:
        return Check("slots", "error", found, "Names of the others cannot be locked: give every slot an owner.")
    if cluster.state not in ("ok", "not known"):
        return Check("slots", "error", found, "See with CLUSTER NODES which server failed.")
    return Check("slots", "ok", found)


def _replicas(cluster: Cluster) -> Check:
    alone = [f"{host}:{port}" for (host, port), replicas in cluster.replicas.items() if not replicas]
    if alone:
        found = f"none for {alone[0] if len(alone) == 1 else f'{len(alone)} primaries'}"
        return Check("replicas", "warning", found, "When such a primary dies, nobody locks its names until it is back.")
    found = "each primary has one or more; they follow with a delay"
    return Check("replicas", "note", found, "A failover may forget the last grants: check tokens where you write.")
