"""
A small world in which everything that can happen to a quorum does: three servers, two clients, a few ticks.

Each client acquires the lock once, as `aiolock._redis.quorum.election` does: it asks all servers, each of which may get
that, or answer, at any time or never; what a majority granted it has confirmed, with the greatest of their tokens; when
a majority has, it holds the lock until a lease from when it asked is over, but for the drift, or gives it back before.
One server's clock is ahead, so that its tokens are greater; on another the lease is over a tick early, which is the
drift. A server may crash, and starts empty.

Two things must be so in every state that can be reached: no two clients hold the lock, and who is told a token is told
a greater one than whoever held the lock before. Without any one of the three rules, one of the two is not.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

SERVERS = (0, 1, 2)
MAJORITY = 2
LEASE = 2  # Ticks.
DRIFT = 1
LAST = 2  # The tick at which the world ends, and what the first client began is over. With 3: six times as many.
NOW = 10  # On the servers' clocks, when the world begins.
AHEAD = (1, 0, 0)  # Of each clock: by less than the lease, or a server that crashed could forget the greatest token.
EARLY = (0, 1, 0)  # By how many ticks a lease is over before its time.
NOBODY = -1


@dataclass(frozen=True)
class Rules:
    """The steps of the algorithm."""

    abstains: bool = True
    """A server without memory grants nothing until every lease that it may have granted is over."""
    raises: bool = True
    """The greatest token is raised to a majority before it is told."""
    subtracts: bool = True
    """A lease is reckoned from when it was asked for, and ends the drift before."""


class Server(NamedTuple):
    """*holder* is a client; its lease is over at *expires*; no grant before *votes*."""

    holder: int = NOBODY
    expires: int = 0
    token: int = 0
    votes: int = 0


# What became of a client's request at a server: nothing yet; it was granted; the client knows; the token is raised.
ASKED, GRANTED, KNOWN, RAISED = range(4)
IDLE, ASKING, HOLDING, OVER = range(4)
NONE = (0,) * len(SERVERS)


class Client(NamedTuple):
    """*at* says of each server what became of the request; *tokens*, what was granted with it."""

    state: int = IDLE
    asked: int = 0
    at: tuple[int, ...] = NONE
    tokens: tuple[int, ...] = NONE
    token: int = 0  # Once a majority is known to have granted it.
    deadline: int = 0


PAST = Client(OVER)  # Nothing of it matters but what servers still have.


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
    """Everything that may happen next."""
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
        if mine:  # Its release.
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
    elif step == KNOWN and client.state == ASKING and client.token and mine:
        raised = world.with_server(place, server._replace(token=max(server.token, client.token)))
        yield counted(raised, rules, number, client._replace(at=put(client.at, place, RAISED)))


def put(numbers: tuple[int, ...], place: int, number: int) -> tuple[int, ...]:
    return (*numbers[:place], number, *numbers[place + 1 :])


def counted(world: World, rules: Rules, number: int, client: Client) -> World:
    """The client counts what it knows, and may hold the lock."""
    known = [place for place in SERVERS if client.at[place] >= KNOWN]
    if len(known) >= MAJORITY:
        token = client.token or max(client.tokens[place] for place in known)
        enough = [place for place in known if client.tokens[place] >= token or not rules.raises]
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
    """The first thing that goes wrong in any world that can come to be; and how many of them were looked at."""
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
