"""
Two clients, one lock, a quorum of three servers that may forget: every order of acts and arrivals.

A client has one acquisition. It sends a copy to each server, is granted the lock by a majority, raises the token where
that is lower, and tells nobody before a majority has that token. Then it may renew, and it releases. Each copy is
executed at any time, or never; answers are counted at any time after that, so that each may be late, too. A server that
forgets starts empty, and abstains until all its earlier grants are over. (The real one begins to wait with the first
acquire after its start, which is later.)

In place of the second client there may be rivals: any number of clients, of which the model knows no more than that
they take all that a server grants, and give it back, or not. They do all that a second client could do, and more.

The model has tokens only while time stands still. Then a copy of client 1's acquire may be older than the others, and
its lease over. The model leaves out clients that ask with different longest leases.
"""

from collections.abc import Iterator

from tests.protocol.quorum_state import (
    ALIKE,
    MAJORITY,
    NOBODY,
    NONE,
    Client,
    QuorumBounds,
    QuorumRules,
    QuorumState,
    Server,
    Wire,
    canonical,
    later,
    tick,
    with_wire,
)
from tests.protocol.rules import MARGIN, TOKENS_A_TICK


class Quorum:
    """The model within *bounds*, by the *rules* that it keeps."""

    def __init__(self, bounds: QuorumBounds, rules: QuorumRules | None = None) -> None:
        self._bounds = bounds
        self._rules = QuorumRules() if rules is None else rules
        self._majority = MAJORITY if self._rules.needs_majority else 1

    def first(self) -> QuorumState:
        """Nobody has the lock."""
        ahead = self._bounds.ahead or (0, 0, 0)
        return QuorumState(tuple(Server(each, token=each * TOKENS_A_TICK - 1) for each in sorted(ahead)))

    def broken(self, state: QuorumState) -> str | None:
        """The promise that *state* breaks."""
        if state.wrong is not None:
            return state.wrong
        believing = [number for number in (0, 1) if _believes(state.clients[number])]
        if len(believing) > 1:
            return "P1: both clients say that they have the lock"
        for number in believing:
            kept = sum(server.holder == number or server.abstains > 0 for server in state.servers)
            if kept < MAJORITY:
                return "P3: a client says that it has the lock, and a majority could grant it to another"
        return None

    def steps(self, state: QuorumState) -> Iterator[tuple[str, QuorumState]]:
        """The possible events in *state*."""
        for what, following in self._steps(state):
            yield what, canonical(following)

    def _steps(self, state: QuorumState) -> Iterator[tuple[str, QuorumState]]:
        if self._bounds.time_passes:
            yield "a tick passes", tick(state)
        for place in range(len(state.servers)):
            yield from self._server(state, place)
            if self._bounds.has_older_copy:
                yield from _older_copy(state, place)
        for number in (0, 1):
            # The clients are alike, so that the first one begins first.
            if number == 0 or (state.clients[0].phase != "new" and not self._bounds.has_rivals):
                yield from self._client(state, number)

    # The servers.

    def _server(self, state: QuorumState, place: int) -> Iterator[tuple[str, QuorumState]]:
        server = state.servers[place]
        if self._bounds.forgets:
            yield f"{_name(server)} forgets everything", _with_server(state, place, self.forgotten(server))
        if self._bounds.moves_clock and not state.clock_has_moved:
            gained = _with_server(state, place, later(server))._replace(clock_has_moved=True)
            yield f"the clock of {_name(server)} gains a tick", gained
        if self._bounds.has_rivals:
            for words, changed in self._rivals(server):
                yield words, _with_server(state, place, changed)
        for number in (0, 1):
            for what, executed in self.executed(server, number):
                words = f"{_name(server)} executes client {number + 1}'s {what}"
                yield words, _with_server(state, place, executed)

    def _rivals(self, server: Server) -> Iterator[tuple[str, Server]]:
        if server.holder == 1:
            yield "another client gives back what a server granted it", server._replace(holder=NOBODY, left=0)
        if server.holder == 1 or (server.holder == NOBODY and not server.abstains):
            granted = server._replace(holder=1, left=self._bounds.lease)
            yield f"{_name(server)} grants or renews the lock to another client", granted

    def forgotten(self, server: Server) -> Server:
        """The state of *server* after it has forgotten everything."""
        lease = self._bounds.lease
        longest = lease if self._rules.abstains_for_longest_lease else lease - 2
        abstains = longest if self._rules.abstains else 0
        return Server(server.ahead, abstains=abstains, token=server.ahead * TOKENS_A_TICK - 1, wires=server.wires)

    def executed(self, server: Server, number: int) -> Iterator[tuple[str, Server]]:
        """The possible next states of *server* when a command of the client arrives."""
        wire = server.wires[number]
        if wire.acquire:
            yield "acquire", self._acquire(server, number, wire._replace(acquire=False))
        if wire.release:
            holder = NOBODY if server.holder == number else server.holder
            left = 0 if holder == NOBODY else server.left
            released = _with_end(server._replace(holder=holder, left=left), number)
            yield "release", with_wire(released, number, wire._replace(release=False))
        if wire.renewal:
            has_it = server.holder == number
            longer = max(server.left, self._bounds.lease)
            renewed = server._replace(left=longer) if has_it else _with_end(server, number)
            yield "renewal", with_wire(renewed, number, wire._replace(renewal=False, has_renewed=has_it))
        if wire.raising != NONE:
            yield "raising of the token", self._raise(server, number, wire)

    def _acquire(self, server: Server, number: int, wire: Wire) -> Server:
        if server.abstains or server.holder != NOBODY or server.ended[number]:
            return with_wire(server, number, wire)
        token = max(server.token + 1, server.ahead * TOKENS_A_TICK) if self._bounds.ahead else ALIKE
        granted = server._replace(holder=number, left=self._bounds.lease, token=max(token, server.token))
        return with_wire(granted, number, wire._replace(vote=token))

    def _raise(self, server: Server, number: int, wire: Wire) -> Server:
        if server.holder != number:
            return with_wire(server, number, wire._replace(raising=NONE, vote=NONE))
        raised = server._replace(token=max(server.token, wire.raising))
        return with_wire(raised, number, wire._replace(raising=NONE, vote=wire.raising))

    # The clients.

    def _client(self, state: QuorumState, number: int) -> Iterator[tuple[str, QuorumState]]:
        client, who = state.clients[number], f"client {number + 1}"
        match client.phase:
            case "new":
                asked = _with_wires(state, number, acquire=True)
                yield f"{who} sends its acquire to all", _with_client(asked, number, Client("voting"))
            case "voting":
                yield f"{who} gives its acquire up, and sends a release to all", _ended(state, number)
                yield from self._counts(state, number)
            case "holding":
                how = "loses the lock by its clock, and" if client.deadline == 0 else "gives the lock back: it"
                yield f"{who} {how} sends a release to all", _ended(state, number)
                if client.deadline:
                    yield from self._renews(state, number)

    def _counts(self, state: QuorumState, number: int) -> Iterator[tuple[str, QuorumState]]:
        client = state.clients[number]
        wires = [server.wires[number] for server in state.servers if server.wires[number].vote != NONE]
        if len(wires) < self._majority:
            return
        token = max(wire.vote for wire in wires) if client.token == NONE else client.token
        confirming = [wire for wire in wires if self._confirms(wire.vote, token)]
        if len(confirming) >= self._majority:
            lasts = sum(not wire.is_over for wire in confirming) >= self._majority
            granted = self._granted(state, number, token) if lasts else _ended(state, number)
            yield f"client {number + 1} counts a majority", granted
            return
        servers = tuple(_asked_to_raise(server, number, token) for server in state.servers)
        if client.token == NONE or servers != state.servers:
            counted = _with_client(state._replace(servers=servers), number, client._replace(token=token))
            yield f"client {number + 1} counts a majority, and has the token raised", counted

    def _confirms(self, vote: int, token: int) -> bool:
        if not self._rules.raises_tokens:
            return True
        return vote == token or (vote > token and not self._rules.confirms_equal_tokens)

    def _granted(self, state: QuorumState, number: int, token: int) -> QuorumState:
        client = state.clients[number]
        deadline = self._deadline(client)
        if not deadline:
            return _ended(state, number)
        wrong = None
        if self._bounds.ahead and token <= state.greatest:
            wrong = "P11: a client is told a token that is not greater than an earlier one"
        state = state._replace(greatest=max(token, state.greatest), wrong=wrong)
        return _with_client(state, number, Client("holding", deadline=deadline))

    def _deadline(self, client: Client) -> int:
        age = client.age if self._rules.counts_from_sending else 0
        return max(0, self._bounds.lease - age - (MARGIN if self._rules.has_margin else 0))

    def _renews(self, state: QuorumState, number: int) -> Iterator[tuple[str, QuorumState]]:
        client = state.clients[number]
        if self._bounds.renews:
            asked = _with_wires(state, number, renewal=True, has_renewed=False)
            renewing = client._replace(is_renewing=True, age=0)
            yield f"client {number + 1} sends a renewal to all", _with_client(asked, number, renewing)
        renewed = sum(server.wires[number].has_renewed for server in state.servers)
        if renewed >= (self._majority if self._rules.renews_by_majority else 1):
            deadline = max(client.deadline, self._deadline(client))
            extended = _with_client(state, number, client._replace(deadline=deadline))
            yield f"client {number + 1} counts the answers to its renewal", extended


def _believes(client: Client) -> bool:
    return client.phase == "holding" and client.deadline > 0


def _name(server: Server) -> str:
    """Servers have no numbers, since those that are alike change places."""
    what = "a free server" if server.holder == NOBODY else f"a server that client {server.holder + 1} has the lock on"
    if server.abstains:
        what = "a server that abstains"
    return f"{what}, whose clock is ahead," if server.ahead else what


def _older_copy(state: QuorumState, place: int) -> Iterator[tuple[str, QuorumState]]:
    """The lease of client 1's older copy is over: first for the client, and then on the server."""
    server, wire = state.servers[place], state.servers[place].wires[0]
    if state.clients[0].phase == "voting" and not any(each.wires[0].is_over for each in state.servers):
        over = with_wire(server, 0, wire._replace(is_over=True))
        yield f"client 1 counts no more on {_name(server)}", _with_server(state, place, over)
    if server.holder == 0 and wire.is_over:
        yield f"{_name(server)} ends that lease", _with_server(state, place, server._replace(holder=NOBODY, left=0))


# Changes.


def _with_server(state: QuorumState, place: int, server: Server) -> QuorumState:
    servers = state.servers
    return state._replace(servers=(*servers[:place], server, *servers[place + 1 :]))


def _with_client(state: QuorumState, number: int, client: Client) -> QuorumState:
    clients = (client, state.clients[1]) if number == 0 else (state.clients[0], client)
    return state._replace(clients=clients)


def _with_end(server: Server, number: int) -> Server:
    """The server remembers that the acquisition of client *number* has ended there."""
    return server._replace(ended=(True, server.ended[1]) if number == 0 else (server.ended[0], True))


def _with_wires(state: QuorumState, number: int, **sent: bool) -> QuorumState:
    servers = tuple(with_wire(each, number, each.wires[number]._replace(**sent)) for each in state.servers)
    return state._replace(servers=servers)


def _asked_to_raise(server: Server, number: int, token: int) -> Server:
    wire = server.wires[number]
    is_lower = wire.vote != NONE and wire.vote < token and wire.raising == NONE
    return with_wire(server, number, wire._replace(raising=token)) if is_lower else server


def _ended(state: QuorumState, number: int) -> QuorumState:
    """The acquisition has ended, and each server is sent a release."""
    return _with_client(_with_wires(state, number, release=True), number, Client("done"))
