"""
The traces that are left at the end.

    leak   nothing is left of ended clients and locks: on the servers, in the clients, in the event loops (P4, P8, P9)
"""

from collections.abc import Iterator

import aiolock
from aiolock._identity import random_part
from tests.simulation.acts import PERMITS
from tests.simulation.checks.holds import acquisitions_of
from tests.simulation.faults import LOSES_DATA
from tests.simulation.fleet import Fleet, Member
from tests.simulation.redis_data import Data
from tests.simulation.world import World
from tests.support.inside import client_id_of, entry_names

_COUNTS = ("held", "parked", "pending", "subscriptions")
# A part of the owners of detached holds, which wait for their adoption, also after the end of the client.
_DETACHED = b":detached:"
# A timer that is due later than this serves no lock that is still of interest.
_SOON = 3600.0


def check_settled(world: World, fleet: Fleet) -> None:
    """All acts have ended: are the servers and the clients as if nothing had happened?"""
    clients = [random_part(client) for member in fleet.alive() if (client := member.client_id)]
    for member in fleet.alive():
        _check_client(world, member)
    # A detached hold ends by the server's clock alone.
    _check_servers(fleet, clients, but=_DETACHED if fleet.faults.planned("clock_back") else None)
    forgets = fleet.faults.planned(*LOSES_DATA) or fleet.faults.may_refuse_for_good
    whole = not forgets and len(fleet.members) == len(fleet.alive())
    keeper = fleet.topology.truth("sem")
    count = None if keeper is None else keeper.data.find(b"sem")
    if whole and count not in (None, b"%d" % PERMITS):
        world.violation("leak", f"the counting semaphore has {count!r} permits")


def check_gone(fleet: Fleet, locks: aiolock.LockClient) -> None:
    """A client was closed a moment ago, and nothing went wrong: the servers keep only the holds that it detached."""
    client = client_id_of(locks)
    if client is not None and all(fault.kind == "shut_down" for fault in fleet.faults.plan):
        _check_servers(fleet, [random_part(client)], but=_DETACHED)


def _check_servers(fleet: Fleet, clients: list[str], *, but: bytes | None = None) -> None:
    for server in fleet.topology.truths or fleet.topology.servers:
        server.tick()
        for words in kept_for(server.data, clients, fleet.checks.forgotten_ends, but=but):
            fleet.world.violation("leak", f"{server.name} keeps {words}")


def kept_for(data: Data, clients: list[str], forgotten_ends: set[bytes], *, but: bytes | None = None) -> Iterator[str]:
    """
    The holds of the *clients*, given by the unique parts of their ids; not counting owners whose names contain *but*.

    If a failover loses the end of an acquisition, it stays held, or a later copy of its acquire is granted, as
    documented. Only the client is known of a field of a read-write lock that has no record any more.
    """
    forgetful = {_client_of(end) for end in forgotten_ends}
    for key in list(data.values):
        data.find(key)
        holders = acquisitions_of(data, key).items()
        mine = [(each, of) for each, of in holders if _client_of(each) in clients and of not in forgotten_ends]
        known = [each for each, of in mine if of or _client_of(each) not in forgetful]
        kept = [each for each in known if but is None or but not in each]
        if kept:
            yield f"{kept!r} of {key!r} for {data.left(key)} ms"


def _check_client(world: World, member: Member) -> None:
    world.running = member.process
    statistics, activity = member.locks.statistics(), member.locks.activity()
    entries = entry_names(member.locks)
    world.running = None
    left = {what: value for what in _COUNTS if (value := getattr(statistics, what))}
    if left or activity or entries:
        world.violation("leak", f"{member.process.name} has {left} {activity} {entries}")


def _client_of(holder: bytes) -> str:
    """The unique part of the client's id, which is all that a permit has of the id."""
    return random_part(holder.decode().partition(":")[0])


def check_closed(world: World, fleet: Fleet) -> None:
    """The clients are closed: are their tasks, timers and connections gone?"""
    for member in fleet.alive():
        process = member.process
        if tasks := process.unfinished_tasks():
            world.violation("leak", f"{process.name} has tasks left: {tasks}")
        timers = process.next_timers()
        if len(timers) > 1 and min(timers) < process.time() + _SOON:
            world.violation("leak", f"{process.name} has timers left: {timers[:3]}")
        links = [link for link in fleet.network.links if link.process is process]
        if still_open := [link for link in links if link.transport is not None and not link.transport.is_closing()]:
            world.violation("leak", f"{process.name} has {len(still_open)} connections left")
