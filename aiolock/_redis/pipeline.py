"""
The calls that share one connection.

Rules:
1. A command is never cancelled, only the waiting for it; it goes on without its caller. One that has not left yet may
   be withdrawn.
2. A call whose connection failed is sent again until its deadline: every script may be sent twice.
3. A grant that is to last counts when as many replicas as asked for have it.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import attrgetter
from time import monotonic
from typing import Any

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import NoScriptError, ReadOnlyError, ResponseError

from aiolock._backend import Argument, Call, Client
from aiolock._config import Timing
from aiolock._errors import BackendError
from aiolock._redis.connection import Command, Connection
from aiolock._redis.hints import in_words, underlying
from aiolock._redis.outage import Outage
from aiolock._redis.replication import Answered, Replication
from aiolock._redis.replies import is_final, is_passing, understood
from aiolock._scripts import Script, grants

_PULSE = 0.05
_MOST_BUNDLED = 32  # Calls that one command makes, for whose time the server does nothing else.


@dataclass(slots=True)
class Traffic:
    """Scripts that were sent so far, by all pipelines of a client."""

    batches: int = 0
    commands: int = 0


@dataclass(slots=True)
class Aside:
    """A command of the pipeline's own, which makes those *calls*; *tell* is called with what the server answers."""

    tell: Answered
    calls: Sequence[Call]
    sent: float = field(default_factory=monotonic)


class Steering(ABC):
    """What a pipeline asks of the server that it leads to; plain calls but for the greeting."""

    apart: bool  # As `Backend.apart`.
    client: Client  # Who uses it.
    # Says whether to send anything, while it is being found out whether this is still the right server.
    settled: Callable[[], bool] | None = None

    @abstractmethod
    async def greet(self, connection: AbstractConnection) -> None:
        """Ask on a new *connection* what is to be known first; if this raises, it is of no use."""

    @property
    @abstractmethod
    def publish(self) -> str:
        """The command that unlock messages are sent with here."""

    def redirected(self, call: Call, error: ResponseError) -> bool:
        """Whether *error* sends *call* to another server, which has it now."""
        return False

    @abstractmethod
    def broken(self) -> None:
        """A connection failed, or none could be made."""


class Pipeline:
    """Calls on one connection, in the order in which they were submitted."""

    # Invariant: a call that has not ended, or is still to be sent, is in exactly one of `_unsent`, `_sent`, `_resting`
    # and what awaits replication; `_sent` has one entry for every reply that the connection owes, in order.

    def __init__(
        self,
        connect: Callable[[], AbstractConnection],
        steering: Steering,
        traffic: Traffic,
        timing: Timing,
        *,
        urgent: bool,
    ) -> None:
        patience = timing.renewal_patience if urgent else timing.patience
        self._steering = steering
        self._replication = Replication(timing.replicas, timing.replicas_timeout)
        self._waits = patience + (timing.replicas_timeout if timing.replicas != 0 else 0.0)  # Seconds for an answer.
        self._outage = Outage(timing.command_timeout)
        self._urgent = urgent  # What is sent again need not go in the order in which it was submitted.
        self._unsent: dict[Call, None] = {}  # Ordered, and quick to take a call from.
        self._sent: deque[Call | Aside] = deque()
        self._resting: list[Call] = []  # Refused for the moment; sent again at the next tick.
        self._heard = 0.0  # When the server last sent anything.
        self._known: set[str] = set()  # Digests of the scripts sent whole on this connection.
        self._traffic = traffic
        self._idle: asyncio.Event | None = None  # Somebody waits until no call is pending.
        self._last_error: Exception = TimeoutError("no connection could be made in time")
        self.connection: Connection = Connection(self, connect, patience=patience, pulse=min(_PULSE, patience / 4))

    @property
    def pending(self) -> int:
        """Calls that wait for their reply."""
        return len(self._all())

    def submit(self, call: Call) -> None:
        """Send *call*, in its turn."""
        if self.connection.closed:
            call.fail(self._last_error, "the client was closed")
            return
        if self._outage.since is not None and self._outage.lasts and not call.script.urgent:
            call.fail_within(self._outage.one_attempt)
            self.connection.hurry()
        if not self._unsent:  # Else it was woken for that.
            self.connection.wake()
        self._unsent[call] = None

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
            if self.connection.stopped:
                raise BackendError(str(self._last_error))
            self._idle = self._idle or asyncio.Event()
            await self._idle.wait()

    async def aclose(self) -> None:
        """Close the connection; what is pending fails."""
        self.connection.close()
        for call in self._all():
            call.fail(self._last_error, "the client was closed")
        await self.connection.aclose()

    # What the connection asks for.

    def busy(self) -> bool:
        return bool(self._unsent or self._sent or self._resting or self._replication.granted)

    async def greet(self, connection: AbstractConnection) -> None:
        await self._steering.greet(connection)

    def opened(self, took: float) -> None:
        self._outage.over(took)
        if not self._heard and isinstance(self._last_error, TimeoutError):  # Not for want of a connection any more.
            self._last_error = TimeoutError("no reply in time")
        self._known.clear()  # Another server may have answered.
        self._send_again()  # Nothing, unless the one before went without a word.

    def owed(self) -> bool:
        return self._steering.client.is_in_use() or any(not call.ended for call in self._all())

    def outgoing(self) -> list[Command]:
        settled = self._steering.settled
        if not self._unsent or (settled is not None and not settled()):
            return []
        if self._replication.is_asked:
            return []
        batch = list(self._unsent)
        self._unsent.clear()
        self._traffic.batches += 1
        self._traffic.commands += len(batch)
        commands = self._written(batch, self._steering.publish)
        if self._replication.is_wanted and any(call.script.lasts for call in batch):
            commands += [self._expect(*question) for question in self._replication.questions()]
        return commands

    def received(self, frame: Any) -> int:
        self._heard = monotonic()
        expected = self._sent.popleft()
        if isinstance(expected, Call):
            answered = 1
            self._answered(expected, frame)
        else:
            answered = len(expected.calls)
            if again := expected.tell(frame):
                self._unsent = dict.fromkeys([*again, *self._unsent])
            self.connection.wake()
        if self._idle is not None:
            self._notice_idle()
        return answered

    def broken(self, error: Exception, waited: float) -> None:
        error = underlying(error)
        if not isinstance(error, TimeoutError):
            self._last_error = error
        if self._send_again() or waited:  # Else it was closed while nobody needed it.
            self._outage.failed(waited)
        if is_final(error):
            while self._unsent:  # Whoever is told may submit another.
                call = next(iter(self._unsent))
                del self._unsent[call]
                call.fail(error, in_words(error))
        self._steering.broken()
        self.tick(monotonic())

    def tick(self, now: float) -> None:
        self._unsent.update(dict.fromkeys(self._resting))
        self._resting.clear()
        stopped = self.connection.stopped
        if stopped:
            self._last_error = ConnectionAbortedError("the task of the connection was cancelled")
        for call in self._all():
            if stopped or now >= call.deadline:
                call.fail(self._last_error, f"{self._outcome()} ({in_words(self._last_error)})")
        # A call that was written keeps its place, for the reply that is owed; any other is forgotten in time.
        self._unsent = dict.fromkeys(call for call in self._unsent if now < call.until)
        self._notice_idle()
        # Of many calls the last are answered late: what counts is the silence, while anything is owed.
        if self._sent and now >= max(self._heard, self._sent[0].sent) + self._waits:
            self._last_error = TimeoutError(f"no reply within {self._waits:.3g} s")
            self._outage.failed(self._waits)
            self.connection.fail()
        elif self._unsent:
            self.connection.wake()

    def _outcome(self) -> str:
        if self.connection.stopped:
            return "there will be no answer"
        return "refused all the time" if isinstance(self._last_error, ResponseError) else "no answer in time"

    def _all(self) -> list[Call]:
        return [*self._sent_calls(), *self._granted(), *self._unsent, *self._resting]

    def _sent_calls(self) -> list[Call]:
        return [call for each in tuple(self._sent) for call in ((each,) if isinstance(each, Call) else each.calls)]

    def _granted(self) -> list[Call]:
        """Those that the replicas have not confirmed yet."""
        return [call for call, _ in self._replication.granted]

    def _send_again(self) -> bool:
        """The connection is no more: what it owes is to be sent on the next one; whether there is any."""
        owed = [*self._granted(), *self._sent_calls()]
        for call in owed:
            call.repeated = True
        last = owed[:1] if self._urgent else []  # The first that got no answer may be what breaks the connection.
        self._unsent = dict.fromkeys([*owed[len(last) :], *self._unsent, *last])
        self._sent.clear()
        self._replication.forget()
        return bool(owed)

    def _written(self, batch: list[Call], publish: str) -> list[Command]:
        """*batch* as it is to be written."""
        commands: list[Command] = []
        now = monotonic()
        for script, same in groupby(batch, attrgetter("script")):
            calls = list(same)
            bundled = script.bundled and not self._steering.apart and not any(map(attrgetter("whole"), calls))
            most = _MOST_BUNDLED if bundled else 1
            for first in range(0, len(calls), most):
                commands += self._commands(calls[first : first + most], publish)
        for call in batch:
            call.sent = now
        return commands

    def _commands(self, calls: list[Call], publish: str) -> list[Command]:
        """What makes *calls*, which have the same script."""
        call, *others = calls
        if others:
            return [self._bundle(call.script, calls, publish)]
        asking = [self._expect(("ASKING",), _ignore)] if call.asking else []
        call.asking = False
        # Sent whole once, a script is known to whatever follows on the same connection.
        call.whole = call.whole or self._is_new(call.script)
        self._sent.append(call)
        how = ("EVAL", call.script.source) if call.whole else ("EVALSHA", call.script.sha)
        return [*asking, (*how, len(call.keys), *call.keys, *call.arguments(publish))]

    def _bundle(self, script: Script, calls: list[Call], publish: str) -> Command:
        """Several *calls* as one command."""
        bundle = script.bundle
        how = ("EVAL", bundle.source) if self._is_new(bundle) else ("EVALSHA", bundle.sha)
        keys: list[str] = []
        arguments: list[Argument] = []
        for call in calls:
            keys += call.keys
            arguments += call.arguments(publish)
        command = (*how, len(keys), *keys, len(calls), *arguments)
        return self._expect(command, partial(self._bundle_answered, script, calls), calls)

    def _is_new(self, script: Script) -> bool:
        """Whether this connection has not been sent *script* yet; from now on it has been."""
        known = script.sha in self._known
        self._known.add(script.sha)
        return not known

    def _expect(self, command: Command, tell: Answered, calls: Sequence[Call] = ()) -> Command:
        self._sent.append(Aside(tell, calls))
        return command

    def _answered(self, call: Call, frame: Any) -> None:
        if not isinstance(frame, list):
            self._refused(call, frame)
        elif self._replication.is_wanted and call.script.lasts and grants(frame):
            self._replication.granted.append((call, frame))
        else:
            call.end(frame)

    def _bundle_answered(self, script: Script, calls: list[Call], frame: Any) -> list[Call]:
        """Several *calls* as one were answered. If they were refused as one, each is made again by itself."""
        if isinstance(frame, list):
            for call, reply in zip(calls, frame, strict=True):
                if not self._replication.is_wanted and isinstance(reply, list):
                    call.end(reply)
                else:
                    self._answered(call, understood(reply) if isinstance(reply, ResponseError) else reply)
            return []
        for call in calls:
            call.whole = True
        self._known.discard(script.bundle.sha)  # Which may be what the server does not know.
        return calls

    def _refused(self, call: Call, error: Any) -> None:
        if not isinstance(error, ResponseError):  # Whatever it is, it is no Redis.
            call.fail(ResponseError(repr(error)), f"the server answered with {error!r}")
        elif isinstance(error, NoScriptError) and not call.whole:
            self._known.discard(call.script.sha)
            call.whole = True
            self._unsent[call] = None
            self.connection.wake()
        elif self._steering.redirected(call, error):
            pass
        elif is_passing(error):
            self._last_error = error
            self._resting.append(call)
            if isinstance(error, ReadOnlyError):
                self.connection.fail()  # Demoted: the next connection may reach the new primary.
        else:
            call.fail(error, in_words(error))

    def _notice_idle(self) -> None:
        if self._idle is not None and ((not self._sent and not self.pending) or self.connection.stopped):
            self._idle.set()
            self._idle = None


def _ignore(answer: Any) -> list[Call]:
    return []
