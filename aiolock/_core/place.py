"""A place in the queue of a name: one waiting task, and the tries that are made for it."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from time import monotonic
from typing import Any

from aiolock._backend import Call
from aiolock._core.owners import OwningTask
from aiolock._scripts import Want


class Place:
    """A place in the queue, held by one task."""

    # Invariant: the task awaits its turn; or it is `trying`, with a call of its own, or with one that was sent for it
    # or whose answer is valid for all (`_call`, until the task takes it). `woken` says that something has happened
    # since the last try.

    __slots__ = (
        "_call",
        "_ends",
        "_error",
        "_submit",
        "in_a_row",
        "number",
        "owner",
        "record",
        "served",
        "since",
        "told_long",
        "trying",
        "woken",
    )

    def __init__(
        self, owner: str, record: OwningTask, want: Want, submit: Callable[[], Call], ends: float | None
    ) -> None:
        self.owner: str = owner
        # The task that waits, and the number of permits for which it does.
        self.record: OwningTask = record
        self.number: int = want.amount[0] if want.amount else 1
        self.since: float = monotonic()
        # This function sends the acquire.
        self._submit = submit
        self.woken: asyncio.Event = asyncio.Event()
        # The number of hand-offs in a row, if the try was sent along with a release; 0 for a try of its own.
        self.in_a_row: int = 0
        # Whether the task was woken, and its try has no answer yet.
        self.trying: bool = False
        # Whether the acquire was granted.
        self.served: bool = False
        # Whether the warning about a long wait was given: see `long_wait`.
        self.told_long: bool = False
        # The end of the wait, on the monotonic clock.
        self._ends = ends
        self._call: Call | None = None
        self._error: Exception | None = None

    def comes_up(self) -> Coroutine[Any, Any, bool]:
        """Wait until the task is woken; returns ``False`` at the end of the wait."""
        # A wait without an end needs no coroutine of its own, which would take memory for each waiter.
        return self.woken.wait() if self._ends is None else self._comes_up_before(self._ends)

    async def _comes_up_before(self, ends: float) -> bool:
        if (left := ends - monotonic()) <= 0:
            return False
        with suppress(TimeoutError):
            async with asyncio.timeout(left):
                await self.woken.wait()
        return self.woken.is_set()

    def note_wake_up(self) -> None:
        """Note that the task goes on; raises the error that ends its wait, if there is one."""
        if self._error is not None:
            raise self._error
        self.woken.clear()

    def begin(self) -> Call | None:
        """Begin a try; returns the one that was sent along with a release for this place, which the caller must use."""
        self.trying = True
        call, self._call = self._call, None
        self.in_a_row = self.in_a_row if call is not None else 0
        return call

    def hand(self, in_a_row: int) -> bool:
        """Send a try for the task; returns ``False`` if the task is about to try itself."""
        tries = not self.trying and not self.woken.is_set()
        if tries:
            self._call = self._submit()
            self.in_a_row = in_a_row
        self.woken.set()
        return tries

    def answer(self, call: Call) -> None:
        """Use the answer to *call*, which another place sent, for this place, too, unless its task tries itself."""
        if not self.trying and self._call is None:
            self._call = call
            self.woken.set()

    def note_answer(self, granted: bool, *, exclusive: bool) -> None:
        """Note the answer to the try; after a grant of an *exclusive* lock, earlier wake-ups mean nothing any more."""
        self.trying = False
        self.served = granted
        if granted and exclusive:
            self.woken.clear()

    def fail(self, error: Exception) -> None:
        """End the wait with *error*."""
        self._error = error
        self.woken.set()
