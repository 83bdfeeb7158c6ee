"""The rules and the bounds of the quorum's model, and its states: three servers and two clients."""

from typing import Literal, NamedTuple

from tests.protocol.rules import TOKENS_A_TICK

MAJORITY = 2
NOBODY = -1
# No lease is longer, in ticks.
_OLD = 3
NONE = -1000
# Every grant has this token where tokens are left out.
ALIKE = -999
# A holder got its token after that time, a lease ago at most.
_OLDEST = -4 * TOKENS_A_TICK

Phase = Literal["new", "voting", "holding", "done"]


class QuorumRules(NamedTuple):
    """The protocol has all of these rules; a switch sets one of them to `False`."""

    # A lease ends for the client a margin before the servers can end it.
    has_margin: bool = True
    # A lease is counted from when its commands were sent, not from when the answers came.
    counts_from_sending: bool = True
    # A server that has forgotten what it granted abstains,
    abstains: bool = True
    # for as long as the longest lease that it may have granted.
    abstains_for_longest_lease: bool = True
    # The token of a grant is raised on a majority before any client learns of it.
    raises_tokens: bool = True
    # A server that granted a greater token than the one that is raised confirms nothing.
    confirms_equal_tokens: bool = True
    # A grant is one by a majority, not by one server.
    needs_majority: bool = True
    # A renewal counts when a majority has answered it.
    renews_by_majority: bool = True


class QuorumBounds(NamedTuple):
    """How far the model looks; time has no bound, or stands still."""

    # Ticks; 3 at most.
    lease: int = 3
    time_passes: bool = True
    # Whether any number of other clients, in place of client 2, take what each server grants them.
    has_rivals: bool = False
    # Whether servers forget, any number of times.
    forgets: bool = False
    # Whether a client renews, any number of times.
    renews: bool = False
    # Whether a copy of client 1's acquire is older than the others, so that its lease is over while theirs go on. This
    # happens at any time, also while time stands still.
    has_older_copy: bool = False
    # Whether the clock of one server gains a tick, once.
    moves_clock: bool = False
    # The ticks by which the clock of each server is ahead; if there are none, the model has no tokens.
    ahead: tuple[int, int, int] | None = None


class Wire(NamedTuple):
    """The messages on their way between one client and one server, and the answers."""

    acquire: bool = False
    release: bool = False
    renewal: bool = False
    # A token that is to be raised.
    raising: int = NONE
    # The token of the grant that was answered.
    vote: int = NONE
    has_renewed: bool = False
    # The lease is over since this copy of the acquire was sent, so that the client does not count on the server.
    is_over: bool = False


class Server(NamedTuple):
    """The keys of the name on one server."""

    ahead: int
    holder: int = NOBODY
    left: int = 0
    # The ticks for which the server has no vote.
    abstains: int = 0
    # The last token, less the time by the clocks of the clients.
    token: int = -1
    ended: tuple[bool, bool] = (False, False)
    wires: tuple[Wire, Wire] = (Wire(), Wire())


class Client(NamedTuple):
    """The knowledge of a client."""

    phase: Phase = "new"
    # The ticks since the acquires, or the renewals, were sent.
    age: int = 0
    deadline: int = 0
    # The greatest token of the first majority.
    token: int = NONE
    is_renewing: bool = False


class QuorumState(NamedTuple):
    """The whole state; the servers are sorted, since servers whose clocks agree are alike."""

    servers: tuple[Server, ...]
    clients: tuple[Client, Client] = (Client(), Client())
    clock_has_moved: bool = False
    # The greatest token that a client was told of.
    greatest: int = NONE
    wrong: str | None = None


# Changes.


def with_wire(server: Server, number: int, wire: Wire) -> Server:
    return server._replace(wires=(wire, server.wires[1]) if number == 0 else (server.wires[0], wire))


# Time, and which states are one.


def tick(state: QuorumState) -> QuorumState:
    first, second = state.clients
    servers = tuple(_with_older_tokens(later(server)) for server in state.servers)
    clients = _older(first), _older(second)
    return state._replace(servers=servers, clients=clients, greatest=_older_token(state.greatest))


def later(server: Server) -> Server:
    """The lease of the lock, and the time for which the server abstains, are a tick shorter."""
    left = max(0, server.left - 1)
    holder = server.holder if left else NOBODY
    return server._replace(holder=holder, left=left, abstains=max(0, server.abstains - 1))


def _with_older_tokens(server: Server) -> Server:
    lowest = server.ahead * TOKENS_A_TICK - 1
    first, second = server.wires
    token = max(lowest, server.token - TOKENS_A_TICK)
    return server._replace(token=token, wires=(_older_wire(first), _older_wire(second)))


def _older_token(token: int) -> int:
    return token if token <= ALIKE else max(_OLDEST, token - TOKENS_A_TICK)


def _older_wire(wire: Wire) -> Wire:
    return wire._replace(raising=_older_token(wire.raising), vote=_older_token(wire.vote))


def _older(client: Client) -> Client:
    if client.phase in ("new", "done"):
        return client
    age, deadline = min(_OLD, client.age + 1), max(0, client.deadline - 1)
    return client._replace(age=age, deadline=deadline, token=_older_token(client.token))


def canonical(state: QuorumState) -> QuorumState:
    """The state without messages and knowledge that can change nothing any more, with its servers in order."""
    first, second = state.clients
    servers = (_without_dead(_without_dead(server, 0, first), 1, second) for server in state.servers)
    return state._replace(servers=tuple(sorted(servers)), clients=(_without_age(first), _without_age(second)))


def _without_dead(server: Server, number: int, client: Client) -> Server:
    wire = server.wires[number]
    # The end is remembered for an acquire that arrives later.
    if not wire.acquire and server.ended[number]:
        server = server._replace(ended=(False, server.ended[1]) if number == 0 else (server.ended[0], False))
    if client.phase in ("holding", "done"):
        wire = wire._replace(vote=NONE)
    if client.phase == "done":
        is_in_vain = not wire.acquire and server.holder != number
        wire = Wire() if is_in_vain else wire._replace(has_renewed=False, is_over=False)
    return with_wire(server, number, wire) if wire != server.wires[number] else server


def _without_age(client: Client) -> Client:
    """The time of the acquires does not matter once the votes are counted."""
    return client._replace(age=0) if client.phase == "holding" and not client.is_renewing else client
