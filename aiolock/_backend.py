"""
The seam between `_core` and `_redis`: the interface by which locks send scripts to Redis.

`_redis` has the backends that speak to servers; `aiolock.testing` wraps a backend to add faults. The code that submits
a script need not know which backend it has.
"""

import asyncio
from collections.abc import Callable, Generator, Sized
from itertools import count
from time import monotonic
from typing import Any, Generic, Protocol, cast

from aiolock._errors import BackendError
from aiolock._scripts import Script
from aiolock._scripts.replies import A
from aiolock._types import ClientStatistics, quoted

Argument = str | int | bytes
_ENDS = count(1)


class Delivery(Protocol):
    """The copies of one call that were sent to several servers, and what became of them."""

    @property
    def is_settled(self) -> bool:
        """Whether every copy was answered or never sent, so that none can arrive any more."""

    def when_settled(self, tell: Callable[[], object]) -> None:
        """Call *tell* as soon as `is_settled` is true; never if a copy stays unanswered."""

    def withdraw_from(self, server: object) -> bool:
        """Cancel the copy to *server*; ``False`` if it may have arrived, or may still arrive."""


class Call(Generic[A]):
    """
    A call of a script, which one task may await.

    The task gets an error at *deadline*. After failures the call is sent again until then, or until *resend_until* if
    that is later (both on the monotonic clock). *trouble* is the last error that prevented an answer. If the call is
    *repeated*, a failure came after a sending: that copy may still arrive. *hops* counts the redirections so far, from
    servers that do not own the slot. If the slot is being moved, the next server needs *asking*. A *whole* call must go
    alone and with its source, because its digest, or the one command of several calls, was refused.

    *arrival* is what the connection's reader awaits, if the next data should bring the reply: the call's task awaits it
    as well, and goes on in the same turn of the loop as the reader.

    *undoes* is the delivery of the acquire that this call undoes. *number* is the place of this call in the order in
    which all calls ended.
    """

    __slots__ = (
        *("answer", "args", "arrival", "asking", "deadline", "delivery", "ended", "error", "hops", "keys", "number"),
        *("repeated", "resend_until", "script", "sent", "short", "trouble", "undoes", "whole", "__weakref__"),
        *("_tell", "_waiter"),
    )

    # Set when the call has ended; `None` if it failed.
    answer: A | None

    def __init__(
        self,
        script: Script[A],
        keys: tuple[str, ...],
        args: tuple[Argument, ...],
        deadline: float,
        resend_until: float = 0.0,
    ) -> None:
        self.script = script
        self.keys = keys
        self.args: tuple[Argument, ...] = args
        self.deadline: float = deadline
        self.resend_until: float = resend_until if resend_until > deadline else deadline
        self.hops = 0
        self.asking = self.whole = False
        # The time of the last sending, which is the one that was answered; zero if no sending can have had an effect.
        # With several servers it is set at the end.
        self.sent: float = 0.0
        self.repeated = False
        # If too few replicas acknowledged the call: their number, and the number wanted.
        self.short: tuple[int, int] | None = None
        self.delivery: Delivery | None = None
        self.undoes: Delivery | None = None
        self.ended: bool = False
        self.number: int = 0
        self.error: BackendError | None = None
        self.trouble: Exception | None = None
        self.arrival: asyncio.Future[Any] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._tell: list[Callable[[Call[A]], object]] | None = None

    @property
    def is_settled(self) -> bool:
        """Whether no copy of the answered call can arrive any more."""
        return not self.repeated and (self.delivery is None or self.delivery.is_settled)

    def when_settled(self, tell: Callable[[], object]) -> None:
        """Call *tell* once no copy of the answered call can arrive any more; never if that cannot be known."""
        if self.repeated:
            return
        if self.delivery is None:
            tell()
        else:
            self.delivery.when_settled(tell)

    def fail_within(self, seconds: float) -> None:
        """Move the deadline to *seconds* from now, because of an outage. Releases keep their later `resend_until`."""
        sooner = min(self.deadline, monotonic() + seconds)
        if self.resend_until <= self.deadline:
            self.resend_until = sooner
        self.deadline = sooner

    def __await__(self) -> Generator[Any, None, A]:
        if self.arrival is not None:
            yield from self._until_arrival(self.arrival)
        if not self.ended:
            self._waiter = asyncio.Future()
            yield from self._waiter
        if self.error is not None:
            try:
                raise self.error
            finally:
                # The call refers to the error, whose traceback refers to this frame: that cycle would keep all three.
                del self
        return cast("A", self.answer)

    def _until_arrival(self, arrival: asyncio.Future[Any]) -> Generator[Any, None, None]:
        """Wait until the connection has read something, which need not answer this call, or until the call ends."""
        task = asyncio.current_task()
        # A task that has been cancelled before could not tell whose cancellation it meets here.
        if task is None or task.cancelling():
            return
        try:
            yield from arrival
        except asyncio.CancelledError:
            if task.cancelling():
                raise
        except Exception as error:
            # The reader reports the error, and keeps it; its traceback would keep this task.
            error.__traceback__ = None

    def when_ended(self, tell: Callable[["Call[A]"], object]) -> None:
        """Call *tell* when the call ends, even if nothing awaits it; at once if it has ended."""
        if self.ended:
            tell(self)
        elif self._tell is None:
            self._tell = [tell]
        else:
            self._tell.append(tell)

    def tell_nobody(self) -> None:
        """Drop the callbacks of `when_ended`."""
        self._tell = None

    def end(self, answer: A | None, error: BackendError | None = None) -> None:
        """End the call with its *answer* or *error*; a second end is ignored."""
        if self.ended:
            return
        self.ended, self.number = True, next(_ENDS)
        self.answer, self.error = answer, error
        # A waiter that is done was cancelled: its task undoes what the server did.
        if self._waiter is not None:
            if not self._waiter.done():
                self._waiter.set_result(None)
        elif self.arrival is not None:
            # If no data have arrived, this wakes the task.
            self.arrival.cancel()
        if (listeners := self._tell) is not None:
            # A callback that refers to the call would keep both alive until the garbage collector finds the cycle.
            self._tell = None
            for tell in listeners:
                tell(self)

    @property
    def what(self) -> str:
        """What the call does, and for which lock, for people; a probe is for none."""
        name = self.script.name
        return name if self.script.probe or not self.keys else f"{name} of {quoted(self.keys[0])}"

    def note(self, trouble: Exception) -> None:
        """Note the *trouble* of this attempt: a refusal by the server, or an error of the connection."""
        self.trouble = trouble

    def fail(self, cause: Exception, why: str) -> None:
        """End the call with a `BackendError` whose cause is *cause*."""
        if not self.ended:
            self.note(cause)
        error = BackendError(f"{self.what} failed: {why}")
        error.__cause__ = cause
        self.end(None, error)

    def arguments(self, publish: str) -> tuple[Argument, ...]:
        """All arguments after the keys; *publish* is the command for unlock messages on this server."""
        return (*self.args, publish) if self.script.publishes else self.args


class Client:
    """The user of a backend; this one keeps no locks."""

    waiting: Sized = ()
    """Not empty while a task waits for a lock: a release may have that task's acquire sent along in the same turn."""

    def check_holds(self, had: Callable[[str], bool]) -> None:
        """Check the locks on a server that may have lost them; *had* tells whether a key was on that server."""

    def is_in_use(self) -> bool:
        """Whether a task holds a lock that it has yet to release: then more commands will come."""
        return False


class Notifier(Protocol):
    """Passes on messages of channels; each channel has watchers, which are queues of waiters."""

    @property
    def subscriptions(self) -> int:
        """Channels that are subscribed to, or are about to be."""

    def watches(self, name: str) -> bool:
        """Whether channel *name* is subscribed to, or is about to be."""

    def confirmed(self, name: str) -> bool:
        """Whether the server has confirmed the subscription to channel *name*, so that its messages arrive here."""

    def watch(self, name: str, signal: Callable[[bool], None]) -> None:
        """
        Call *signal* with ``True`` for every message of channel *name*.

        It is called with ``False`` whenever messages may have been missed: first when the subscription is confirmed. A
        waiter that asks the server again then misses nothing.
        """

    def unwatch(self, name: str, signal: Callable[[bool], None]) -> None:
        """Stop calling *signal* for channel *name*."""


class Backend(Protocol):
    """Sends scripts, and passes on the messages that they publish."""

    @property
    def notifier(self) -> Notifier:
        """The receiver of unlock messages."""

    @property
    def apart(self) -> bool:
        """Whether two locks may be on different servers, so that no script may have the keys of both."""

    def submit(self, call: Call) -> None:
        """
        Send *call*, after the calls that were submitted before it unless its script is urgent.

        After a failure it is sent again, until its time limit.
        """

    def prepare(self, keys: tuple[str, ...]) -> None:
        """Connect now, because an urgent call with *keys* will follow; that call need not wait for the connection."""

    def withdraw(self, call: Call) -> bool:
        """Do not send *call*, which nothing awaits any more; returns ``False`` if it has been sent."""

    def statistics(self) -> ClientStatistics:
        """The present numbers, and totals so far."""

    async def drained(self) -> None:
        """Wait until no call is pending. Raises `BackendError` if no more answers will come."""

    async def aclose(self) -> None:
        """Close the connections; pending calls fail."""
