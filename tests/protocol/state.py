"""The states of the model of one server. Times are ticks from now, so that the same state at two times is one state."""

from typing import Literal, NamedTuple

from tests.protocol.rules import LEASE, TOKENS_A_TICK

Kind = Literal["acquire", "release", "renew"]
Status = Literal["granted", "refused", "stale", "lost"]
End = Literal["freed", "lost"]
Phase = Literal["idle", "acquiring", "refused", "holding", "nesting", "releasing"]


class Message(NamedTuple):
    """A copy of a command."""

    kind: Kind
    # The tens of an acquisition are the number of its client.
    acquisition: int
    # For an acquire or a release the number of the change of the hold count; for a renewal its own number.
    step: int
    holds: int
    # An acquisition whose end the server may forget; 0: none.
    forget: int = 0
    copy: int = 1
    # The new mark of the client for a clean release, else 0.
    mark: int = 0


class Answer(NamedTuple):
    """A server's answer that the client has not heard yet."""

    status: Status
    left: int
    # Whether the replica has the grant.
    is_replicated: bool = True
    # The token of a grant, in models where marks are tokens.
    token: int = 0


class Call(NamedTuple):
    """A command whose answer a client waits for: the copy that was sent last, and how long ago."""

    message: Message
    age: int = 0
    answer: Answer | None = None


class Client(NamedTuple):
    """The state of one client, which has one task."""

    phase: Phase
    # The acquisition of the moment or the last one, and how many more there will be.
    acquisition: int
    more: int
    holds: int = 0
    step: int = 0
    renewal: int = 0
    # Copies of an acquire that was refused.
    tries: int = 0
    # The ticks until the hold counts as lost, and the ticks since the command was sent that gave this deadline.
    deadline: int = 0
    heard: int = 0
    call: Call | None = None
    renewing: Call | None = None
    # A copy of an acquire or a release of this acquisition may arrive yet.
    in_doubt: bool = False
    # An earlier acquisition whose end the server may forget; 0: none.
    forgettable: int = 0
    # The token of the grant, in models where marks are tokens.
    token: int = 0


class Lock(NamedTuple):
    """The hash of the lock."""

    acquisition: int
    holds: int
    step: int
    renewal: int
    left: int
    # The token, in models where marks are tokens.
    token: int = 0


class Server(NamedTuple):
    """The keys of the name."""

    lock: Lock | None = None
    ends: frozenset[tuple[int, End]] = frozenset()
    # The last token, less the time by the clock; all values below 0 are alike.
    token: int = -1
    # For each client, the acquisition that it freed last by a clean release.
    marks: tuple[int, int] = (0, 0)
    # The last token, where marks are tokens: a failover may lose it, and grant it again.
    granted: int = 0


class State(NamedTuple):
    """The whole state."""

    server: Server
    replica: Server
    clients: tuple[Client, Client]
    on_the_way: frozenset[Message] = frozenset()
    has_failed_over: bool = False
    clock_has_moved: bool = False
    # Knowledge of the checks only: acquisitions whose last release was executed, acquisitions that it freed, and the
    # greatest token that was ever granted, less the time by the clock.
    over: frozenset[int] = frozenset()
    freed: frozenset[int] = frozenset()
    greatest: int = -1
    wrong: str | None = None


def owner(acquisition: int) -> int:
    """The number of the client, 0 or 1."""
    return acquisition // 10 - 1


def is_held(client: Client) -> bool:
    """Whether the client has not given the lock back, nor noticed that it is lost."""
    return client.phase in ("holding", "nesting") or (client.phase == "releasing" and client.holds > 0)


def believes(client: Client) -> bool:
    """Whether the client says that it has the lock."""
    return is_held(client) and client.deadline > 0


def is_releasing_cleanly(client: Client) -> bool:
    """Whether the client waits for the answer to a clean release."""
    return client.call is not None and client.call.message.mark > 0


def with_client(state: State, number: int, client: Client, *messages: Message) -> State:
    """The next state, in which the client has become *client*, and has sent *messages*."""
    clients = (client, state.clients[1]) if number == 0 else (state.clients[0], client)
    return state._replace(clients=clients, on_the_way=state.on_the_way.union(messages))


def idle(client: Client, *, forgettable: int = 0) -> Client:
    """The acquisition of the client has ended."""
    forgettable = forgettable or client.forgettable
    return Client("idle", client.acquisition, client.more, forgettable=forgettable)


# Time.


def tick(state: State) -> State:
    """The next state after a tick."""
    clients = (_older_client(state.clients[0]), _older_client(state.clients[1]))
    return server_tick(state)._replace(clients=clients)


def server_tick(state: State, ticks: int = 1) -> State:
    """The next state after the servers' clock, and nothing else, has moved by some *ticks*."""
    server, replica = _later(state.server, ticks), _later(state.replica, ticks)
    return state._replace(server=server, replica=replica, greatest=_less(state.greatest, ticks))


def _less(token: int, ticks: int) -> int:
    return max(-1, token - ticks * TOKENS_A_TICK)


def _later(server: Server, ticks: int) -> Server:
    lock = server.lock
    if lock is not None:
        lock = lock._replace(left=lock.left - ticks) if lock.left > ticks else None
    return server._replace(lock=lock, token=_less(server.token, ticks))


def _older_client(client: Client) -> Client:
    if client.phase == "idle":
        return client
    older = _older(client.call), _older(client.renewing)
    deadline, heard = max(0, client.deadline - 1), min(LEASE, client.heard + 1)
    return client._replace(deadline=deadline, heard=heard, call=older[0], renewing=older[1])


def _older(call: Call | None) -> Call | None:
    return None if call is None else call._replace(age=min(LEASE, call.age + 1))
