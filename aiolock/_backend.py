"""
`Backend.submit` sends a script and gives a `Call` to wait for; the topology behind it is hidden here.

Rules:
1. A command is never cancelled, only the waiting for it; it goes on without its caller. One that has not left yet may
   be withdrawn.
2. A call whose connection failed is sent again until its deadline: every script may be sent twice.
3. Calls submitted in one tick of the loop leave as one batch, or in full ones if they are many. Renewals have a
   connection of their own.
"""

import asyncio
import os
from collections import OrderedDict, deque
from collections.abc import Callable, Generator
from ssl import SSLCertVerificationError
from time import monotonic
from typing import Any, Protocol

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    ClusterDownError,
    MasterDownError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)

from aiolock._errors import BackendError
from aiolock._link import Link
from aiolock._scripts import Script
from aiolock._wire import Command, UnsupportedConnectionError

Argument = str | int
Reply = list[Any]

# The server cannot serve the call now and may be able to in a moment.
_PASSING = (ClusterDownError, MasterDownError, OutOfMemoryError, ReadOnlyError, TryAgainError)
# The same, of errors for which redis-py has no class, or had none in 5.0.
_PASSING_CODES = ("BUSY ", "MASTERDOWN ", "MISCONF ", "NOREPLICAS ")
# The server turned the connection down, or we its certificate, or it is none of ours; and so it will be again.
_FINAL = (
    *(AuthenticationError, AuthorizationError, ResponseError),
    *(SSLCertVerificationError, UnsupportedConnectionError),
)
_PULSE = 0.05


class Call:
    """
    A script on its way, to be awaited by one task.

    *deadline* is when the caller is told `BackendError`; *until*, when the call is no longer sent (monotonic clock).
    """

    __slots__ = (
        *("args", "keys", "script", "deadline", "until"),
        *("ended", "error", "repeated", "reply", "sent", "whole", "_tell", "_waiter"),
    )

    def __init__(
        self, script: Script, keys: tuple[str, ...], args: tuple[Argument, ...], deadline: float, until: float
    ) -> None:
        self.script = script
        self.keys = keys
        self.args = args
        self.deadline = deadline
        self.until = until
        self.whole = False  # Send the source: the server does not know the digest.
        self.sent: float = 0.0  # When it was sent last; that sending is the one answered.
        self.repeated = False  # Sent again after a failure: an earlier copy may still arrive.
        self.ended: bool = False
        self.reply: Reply = []
        self.error: BackendError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._tell: Callable[[Call], object] | None = None

    def __await__(self) -> Generator[Any, None, Reply]:
        if not self.ended:
            self._waiter = asyncio.get_running_loop().create_future()
            yield from self._waiter.__await__()
        if self.error is not None:
            raise self.error
        return self.reply

    def when_ended(self, tell: Callable[["Call"], object]) -> None:
        """Call *tell* when the call ends, whether or not anybody awaits it; at once if it has ended."""
        self._tell = tell
        if self.ended:
            tell(self)

    def end(self, reply: Reply, error: BackendError | None = None) -> None:
        """The call has its reply or has failed; what comes after the first time is ignored."""
        if self.ended:
            return
        self.ended = True
        self.reply, self.error = reply, error
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        if self._tell is not None:
            self._tell(self)

    def fail(self, cause: BaseException, why: str) -> None:
        """The call ends with a `BackendError` that has *cause*."""
        error = BackendError(f"{self.script.name} failed: {why}")
        error.__cause__ = cause
        self.end([], error)

    def command(self) -> Command:
        """The call as a Redis command."""
        how = ("EVAL", self.script.source) if self.whole else ("EVALSHA", self.script.sha)
        return (*how, len(self.keys), *self.keys, *self.args)


class Backend(Protocol):
    """What the floors above need of Redis."""

    publish: str
    """The command that the scripts publish with."""

    @property
    def pending(self) -> int:
        """Calls that wait for their reply."""

    @property
    def connections(self) -> int:
        """Connections open now."""

    @property
    def batches(self) -> int:
        """Writes so far."""

    @property
    def commands(self) -> int:
        """Script calls written so far."""

    def submit(
        self,
        script: Script,
        keys: tuple[str, ...],
        *args: Argument,
        patience: float | None = None,
        until: float = 0.0,
        urgent: bool = False,
    ) -> Call:
        """
        Send *script*; the call fails for its caller after *patience* seconds (the command timeout if ``None``).

        It is sent again after failures until then, or until *until* (monotonic clock) if that is later.
        Nothing queues before an *urgent* call.
        """

    def withdraw(self, call: Call) -> bool:
        """Do not send *call*, which nobody awaits any more; ``False`` if it has been sent."""

    async def drained(self) -> None:
        """Wait until no call is pending."""

    async def aclose(self) -> None:
        """Close the connections; what is pending fails."""


class RedisBackend:
    """One server: a connection for everything, and one for what is urgent."""

    publish = "PUBLISH"

    def __init__(
        self, connect: Callable[[], AbstractConnection], *, command_timeout: float, renew_interval: float
    ) -> None:
        self._command_timeout = command_timeout
        self._process = os.getpid()
        # Three attempts within a command's time, two within the time from one renewal to the next.
        patience = command_timeout / 3
        self._ordinary = _Lane(connect, patience)
        self._urgent = _Lane(connect, min(patience, renew_interval / 2), ordered=False)
        self._lanes = (self._ordinary, self._urgent)

    @property
    def pending(self) -> int:
        return sum(lane.pending for lane in self._lanes)

    @property
    def connections(self) -> int:
        return sum(lane.link.connected for lane in self._lanes)

    @property
    def batches(self) -> int:
        return sum(lane.link.batches for lane in self._lanes)

    @property
    def commands(self) -> int:
        return sum(lane.link.commands for lane in self._lanes)

    def submit(
        self,
        script: Script,
        keys: tuple[str, ...],
        *args: Argument,
        patience: float | None = None,
        until: float = 0.0,
        urgent: bool = False,
    ) -> Call:
        deadline = monotonic() + (self._command_timeout if patience is None else patience)
        call = Call(script, keys, args, deadline, max(deadline, until))
        if os.getpid() != self._process:  # A forked child must not speak on its parent's connections.
            call.fail(RuntimeError("forked"), "this is not the process that connected")
            return call
        (self._urgent if urgent else self._ordinary).submit(call)
        return call

    def withdraw(self, call: Call) -> bool:
        return any(lane.withdraw(call) for lane in self._lanes)

    async def drained(self) -> None:
        for lane in self._lanes:
            await lane.drained()

    async def aclose(self) -> None:
        for lane in self._lanes:
            await lane.aclose()


class _Lane:
    """The calls that share one connection, in the order in which they were submitted."""

    # Invariant: a call that has not ended, or is still to be sent, is in exactly one of the three; `_sent` has one
    # entry for every reply that the connection owes, in order.

    def __init__(self, connect: Callable[[], AbstractConnection], patience: float, *, ordered: bool = True) -> None:
        self._patience = patience
        self._ordered = ordered  # What is sent again goes in the order in which it was submitted.
        self._unsent: OrderedDict[Call, None] = OrderedDict()  # Ordered, and quick to take a call from.
        self._sent: deque[Call] = deque()
        self._resting: list[Call] = []  # Refused for the moment; sent again at the next tick.
        self._known: set[str] = set()  # Digests of the scripts sent whole on this connection.
        self._idle = asyncio.Event()
        self._closed = False
        self._last_error: BaseException = TimeoutError("no connection could be made in time")
        self.link = Link(self, connect, patience=patience, pulse=min(_PULSE, patience / 4))

    @property
    def pending(self) -> int:
        return len(self._unsent) + len(self._sent) + len(self._resting)

    def submit(self, call: Call) -> None:
        if self._closed:
            call.fail(self._last_error, "the client was closed")
            return
        self._unsent[call] = None
        self.link.wake()

    def withdraw(self, call: Call) -> bool:
        if call.sent or call not in self._unsent:
            return False
        del self._unsent[call]
        self._notice_idle()
        return True

    async def drained(self) -> None:
        while self.pending:
            self._idle.clear()
            await self._idle.wait()

    async def aclose(self) -> None:
        self._closed = True
        for call in (*self._sent, *self._unsent, *self._resting):
            call.fail(self._last_error, "the client was closed")
        await self.link.aclose()

    # What the link asks for.

    def busy(self) -> bool:
        return self.pending > 0

    def opened(self) -> None:
        self._known.clear()  # Another server may have answered.

    def waiting(self) -> int:
        return len(self._unsent)

    def outgoing(self) -> list[Command]:
        batch = list(self._unsent)
        self._unsent.clear()
        self._sent.extend(batch)
        now = monotonic()
        for call in batch:
            call.sent = now
            # Sent whole once, a script is known to whatever follows on the same connection.
            call.whole = call.whole or call.script.sha not in self._known
            self._known.add(call.script.sha)
        return [call.command() for call in batch]

    def received(self, frame: Any) -> None:
        call = self._sent.popleft()
        if isinstance(frame, ResponseError):
            self._refused(call, frame)
        elif isinstance(frame, list):
            call.end(frame)
        else:  # Whatever it is, it is no Redis.
            call.fail(ResponseError(repr(frame)), f"the server answered with {frame!r}")
        self._notice_idle()

    def broken(self, error: Exception) -> None:
        if isinstance(error.__context__, SSLCertVerificationError):  # redis-py 5.0 says nothing of it.
            error = error.__context__
        if not isinstance(error, TimeoutError):
            self._last_error = error
        for call in reversed(self._sent):
            call.repeated = True
            self._unsent[call] = None
            self._unsent.move_to_end(call, last=False)
        if self._sent and not self._ordered:
            self._unsent.move_to_end(self._sent[0])  # The first that got no answer may be what breaks the connection.
        self._sent.clear()
        if isinstance(error, _FINAL) and not isinstance(error, _PASSING):
            while self._unsent:
                self._unsent.popitem(last=False)[0].fail(error, str(error))
        self.tick(monotonic())

    def tick(self, now: float) -> None:
        self._unsent.update(dict.fromkeys(self._resting))
        self._resting.clear()
        for call in (*self._sent, *self._unsent):
            if now >= call.deadline:
                call.fail(self._last_error, f"no answer in time ({self._last_error})")
        # A call that was written keeps its place, for the reply that is owed; any other is forgotten in time.
        self._unsent = OrderedDict.fromkeys(call for call in self._unsent if now < call.until)
        self._notice_idle()
        if self._sent and now >= self._sent[0].sent + self._patience:
            self._last_error = TimeoutError(f"no reply within {self._patience:.3g} s")
            self.link.fail()
        elif self._unsent:
            self.link.wake()

    def _refused(self, call: Call, error: ResponseError) -> None:
        if isinstance(error, NoScriptError) and not call.whole:
            self._known.discard(call.script.sha)
            call.whole = True
            self._unsent[call] = None
            self.link.wake()
        elif isinstance(error, _PASSING) or str(error).startswith(_PASSING_CODES):
            self._last_error = error
            self._resting.append(call)
            if isinstance(error, ReadOnlyError):
                self.link.fail()  # Demoted: the next connection may reach the new primary.
        else:
            hint = " (the server wants a password)" if "unauthenticated" in str(error) else ""
            call.fail(error, f"{error}{hint}")

    def _notice_idle(self) -> None:
        if not self._sent and not self.pending:
            self._idle.set()
