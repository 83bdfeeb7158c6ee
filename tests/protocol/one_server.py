"""
Two clients, one lock, one server: every order of acts, arrivals and failures.

A command is executed at any time after it was sent, in any order, or never. The answer to the last copy is heard at
any time after that, or never. Time passes at any moment and without end. The clock of the server may gain or lose a
tick, and the replica may become the server.

The model leaves out: copies that are so late that the server has forgotten the end; failovers of less than a tick; and
ends that a failover loses, as a release does not wait for replicas: a late copy may then be granted to nobody, for one
lease.
"""

from collections.abc import Iterator

from tests.protocol.client import Act, Acts, words
from tests.protocol.lua import Scripts
from tests.protocol.rules import Bounds, Rules
from tests.protocol.state import (
    Client,
    Message,
    Server,
    State,
    believes,
    is_releasing_cleanly,
    owner,
    server_tick,
    tick,
    with_client,
)


class OneServer:
    """The model within *bounds*, by the *rules* that it keeps."""

    def __init__(self, bounds: Bounds, rules: Rules | None = None) -> None:
        self._bounds = bounds
        self._rules = Rules() if rules is None else rules
        self._scripts = Scripts(self._rules, are_one_client=bounds.are_one_client)
        self._acts = Acts(bounds, self._rules)

    def first(self) -> State:
        """Nobody has the lock."""
        first, second = self._bounds.acquisitions
        return State(Server(), Server(), (Client("idle", 10, first), Client("idle", 20, second)))

    def broken(self, state: State) -> str | None:
        """The promise that *state* breaks."""
        if state.wrong is not None:
            return state.wrong
        return None if state.has_failed_over and self._bounds.loses_grants else self._broken_now(state)

    def _broken_now(self, state: State) -> str | None:
        """The promise that the locks of the moment break."""
        lock = state.server.lock
        believing = [client for client in state.clients if believes(client)]
        if len(believing) > 1:
            return "P1: both clients say that they have the lock"
        for client in believing:
            if lock is None or not self._scripts.has(lock, client.acquisition):
                return "P3: a client says that it has the lock, and the server has ended that"
            # The counts may differ until a change has arrived, and after a failover that lost a change.
            has_arrived = client.phase == "holding" and lock.step >= client.step and not state.has_failed_over
            if has_arrived and lock.holds != client.holds:
                return f"P2: the client has the lock {client.holds} times, on the server {lock.holds} times"
        if lock is not None and lock.acquisition in state.over:
            return "P2: a client has given the lock back as often as it acquired it, and the server still has it"
        return None

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """The possible events in *state*."""
        for what, following in self._steps(state):
            yield what, _without_dead_copies(following)

    def _steps(self, state: State) -> Iterator[tuple[str, State]]:
        yield "a tick passes", tick(state)
        if self._bounds.moves_clock and not state.clock_has_moved:
            moved = state._replace(clock_has_moved=True)
            yield "the server's clock gains a tick", server_tick(moved)
            yield "the server's clock loses a tick", server_tick(moved, -1)
        if self._bounds.fails_over:
            yield from self._failover(state)
        for message in sorted(state.on_the_way):
            client = owner(message.acquisition) + 1
            yield f"the server executes client {client}'s {words(message)}", self._executed(state, message)
        for number in (0, 1):
            yield from self._client(state, number)

    # The server.

    def _failover(self, state: State) -> Iterator[tuple[str, State]]:
        if state.has_failed_over:
            return
        if state.replica != state.server or any(_waits_for_replica(client) for client in state.clients):
            clients = (_replicated(state.clients[0]), _replicated(state.clients[1]))
            yield "the replica gets what the server has", state._replace(replica=state.server, clients=clients)
        clients = (_disconnected(state.clients[0]), _disconnected(state.clients[1]))
        failed = state._replace(
            server=state.replica, replica=Server(), clients=clients, has_failed_over=True, over=_still_over(state)
        )  # fmt: skip
        yield "the server dies, and a tick later its replica is the server", tick(failed)

    def _executed(self, state: State, message: Message) -> State:
        before = state.server
        server, answer = self._scripts.execute(before, message)
        if self._bounds.fails_over and message.kind != "release" and answer.status == "granted":
            waits = self._rules.waits_for_replica and not self._bounds.loses_grants
            is_replicated = state.has_failed_over or not waits
            answer = answer._replace(is_replicated=is_replicated)
        over, freed = state.over, state.freed
        if message.kind == "release" and message.holds == 0:
            over = over | {message.acquisition}
        if message.kind == "release" and before.lock is not None and server.lock is None:
            freed = freed | {message.acquisition}
        wrong = self._wrong(state, server, message)
        number = owner(message.acquisition)
        client = state.clients[number]
        if client.call is not None and client.call.message == message:
            client = client._replace(call=client.call._replace(answer=answer))
        elif client.renewing is not None and client.renewing.message == message:
            client = client._replace(renewing=client.renewing._replace(answer=answer))
        state = state._replace(
            server=server, on_the_way=state.on_the_way - {message}, over=over, freed=freed,
            greatest=max(state.greatest, server.token), wrong=wrong,
        )  # fmt: skip
        return with_client(state, number, client)

    def _wrong(self, state: State, server: Server, message: Message) -> str | None:
        """The violations by *message*."""
        before, after = state.server.lock, server.lock
        if after is None or message.kind == "release":
            return None
        if before is None and server.token <= state.greatest:
            return "P11: the token of a grant is not greater than that of an earlier one"
        is_new = before is None or before.acquisition != after.acquisition
        if is_new and message.acquisition in state.over:
            return "P5: an acquire that arrives after its release is granted"
        lives_longer = before is None or after.left > before.left
        if (is_new or lives_longer) and not state.has_failed_over and self._is_nobodys(state, message):
            return "P5: a late command takes the lock for nobody, and nothing will give it back"
        return None

    def _is_nobodys(self, state: State, message: Message) -> bool:
        client = state.clients[owner(message.acquisition)]
        if client.acquisition == message.acquisition and client.phase != "idle":
            return False
        return not any(
            each.kind == "release" and each.acquisition == message.acquisition and each.holds == 0
            for each in state.on_the_way
        )

    # The clients.

    def _client(self, state: State, number: int) -> Iterator[tuple[str, State]]:
        client = state.clients[number]
        if number == 1 and state.clients[0].acquisition == 10 and len(set(self._bounds.acquisitions)) == 1:
            # The clients are alike, so that the first one begins first.
            return
        who = f"client {number + 1}"
        has_mark = not (self._bounds.are_one_client and is_releasing_cleanly(state.clients[1 - number]))
        for act in self._acts.of(client, has_mark=has_mark):
            yield f"{who} {act.words}", with_client(state, number, act.client, *act.messages)
        call, renewing = client.call, client.renewing
        if call is not None and call.answer is not None and call.answer.is_replicated:
            act = self._acts.hear(client)
            yield f"{who} {act.words}", self._heard(state, number, client, act)
        if renewing is not None and renewing.answer is not None and renewing.answer.is_replicated:
            act = self._acts.hear_renewal(client)
            yield f"{who} {act.words}", with_client(state, number, act.client, *act.messages)

    def _heard(self, state: State, number: int, client: Client, act: Act) -> State:
        heard = with_client(state, number, act.client, *act.messages)
        if act.tells_of_loss and client.acquisition in state.freed and not state.has_failed_over:
            return heard._replace(wrong="P5: a client is told that it lost what its own release has freed")
        if act.tells_of_freeing and client.acquisition not in state.freed:
            return heard._replace(wrong="P3: a client is told that its release freed what it had lost before")
        return heard


def _still_over(state: State) -> frozenset[int]:
    """Acquisitions that are over on the replica, too: it knows their id, or needs none and has their lock no more."""
    known = {acquisition for acquisition, _ in state.replica.ends}
    by_id = {acquisition for acquisition, _ in state.server.ends}
    has = None if state.replica.lock is None else state.replica.lock.acquisition
    return frozenset(each for each in state.over if each in known or (each not in by_id and each != has))


def _without_dead_copies(state: State) -> State:
    """
    The state without copies that nobody waits for, and that find the end of their acquisition whenever they arrive.

    This is no rule of the protocol: such copies change nothing, so that states that differ by them are one.
    """
    if not state.on_the_way:
        return state
    ended = {acquisition for acquisition, _ in state.server.ends}
    ended -= {message.forget for message in state.on_the_way}
    if state.replica != Server():
        ended &= {acquisition for acquisition, _ in state.replica.ends}
    for client in state.clients:
        ended -= {client.forgettable} if client.phase == "idle" else {client.acquisition, client.forgettable}
    dead = [message for message in state.on_the_way if message.acquisition in ended]
    return state._replace(on_the_way=state.on_the_way.difference(dead)) if dead else state


def _replicated(client: Client) -> Client:
    call, renewing = client.call, client.renewing
    if call is not None and call.answer is not None:
        client = client._replace(call=call._replace(answer=call.answer._replace(is_replicated=True)))
    if renewing is not None and renewing.answer is not None:
        client = client._replace(renewing=renewing._replace(answer=renewing.answer._replace(is_replicated=True)))
    return client


def _waits_for_replica(client: Client) -> bool:
    calls = (client.call, client.renewing)
    return any(call is not None and call.answer is not None and not call.answer.is_replicated for call in calls)


def _disconnected(client: Client) -> Client:
    """The connection is gone: answers that wait for the replica do not come any more."""
    call, renewing = client.call, client.renewing
    if call is not None and call.answer is not None and not call.answer.is_replicated:
        client = client._replace(call=call._replace(answer=None))
    if renewing is not None and renewing.answer is not None and not renewing.answer.is_replicated:
        client = client._replace(renewing=renewing._replace(answer=None))
    return client
