"""
The seam between the wings: what waiting for a lock needs of Redis, and a script on its way there and back.

`_redis` has the backends that speak to servers; `aiolock.testing` puts its faults around one. Whoever submits a script
need not know which it is.
"""

import asyncio
from collections.abc import Callable, Generator
from dataclasses import dataclass
from time import monotonic
from typing import Any, Protocol

from aiolock._errors import BackendError
from aiolock._scripts import Script

Argument = str | int | bytes
Reply = list[Any]


class Call:
    """
    A script on its way, to be awaited by one task.

    It fails for its caller at *deadline*; after failures it is sent until then, or until *until* if that is later (both
    on the monotonic clock).
    """

    __slots__ = (
        *("args", "asking", "deadline", "ended", "error", "hops", "keys", "repeated", "reply", "script", "sent"),
        *("short", "until", "whole", "_tell", "_waiter"),
    )

    reply: Reply  # Once it has ended; empty if it failed.

    def __init__(
        self,
        script: Script,
        keys: tuple[str, ...],
        args: tuple[Argument, ...],
        deadline: float,
        until: float = 0.0,
    ) -> None:
        self.script = script
        self.keys = keys
        self.args: tuple[Argument, ...] = args
        self.deadline: float = deadline
        self.until: float = until if until > deadline else deadline
        self.hops = 0  # From server to server, of those that said that another owns the slot.
        self.asking = False  # The slot is on its way to the server that this goes to, which must be told so.
        self.whole = False  # Send it by itself, and the source: its digest, or its bundle, was refused.
        self.sent: float = 0.0  # When it was sent last; that sending is the one answered.
        self.repeated = False  # Sent again after a failure: an earlier copy may still arrive.
        self.short: tuple[int, int] | None = None  # Replicas that acknowledged, and how many were wanted: too few.
        self.ended: bool = False
        self.error: BackendError | None = None
        self._waiter: asyncio.Future[Reply] | None = None
        self._tell: Callable[[Call], object] | None = None

    def fail_within(self, seconds: float) -> None:
        """There is little hope: its caller is told sooner. What is to be freed by it is tried for as long as ever."""
        sooner = min(self.deadline, monotonic() + seconds)
        if self.until <= self.deadline:
            self.until = sooner
        self.deadline = sooner

    def __await__(self) -> Generator[Any, None, Reply]:
        waiter: asyncio.Future[Reply] = asyncio.Future()
        self._waiter = waiter
        if self.error is not None:
            waiter.set_exception(self.error)
        elif self.ended:
            waiter.set_result(self.reply)
        return waiter.__await__()

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
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            if error is None:
                waiter.set_result(reply)
            else:
                waiter.set_exception(error)
        if self._tell is not None:
            self._tell(self)

    def fail(self, cause: BaseException, why: str) -> None:
        """The call ends with a `BackendError` that has *cause*."""
        error = BackendError(f"{self.script.name} failed: {why}")
        error.__cause__ = cause
        self.end([], error)

    def arguments(self, publish: str) -> tuple[Argument, ...]:
        """All that it is sent with behind the keys; *publish* is what the server's unlock messages are sent with."""
        return (*self.args, publish) if self.script.publishes else self.args


class Client(Protocol):
    """Who uses a backend."""

    def doubt(self, had: Callable[[str], bool]) -> None:
        """A server may have forgotten its locks; *had* says of a key whether it was that server's."""

    def is_in_use(self) -> bool:
        """Whether something is held by a task that is yet to release it: then there will be commands."""


@dataclass(frozen=True, slots=True)
class BackendStatistics:
    """What a backend does now, and has sent so far; as in `ClientStatistics`."""

    pending: int
    connections: int
    commands: int
    batches: int


class Notifier(Protocol):
    """Pushes what is published on channels; each has watchers, which are queues of waiters."""

    @property
    def subscriptions(self) -> int:
        """Channels subscribed to, or about to be."""

    def watches(self, name: str) -> bool:
        """Whether channel *name* is subscribed to, or about to be."""

    def confirmed(self, name: str) -> bool:
        """Whether messages of channel *name* arrive here."""

    def watch(self, name: str, signal: Callable[[bool], None]) -> None:
        """
        Call *signal* with ``True`` for every message of channel *name*.

        It is called with ``False`` whenever messages may have been missed: for the first time as soon as the
        subscription stands, so that who then looks again misses nothing.
        """

    def unwatch(self, name: str, signal: Callable[[bool], None]) -> None:
        """Do not call *signal* for channel *name* any more."""


class Backend(Protocol):
    """Sends scripts, and pushes what they publish."""

    @property
    def notifier(self) -> Notifier:
        """Where unlock messages arrive."""

    @property
    def apart(self) -> bool:
        """Whether two locks may be on two servers, so that no script may have the keys of both."""

    def submit(self, call: Call) -> None:
        """
        Send *call*, after what was submitted before if its script is not urgent.

        After a failure it is sent again, until the time that it says.
        """

    def withdraw(self, call: Call) -> bool:
        """Do not send *call*, which nobody awaits any more; ``False`` if it has been sent."""

    def statistics(self) -> BackendStatistics:
        """What it does now, and has sent so far."""

    async def drained(self) -> None:
        """Wait until no call is pending. Raises `BackendError` when there will be no more answers."""

    async def aclose(self) -> None:
        """Close the connections; what is pending fails."""
