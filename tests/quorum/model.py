"""
A small model of a quorum, in which every possible history happens: three servers, two clients, a few ticks.

Each client acquires the lock once, as `aiolock._redis.quorum.election` does. It asks all servers; each request and each
answer may arrive at any time, or never. When a majority has granted the lock, the client raises the greatest of their
tokens on a majority. Then it holds the lock for one lease from the time of its question, less the drift, or gives the
lock back before. One server's clock is ahead, so that its tokens are greater; on another server the lease ends a tick
early, which is the drift. A server may crash, and starts empty.

Every state that can be reached keeps two promises: no two clients hold the lock, and each holder is told a greater
token than the holder before. If any one of the three rules is missing, a state breaks one of the promises.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

SERVERS = (0, 1, 2)
MAJORITY = 2
LEASE = 2  # Ticks.
DRIFT = 1
# The tick at which the world ends: the lease of the first client is over by then. A third tick makes six times as many
# states.
LAST = 2
NOW = 10  # The ticks on the servers' clocks when the world begins.
# The lead of each clock is less than the lease: else a server that crashed could forget the greatest token.
AHEAD = (1, 0, 0)
EARLY = (0, 1, 0)  # The ticks by which a lease ends too early.
NOBODY = -1


@dataclass(frozen=True)
class Rules:
    """The steps of the algorithm."""

    abstains: bool = True
    """A server without memory grants nothing until every lease that it may have granted is over."""
    raises: bool = True
    """The greatest token is raised to a majority before it is told."""
    subtracts: bool = True
    """A lease counts from the time of the question, and ends earlier by the drift."""


class Server(NamedTuple):
    """*holder* is a client; its lease is over at *expires*; no grant before *votes*."""

    holder: int = NOBODY
    expires: int = 0
    token: int = 0
    votes: int = 0


# A client's request at a server: it is asked, or granted, or the client knows of the grant, or the token is raised.
ASKED, GRANTED, KNOWN, RAISED = range(4)
IDLE, ASKING, HOLDING, OVER = range(4)
NONE = (0,) * len(SERVERS)


class Client(NamedTuple):
    """*at* has the state of the request at each server, *tokens* the token that each server granted."""

    state: int = IDLE
    asked: int = 0
    at: tuple[int, ...] = NONE
    tokens: tuple[int, ...] = NONE
    token: int = 0  # The greatest token, once the client knows of a majority.
    deadline: int = 0


PAST = Client(OVER)  # Only the servers may still have something of this client.


class World(NamedTuple):
    """A state; *told* is the last token that a client was told. The first client asks when the world begins."""

    time: int = 0
    servers: tuple[Server, ...] = (Server(),) * len(SERVERS)
    clients: tuple[Client, ...] = (Client(ASKING), Client())
    crashes: int = 1
    told: int = 0
    wrong: str = ""

    def with_server(self, place: int, server: Server) -> "World":
        return self._replace(servers=(*self.servers[:place], server, *self.servers[place + 1 :]))

    def with_client(self, number: int, client: Client) -> "World":
        return self._replace(clients=(*self.clients[:number], client, *self.clients[number + 1 :]))


def next_worlds(world: World, rules: Rules) -> Iterator[World]:
    """The possible next states."""
    if world.time < LAST:
        yield tick(world)
    for place, server in enumerate(world.servers):
        if world.crashes and server.token:
            votes = world.time + LEASE if rules.abstains else 0
            yield world.with_server(place, Server(votes=votes))._replace(crashes=world.crashes - 1)
    for number, client in enumerate(world.clients):
        if client.state == IDLE:
            yield world.with_client(number, Client(ASKING, world.time))
            continue
        if client.state == HOLDING:
            yield world.with_client(number, PAST)
        for place in SERVERS:
            yield from at_a_server(world, rules, number, place)


def tick(world: World) -> World:
    """Time passes: leases end, and each holder knows when its own does."""
    now = world.time + 1
    servers = tuple(
        Server(*((NOBODY, 0) if each.expires <= now else each[:2]), each.token, each.votes if each.votes > now else 0)
        for each in world.servers
    )
    clients = tuple(PAST if each.state == HOLDING and each.deadline <= now else each for each in world.clients)
    return world._replace(time=now, servers=servers, clients=clients)


def at_a_server(world: World, rules: Rules, number: int, place: int) -> Iterator[World]:
    """A message of the client arrives at the server, or one of the server at the client."""
    client, server = world.clients[number], world.servers[place]
    step, mine = client.at[place], server.holder == number
    if client.state == OVER:
        if mine:  # The release arrives.
            yield world.with_server(place, server._replace(holder=NOBODY, expires=0))
    elif step == ASKED and server.holder == NOBODY and world.time >= server.votes:
        token = max(server.token + 1, NOW + world.time + AHEAD[place])
        granted = Server(number, world.time + LEASE - EARLY[place], token, server.votes)
        told = client._replace(at=put(client.at, place, GRANTED))
        if client.state == ASKING:
            told = told._replace(tokens=put(client.tokens, place, token))
        yield world.with_server(place, granted).with_client(number, told)
    elif step == GRANTED and client.state == ASKING:
        yield counted(world, rules, number, client._replace(at=put(client.at, place, KNOWN)))
    elif step == KNOWN and client.state == ASKING and client.tokens[place] < client.token and mine:
        raised = world.with_server(place, server._replace(token=max(server.token, client.token)))
        yield counted(raised, rules, number, client._replace(at=put(client.at, place, RAISED)))


def put(numbers: tuple[int, ...], place: int, number: int) -> tuple[int, ...]:
    return (*numbers[:place], number, *numbers[place + 1 :])


def counted(world: World, rules: Rules, number: int, client: Client) -> World:
    """The client counts the answers, and may then hold the lock."""
    known = [place for place in SERVERS if client.at[place] >= KNOWN]
    if len(known) >= MAJORITY:
        token = client.token or max(client.tokens[place] for place in known)
        enough = [place for place in known if client.tokens[place] == token or not rules.raises]
        at = tuple(RAISED if place in enough else client.at[place] for place in SERVERS)
        client = client._replace(token=token, at=at)
    if client.at.count(RAISED) < MAJORITY:
        return world.with_client(number, client)
    deadline = client.asked + LEASE - DRIFT if rules.subtracts else world.time + LEASE
    if world.time >= deadline:
        return world.with_client(number, PAST)
    wrong = "" if client.token > world.told else "a token is not above the last"
    if any(each.state == HOLDING for each in world.clients):
        wrong = "two hold the lock"
    holding = Client(HOLDING, deadline=deadline, at=tuple(min(each, GRANTED) for each in client.at))
    return world.with_client(number, holding)._replace(told=client.token, wrong=wrong)


def explore(rules: Rules) -> tuple[str, int]:
    """The first broken promise in any reachable state, and the number of states that were looked at."""
    worlds = {World()}
    edge = list(worlds)
    while edge:
        found = []
        for world in edge:
            for after in next_worlds(world, rules):
                if after.wrong:
                    return after.wrong, len(worlds)
                if after not in worlds:
                    worlds.add(after)
                    found.append(after)
        edge = found
    return "", len(worlds)
