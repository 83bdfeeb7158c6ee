"""
What `async with` adds to a hold: its body is cancelled when the lock is lost.

A scope works like an `asyncio.timeout` whose deadline is the loss. It cancels once, so that the body's own cleanup (a
rollback) can still be awaited; an anyio scope would cancel every such await again. A cancellation or timeout of the
user's own keeps its meaning: `Task.cancelling` and `Task.uncancel` tell them apart.
"""

import asyncio
import contextlib
from contextvars import Context
from time import monotonic
from types import CodeType, FrameType

from aiolock._core.hold import CLEANUP, Grant, Hold
from aiolock._core.owners import OwningTask
from aiolock._keys import LockKeys

_LOOK_AGAIN = 0.05  # Seconds until the next look whether a body that unwinds is through.

# Where a block stands in a program: the frame and its code are the same when it is entered and when it is left. The
# frame of a method that only enters is gone by then; whatever has its address runs other code.
Place = tuple[int, CodeType]


def place_of(frame: FrameType) -> Place:
    """The place in *frame*, which enters or leaves a block."""
    return id(frame), frame.f_code


def is_stacked(place: Place | None) -> bool:
    """Whether that is in an exit stack of the standard library, which leaves a block in another frame."""
    return place is not None and place[1].co_filename == contextlib.__file__


class Scope:
    """One `async with` in one task, from its enter to its exit."""

    # Invariant: the open scopes of a task form a stack, `OwningTask.scopes`, and at most one of them has fired: while
    # one unwinds, cancelling again for another would break into cleanup. What is lost meanwhile fires at its exit.
    # Nor does one fire at once while a cancellation of the user's own unwinds. That has an end, and does not begin
    # with the loss: before Python 3.13 a task group that failed leaves the count of cancellations raised for good.
    # Invariant: no scope keeps its task alive, so that one that nobody refers to any more can be told from one that
    # waits.

    __slots__ = (
        *("fired", "hold", "lease", "left", "place", "record"),
        *("_cancelled", "_cancelling", "_counted", "_due", "_next", "_seen", "_since"),
    )

    def __init__(self, lease: Grant, record: OwningTask, cancelling: int, place: Place | None) -> None:
        self.lease: Grant = lease
        self.hold: Hold = lease._hold
        self.record: OwningTask = record  # Of the task that enters it.
        self.place: Place | None = place  # None when it need not be found by that.
        self.fired: bool = False
        self.left: bool = False
        self._cancelled = False  # Once fired, in the next turn of the loop.
        self._cancelling = self._counted = cancelling  # At the enter, and when it fired.
        self._seen, self._since = self._cancelling, 0.0  # The count at the last look, and when it was first seen.
        self._due: float | None = None  # When to fire at last; None until the lock is lost.
        self._next: asyncio.Handle | None = None  # The cancellation, or another look whether it is time for it.

    @property
    def forsaken(self) -> bool:
        """Whether its task is no more, though it never ended: nobody referred to it."""
        return self.task is None and not self.record.ended

    @property
    def has_lost_its_task(self) -> bool:
        """Whether whoever entered it is no more."""
        return self.record.ended or self.task is None

    @property
    def is_settled(self) -> bool:
        """Whether nothing of it is to be given back any more."""
        return self.lease.given_back or (self.hold.ended and self.has_lost_its_task)

    @property
    def task(self) -> "asyncio.Task[object] | None":
        """Who entered it, if it still is."""
        return self.record.task()

    def enter(self) -> None:
        """Open the scope, in the user's task."""
        self.lease._scoped = True
        self.record.scopes.append(self)
        self.hold.bodies.append(self)
        if self.hold.loss is not None:
            self.lost()

    def is_of(self, keys: LockKeys, owner: str) -> bool:
        """Whether it is a block of that lock and that owner."""
        return self.hold.keys.entry == keys.entry and self.hold.owner == owner

    def exit(self, error: BaseException | None) -> bool:
        """Close the scope, which *error* leaves; ``True`` when it was its own cancellation that ended the body."""
        self._end()
        if self in self.record.scopes:
            self.record.scopes.remove(self)
        own = self._cancelled and (task := self.task) is not None and self._is_own(task, error)
        self.lost()
        return own

    def let_go(self) -> None:
        """Its task closes the client, or is no more: nobody is told of a loss, nor is there a body to wait for."""
        self.lease._scoped = False
        self._end()

    def look(self, due: float) -> None:
        """
        Note since when the count of cancellations is what it is.

        If the loop was blocked, or the process paused, since the look was *due*, nothing changed in the meantime.
        """
        task = self.task
        if task is not None and task.cancelling() != self._seen:
            self._seen, self._since = task.cancelling(), due

    def lost(self) -> None:
        """Cancel the outermost body of the task whose lock is lost, unless one is unwinding already."""
        scopes = self.record.scopes
        lost = [scope for scope in scopes if scope.hold.loss is not None and scope in scope.hold.bodies]
        if lost and not any(scope.fired for scope in scopes) and (task := self.task) is not None:
            lost[0]._fire(task)

    def _is_own(self, task: asyncio.Task[object], error: BaseException | None) -> bool:
        """Whether *error* is the scope's cancellation, which is taken back, and not one of the user's own."""
        others = task.uncancel()
        if not isinstance(error, asyncio.CancelledError) or others > self._counted:
            return False
        return others <= self._cancelling or not _unwinds_a_cancellation(error)

    def _end(self) -> None:
        """It is not cancelled any more."""
        if self._next is not None:
            self._next.cancel()
        if self in self.hold.bodies:
            self.hold.bodies.remove(self)

    def _fire(self, task: asyncio.Task[object]) -> None:
        loop = asyncio.get_running_loop()
        self.look(monotonic())
        self._due = self._due or self.hold.patient_until or self._since + min(CLEANUP, self.lease.lease)
        if self._next is not None:
            self._next.cancel()
        if task.cancelling() > self._cancelling and monotonic() < self._due:
            self._next = loop.call_later(_LOOK_AGAIN, self.lost, context=Context())
        else:
            self.fired = True
            self._counted = task.cancelling()
            self._next = loop.call_soon(self._cancel, context=Context())  # Not now: it may be the task that runs.

    def _cancel(self) -> None:
        task = self.task
        if task is not None:
            self._cancelled = True
            # Whoever is cancelled in place of the body, around an async generator say, learns at least why.
            task.cancel(f"lock {self.hold.keys.name!r} lost: {self.hold.loss}")


def _unwinds_a_cancellation(error: BaseException) -> bool:
    """Whether *error* came while another cancellation was on its way."""
    context = error.__context__
    # A task group that failed raises a group in place of the cancellation that it came by: that one is over.
    while context is not None and not isinstance(context, (asyncio.CancelledError, BaseExceptionGroup)):
        context = context.__context__
    return isinstance(context, asyncio.CancelledError)
