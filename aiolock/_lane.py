"""
The calls that share one connection.

Rules:
1. A command is never cancelled, only the waiting for it; it goes on without its caller. One that has not left yet may
   be withdrawn.
2. A call whose connection failed is sent again until its deadline: every script may be sent twice.
3. A grant that is to last counts when as many replicas as asked for have it: one `WAIT` behind each batch.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from ssl import SSLCertVerificationError
from time import monotonic
from typing import Any, Protocol

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    ClusterDownError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)

from aiolock._call import Call, Reply
from aiolock._errors import BackendError
from aiolock._hints import in_words, underlying
from aiolock._link import Link
from aiolock._outage import Outage
from aiolock._scripts import grants
from aiolock._types import milliseconds
from aiolock._wire import Command, UnsupportedConnectionError

# The server cannot serve the call now and may be able to in a moment. MOVED and ASK are of the class `AskError`: here
# the servers of a cluster sent the call round in circles. MASTERDOWN is of that of CLUSTERDOWN.
_PASSING = (AskError, ClusterDownError, OutOfMemoryError, ReadOnlyError, TryAgainError)
# The same, of errors for which redis-py has no class.
_PASSING_CODES = ("BUSY ", "MISCONF ", "NOREPLICAS ")
# The server turned the connection down, or we its certificate, or it is none of ours; and so it will be again.
_FINAL = (
    *(AuthenticationError, AuthorizationError, ResponseError),
    *(SSLCertVerificationError, UnsupportedConnectionError),
)
_PULSE = 0.05


def is_passing(error: BaseException) -> bool:
    """Whether the server said that it cannot do something now, and may be able to in a moment."""
    return isinstance(error, _PASSING) or (isinstance(error, ResponseError) and str(error).startswith(_PASSING_CODES))


Question = tuple[Command, Callable[[Any], object]]  # And who takes the answer.


@dataclass(slots=True)
class Traffic:
    """Scripts that were sent so far, by all lanes of a client."""

    batches: int = 0
    commands: int = 0


class Aside:
    """A command of the lane's own; *tell* is called with what the server answers."""

    __slots__ = ("sent", "tell")

    def __init__(self, tell: Callable[[Any], object]) -> None:
        self.tell = tell
        self.sent = monotonic()


class Steering(Protocol):
    """What a lane asks of the topology that it is a part of; all plain calls."""

    @property
    def question(self) -> Question | None:
        """What is to be known first, before anything else is sent."""

    @property
    def settled(self) -> bool:
        """Whether to send anything; else it is being found out whether this is still the right server."""

    @property
    def publish(self) -> str:
        """The command that unlock messages are sent with here."""

    def redirected(self, call: Call, error: ResponseError) -> bool:
        """Whether *error* sends *call* to another server, which has it now."""

    def opened(self, peer: object) -> None:
        """There is a new connection, to the address *peer*."""

    def broken(self) -> None:
        """A connection failed, or none could be made."""


@dataclass(frozen=True, slots=True)
class Replication:
    """
    How many replicas must have a grant before it counts, and how many seconds they have for it.

    *wanted* is ``None`` for all that the server knows of, and one at least.
    """

    wanted: int | None
    timeout: float


class Lane:
    """Calls on one connection, in the order in which they were submitted."""

    # Invariant: a call that has not ended, or is still to be sent, is in exactly one of `_unsent`, `_sent`, `_granted`
    # and `_resting`; `_sent` has one entry for every reply that the connection owes, in order.

    def __init__(
        self,
        connect: Callable[[], AbstractConnection],
        steering: Steering,
        *,
        patience: float,
        outage: Outage,
        ordered: bool = True,
        replication: Replication | None = None,
        traffic: Traffic,
    ) -> None:
        self._steering = steering
        self._replication = replication
        self._patience = patience + (0 if replication is None else replication.timeout)
        self._outage = outage
        self._ordered = ordered  # What is sent again goes in the order in which it was submitted.
        self._unsent: OrderedDict[Call, None] = OrderedDict()  # Ordered, and quick to take a call from.
        self._sent: deque[Call | Aside] = deque()
        self._granted: list[tuple[Call, Reply]] = []  # What the replicas have not confirmed yet.
        self._resting: list[Call] = []  # Refused for the moment; sent again at the next tick.
        self._heard = 0.0  # When the server last sent anything.
        self._known: set[str] = set()  # Digests of the scripts sent whole on this connection.
        self._holds_back = False  # Until the answer to a question that nothing must overtake.
        # Replicas that must have a grant; where all are wanted, as many as the server knew of when it was asked last.
        self._wanted: int = 1 if replication is None else replication.wanted or 1
        self._traffic = traffic
        self._idle = asyncio.Event()
        self._closed = False
        self._last_error: Exception = TimeoutError("no connection could be made in time")
        self.link: Link = Link(self, connect, patience=patience, pulse=min(_PULSE, patience / 4))

    @property
    def pending(self) -> int:
        """Calls that wait for their reply."""
        asides = sum(isinstance(entry, Aside) for entry in self._sent) if self._holds_back else 0
        return len(self._unsent) + len(self._sent) - asides + len(self._granted) + len(self._resting)

    def submit(self, call: Call) -> None:
        """Send *call*, in its turn."""
        if self._closed:
            call.fail(self._last_error, "the client was closed")
            return
        if self._outage.lasts and call.may_fail_soon:
            call.deadline = call.until = monotonic() + self._outage.seek()
            self.link.hurry()
        self._unsent[call] = None
        self.link.wake()

    def withdraw(self, call: Call) -> bool:
        """Do not send *call*, which nobody awaits any more; ``False`` if it has been sent."""
        if call.sent or call not in self._unsent:
            return False
        del self._unsent[call]
        self._notice_idle()
        return True

    def take(self, chosen: Callable[[Call], bool]) -> list[Call]:
        """Take out, to be submitted elsewhere, the *chosen* ones of the calls that are to be sent from here."""
        self._unsent.update(dict.fromkeys(self._resting))
        self._resting.clear()
        taken = [call for call in self._unsent if chosen(call)]
        for call in taken:
            del self._unsent[call]
        self._notice_idle()
        return taken

    async def drained(self) -> None:
        """Wait until no call is pending. Raises `BackendError` when there will be no more answers."""
        while self.pending:
            if self.link.stopped:
                raise BackendError(str(self._last_error))
            self._idle.clear()
            await self._idle.wait()

    async def aclose(self) -> None:
        """Close the connection; what is pending fails."""
        self._closed = True
        for call in self._all():
            call.fail(self._last_error, "the client was closed")
        await self.link.aclose()

    # What the link asks for.

    def busy(self) -> bool:
        return self.pending > 0 or self._outage.is_sought

    def opened(self) -> None:
        self._outage.over()
        if not self._heard and isinstance(self._last_error, TimeoutError):  # Not for want of a connection any more.
            self._last_error = TimeoutError("no reply in time")
        self._known.clear()  # Another server may have answered.
        self._holds_back = False
        self._steering.opened(self.link.peer)

    def waiting(self) -> int:
        return 0 if self._holds_back else len(self._unsent)

    def outgoing(self) -> list[Command]:
        if self._holds_back or not self._unsent or not self._steering.settled:
            return []
        if (question := self._steering.question) is not None:
            return [self._ask(*question)]
        batch = list(self._unsent)
        self._unsent.clear()
        self._traffic.batches += 1
        self._traffic.commands += len(batch)
        commands = self._written(batch, self._steering.publish)
        if self._replication is not None and any(call.script.lasts for call in batch):
            commands += self._questions(self._replication)
        return commands

    def received(self, frame: Any) -> None:
        self._heard = monotonic()
        expected = self._sent.popleft()
        if isinstance(expected, Aside):
            expected.tell(frame)
        elif isinstance(frame, ResponseError):
            self._refused(expected, frame)
        elif not isinstance(frame, list):  # Whatever it is, it is no Redis.
            expected.fail(ResponseError(repr(frame)), f"the server answered with {frame!r}")
        elif self._replication is not None and expected.script.lasts and grants(frame):
            self._granted.append((expected, frame))
        else:
            expected.end(frame)
        self._notice_idle()

    def broken(self, error: Exception) -> None:
        error = underlying(error)
        self._outage.failed()
        if not isinstance(error, TimeoutError):
            self._last_error = error
        owed = [call for call, _ in self._granted] + [call for call in self._sent if isinstance(call, Call)]
        for call in reversed(owed):
            call.repeated = True
            self._unsent[call] = None
            self._unsent.move_to_end(call, last=False)
        if owed and not self._ordered:
            self._unsent.move_to_end(owed[0])  # The first that got no answer may be what breaks the connection.
        self._sent.clear()
        self._granted.clear()
        if isinstance(error, _FINAL) and not is_passing(error):
            while self._unsent:
                self._unsent.popitem(last=False)[0].fail(error, in_words(error))
        self._steering.broken()
        self.tick(monotonic())

    def tick(self, now: float) -> None:
        self._unsent.update(dict.fromkeys(self._resting))
        self._resting.clear()
        if self.link.stopped:
            self._last_error = ConnectionAbortedError("the task of the connection was cancelled")
        for call in self._all():
            if now >= call.deadline or self.link.stopped:
                call.fail(self._last_error, f"{self._outcome()} ({in_words(self._last_error)})")
        # A call that was written keeps its place, for the reply that is owed; any other is forgotten in time.
        self._unsent = OrderedDict.fromkeys(call for call in self._unsent if now < call.until)
        self._notice_idle()
        # Of many calls the last are answered late: what counts is the silence, while anything is owed.
        if self._sent and now >= max(self._heard, self._sent[0].sent) + self._patience:
            self._last_error = TimeoutError(f"no reply within {self._patience:.3g} s")
            self.link.fail()
        elif self._unsent:
            self.link.wake()

    def _outcome(self) -> str:
        if self.link.stopped:
            return "there will be no answer"
        return "refused all the time" if isinstance(self._last_error, ResponseError) else "no answer in time"

    def _all(self) -> list[Call]:
        sent = [call for call in self._sent if isinstance(call, Call)]
        return [*sent, *(call for call, _ in self._granted), *self._unsent, *self._resting]

    def _written(self, batch: list[Call], publish: str) -> list[Command]:
        """*batch* as it is to be written."""
        commands: list[Command] = []
        now = monotonic()
        for call in batch:
            if call.asking:
                call.asking = False
                commands.append(self._expect(("ASKING",), _ignore))
            call.sent = now
            # Sent whole once, a script is known to whatever follows on the same connection.
            call.whole = call.whole or call.script.sha not in self._known
            self._known.add(call.script.sha)
            self._sent.append(call)
            commands.append(call.command(publish))
        return commands

    def _expect(self, command: Command, tell: Callable[[Any], object]) -> Command:
        self._sent.append(Aside(tell))
        return command

    def _ask(self, question: Command, tell: Callable[[Any], object]) -> Command:
        """Ask *question*, and send nothing more before it is answered."""
        self._holds_back = True

        def answered(answer: Any) -> None:
            self._holds_back = False
            tell(answer)
            if self._steering.question is None:  # Else it is asked again at the next tick.
                self.link.wake()

        return self._expect(question, answered)

    # What the replicas have.

    def _questions(self, replication: Replication) -> list[Command]:
        """
        Ask how many replicas have what was granted so far.

        The server lets whatever comes later on the connection wait for that answer, too; so it may as well wait here,
        where it becomes one batch.
        """
        wait = milliseconds(replication.timeout)
        first = [] if replication.wanted is not None else [self._expect(("ROLE",), self._counted)]
        return [*first, self._ask(("WAIT", self._wanted, wait), partial(self._confirmed, self._wanted))]

    def _counted(self, role: Any) -> None:
        if isinstance(role, ResponseError):
            self._unknown(role)
        else:
            self._wanted = max(1, len(role[2])) if role[0] == b"master" else 1

    def _confirmed(self, asked: int, acks: Any) -> None:
        """*acks* replicas, of those *asked* for, have what was granted."""
        if isinstance(acks, ResponseError):
            self._unknown(acks)
        granted, self._granted = self._granted, []
        for call, reply in reversed(granted):
            if asked < self._wanted:  # There are more than were known; who asks again for what it has, gets it again.
                self._unsent[call] = None
                self._unsent.move_to_end(call, last=False)
            else:
                call.short = (acks, self._wanted) if acks < self._wanted else None
                call.end(reply)

    def _unknown(self, error: ResponseError) -> None:
        """The server does not say what its replicas have, so that no grant can count."""
        for call, _ in self._granted:
            call.fail(error, f"the server does not say what its replicas have ({error})")
        self._granted.clear()

    def _refused(self, call: Call, error: ResponseError) -> None:
        if isinstance(error, NoScriptError) and not call.whole:
            self._known.discard(call.script.sha)
            call.whole = True
            self._unsent[call] = None
            self.link.wake()
        elif self._steering.redirected(call, error):
            pass
        elif is_passing(error):
            self._last_error = error
            self._resting.append(call)
            if isinstance(error, ReadOnlyError):
                self.link.fail()  # Demoted: the next connection may reach the new primary.
        else:
            call.fail(error, in_words(error))

    def _notice_idle(self) -> None:
        if (not self._sent and not self.pending) or self.link.stopped:
            self._idle.set()


def _ignore(answer: Any) -> None:
    pass
