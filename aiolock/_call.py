"""A script on its way to the server, and the waiting for its answer."""

import asyncio
from collections.abc import Callable, Generator
from typing import Any

from aiolock._errors import BackendError
from aiolock._scripts import Script

Argument = str | int
Reply = list[Any]


class Call:
    """
    A script on its way, to be awaited by one task.

    *deadline* is when the caller is told `BackendError`; *until*, when the call is no longer sent (monotonic clock).
    Nothing queues before an *urgent* one.
    """

    __slots__ = (
        *("args", "deadline", "keys", "script", "until", "urgent"),
        *(
            "asking",
            "hops",
            "ended",
            "error",
            "repeated",
            "reply",
            "sent",
            "short",
            "whole",
            "_loop",
            "_tell",
            "_waiter",
        ),
    )

    reply: Reply  # Once it has ended; empty if it failed.

    def __init__(
        self,
        script: Script,
        keys: tuple[str, ...],
        args: tuple[Argument, ...],
        *,
        deadline: float,
        until: float,
        loop: asyncio.AbstractEventLoop,
        urgent: bool = False,
    ) -> None:
        self.script = script
        self.keys = keys
        self.args = args
        self.deadline = deadline
        self.until = until
        self.urgent = urgent
        self.hops = 0  # From server to server, of those that said that another owns the slot.
        self.asking = False  # The slot is on its way to the server that this goes to, which must be told so.
        self.whole = False  # Send the source: the server does not know the digest.
        self.sent: float = 0.0  # When it was sent last; that sending is the one answered.
        self.repeated = False  # Sent again after a failure: an earlier copy may still arrive.
        self.short: tuple[int, int] | None = None  # Replicas that acknowledged, and how many were wanted: too few.
        self.ended: bool = False
        self.error: BackendError | None = None
        self._loop = loop
        self._waiter: asyncio.Future[Reply] | None = None
        self._tell: Callable[[Call], object] | None = None

    @property
    def may_fail_soon(self) -> bool:
        """Whether nothing is to be freed or kept by it: then it need not be tried while there is no hope."""
        return not self.urgent and self.until <= self.deadline

    def __await__(self) -> Generator[Any, None, Reply]:
        self._waiter = self._loop.create_future()
        if self.ended:
            self._wake(self._waiter)
        return self._waiter.__await__()

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
            self._wake(self._waiter)
        if self._tell is not None:
            self._tell(self)

    def _wake(self, waiter: asyncio.Future[Reply]) -> None:
        if self.error is None:
            waiter.set_result(self.reply)
        else:
            waiter.set_exception(self.error)

    def fail(self, cause: BaseException, why: str) -> None:
        """The call ends with a `BackendError` that has *cause*."""
        error = BackendError(f"{self.script.name} failed: {why}")
        error.__cause__ = cause
        self.end([], error)

    def command(self, publish: str) -> tuple[Any, ...]:
        """The call as a Redis command; *publish* is what the server's unlock messages are sent with."""
        how = ("EVAL", self.script.source) if self.whole else ("EVALSHA", self.script.sha)
        tail = (publish,) if self.script.publishes else ()
        return (*how, len(self.keys), *self.keys, *self.args, *tail)
