"""The state of a cluster as a server reports it: its slots, their owners, and the replicas of each owner."""

from dataclasses import dataclass, field
from typing import Any

from redis.exceptions import ResponseError

from aiolock._cli.advice import on_refusal
from aiolock._cli.doctor.check import Check
from aiolock._cli.doctor.facts import Facts, fields
from aiolock._cli.probe import Address, Probe
from aiolock._redis.cluster.discovery import address_in

_SLOTS = 16384
# The most slots on their way that are named.
_MOST_NAMED = 5


@dataclass(slots=True)
class Cluster:
    """
    A cluster as one of its servers sees it.

    *slots* and *replicas* are those of each primary; a server does not name replicas that it takes for dead. *owners*
    has the id of each slot's owner.
    """

    sharded: bool
    slots: dict[Address, set[int]] = field(default_factory=dict)
    owners: dict[int, str] = field(default_factory=dict)
    replicas: dict[Address, set[Address]] = field(default_factory=dict)


async def learn(probe: Probe, asked: Address) -> Cluster:
    """Ask for the owners of the slots and their replicas; a server that reports no host of its own is at *asked*."""
    cluster = Cluster(await probe.accepts("PUBSUB", "SHARDNUMSUB"))
    answer = await probe.ask("CLUSTER", "SLOTS")
    cluster.owners = _owners(answer)
    for first, last, primary, *replicas in answer:
        owner = address_in(primary, asked)
        cluster.slots.setdefault(owner, set()).update(range(first, last + 1))
        cluster.replicas.setdefault(owner, set()).update(address_in(replica, asked) for replica in replicas)
    return cluster


def _owners(answer: Any) -> dict[int, str]:
    return {slot: primary[2].decode() for first, last, primary, *_ in answer for slot in range(first, last + 1)}


async def judge(probe: Probe, cluster: Cluster, facts: Facts) -> list[Check]:
    """The checks of the whole cluster; *facts* are those of the server of *probe*."""
    try:
        state = fields(await probe.ask("CLUSTER", "INFO")).get("cluster_state", "not known")
    except ResponseError:
        state = "not known"
    return [_topology(cluster, facts), _slots(cluster, state)]


def _topology(cluster: Cluster, facts: Facts) -> Check:
    count, asked = sum(map(len, cluster.replicas.values())), facts.info.get("role")
    which = "a replica" if asked == "slave" else "a primary"
    found = f"a cluster: primaries {len(cluster.slots)}, replicas {count}; {which} was asked"
    return Check("topology", "ok", found)


def _slots(cluster: Cluster, state: str) -> Check:
    served = sum(map(len, cluster.slots.values()))
    found = f"{served} of {_SLOTS} have an owner; cluster_state {state}"
    if served < _SLOTS:
        return Check("slots", "error", found, "Names of the others cannot be locked: give every slot an owner.")
    if state not in ("ok", "not known"):
        return Check("slots", "error", found, "See with CLUSTER NODES which server failed.")
    return Check("slots", "ok", found)


async def compare(probe: Probe, cluster: Cluster) -> Check:
    """Whether the server of *probe* knows the same owners; after a failover, an old primary may not know them yet."""
    try:
        theirs = _owners(await probe.ask("CLUSTER", "SLOTS"))
    except ResponseError as error:
        return Check("owners", "error", f"it does not list the owners of slots: {error}", on_refusal(error))
    slots = theirs.keys() | cluster.owners.keys()
    if different := sum(theirs.get(slot) != cluster.owners.get(slot) for slot in slots):
        advice = "One of the two is out of date, and both may grant the same lock: see CLUSTER NODES of both."
        return Check(
            "owners", "error", f"for {different} slots they differ from those of the server that was asked", advice
        )
    return Check("owners", "ok", "the same as on the server that was asked")


async def find_migrations(probe: Probe) -> Check:
    """Whether slots of the server of *probe* are being moved; each server reports only its own."""
    try:
        nodes = _words(await probe.ask("CLUSTER", "NODES"))
    except ResponseError:
        found = "not known: the server refuses CLUSTER NODES"
        return Check("migration", "unknown", found, "See that no slot stays between two servers.")
    [mine] = [words for words in nodes if "myself" in words[2]]
    leaving = [word for word in mine[8:] if "->-" in word]
    coming = [word for word in mine[8:] if "-<-" in word]
    if not leaving and not coming:
        return Check("migration", "ok", "no slot is moving")
    slots = ", ".join(word.strip("[").split("-")[0] for word in [*leaving, *coming][:_MOST_NAMED])
    found = f"slots moving out {len(leaving)}, in {len(coming)}: {slots}"
    advice = "Locks whose keys stay between two servers are lost: see that the move ends (redis-cli --cluster fix)."
    return Check("migration", "warning", found, advice)


def _words(answer: bytes) -> list[list[str]]:
    """The words of each line of CLUSTER NODES."""
    return [line.split() for line in answer.decode(errors="replace").splitlines()]
