"""
The cancellation of a body whose lock is lost.

A scope works like an `asyncio.timeout` whose deadline is the loss. It cancels once, so that the body can still await
its cleanup (a rollback); an anyio scope would cancel each await of the cleanup again. Cancellations and timeouts of the
user keep their meaning: `Task.cancelling` and `Task.uncancel` tell them from those of a scope.
"""

import asyncio
from contextvars import Context
from time import monotonic
from types import CodeType
from weakref import WeakSet

from aiolock._core.held import CLEANUP, Body
from aiolock._core.hold import BaseLease, Hold
from aiolock._core.owners import OwningTask
from aiolock._keys import LockKeys
from aiolock._types import quoted

# Seconds between two checks whether a body has finished its cleanup.
_LOOK_AGAIN = 0.05
# The tasks in which a scope has fired and not exited, of any client: the body of one may hold locks of several clients.
_unwinding: WeakSet[asyncio.Task[object]] = WeakSet()
# The identity of a frame, which does not keep the frame alive. A later frame with the same identity is a later call of
# the same code.
FrameId = tuple[int, CodeType]


class Scope(Body):
    """
    One `async with` in one task, from its enter to its exit.

    *entered_by* is ``None`` if the exit knows its lease. With *behind*, the exit does not wait for the answer to its
    release.
    """

    # Invariant: the open scopes of a task form a stack, `OwningTask.scopes`, and at most one of them has fired. While
    # its body unwinds, another cancellation would break into the cleanup: a lock that is lost meanwhile cancels its own
    # body when the fired scope exits.
    # If the user has cancelled the body, a scope fires only after CLEANUP seconds, counted from that cancellation. It
    # does fire then, because before Python 3.13 a failed task group leaves the count of cancellations too high.
    # Invariant: no scope keeps its task alive, so that Python can destroy a task without references.

    __slots__ = (
        *("behind", "fired", "hold", "lease", "left", "entered_by", "record"),
        *("_cancelled", "_cancelling", "_counted", "_due", "_next", "_seen", "_since"),
    )

    is_block = True

    def __init__(
        self, lease: BaseLease, record: OwningTask, cancelling: int, entered_by: FrameId | None, *, behind: bool
    ) -> None:
        self.lease: BaseLease = lease
        self.hold: Hold = lease._hold
        self.record: OwningTask = record
        self.entered_by: FrameId | None = entered_by
        self.behind: bool = behind
        self.fired: bool = False
        self.left: bool = False
        self._cancelled = False
        # The task's cancellations at the enter, when this fired, and at the last look.
        self._cancelling = self._counted = self._seen = cancelling
        # The time at which a look has found that their number had changed.
        self._since = 0.0
        # The latest time to fire, once the lock is lost.
        self._due: float | None = None
        # The call that cancels the body, or checks whether it is time to.
        self._next: asyncio.Handle | None = None

    @property
    def has_lost_its_task(self) -> bool:
        """Whether the task that entered it has ended, or was destroyed."""
        return self.record.is_over

    @property
    def is_settled(self) -> bool:
        return self.lease._is_settled

    @property
    def task(self) -> "asyncio.Task[object] | None":
        """The task that entered it, unless it was destroyed."""
        return self.record.task()

    def enter(self) -> None:
        """Open the scope, in the user's task."""
        self.lease._scoped = True
        self.record.scopes[self] = None
        self.hold.bodies.append(self)
        if self.hold.loss is not None:
            self.cancel_if_lost()

    def is_of(self, keys: LockKeys, owner: str) -> bool:
        """Whether this is a block of *owner* for the lock with these *keys*, or for its other half or kind."""
        return self.hold.keys.entry in (keys.entry, keys.other) and self.hold.owner == owner

    def is_by_handle_of(self, named: str | None, amount: tuple[int, ...]) -> bool:
        """Whether a handle for *amount*, of the owner *named* or of any task, entered it and has not left it."""
        if self.entered_by is None or self.left or self.hold.claim.want.amount != amount:
            return False
        return self.hold.claim.owner == (named or self.record.owner)

    def exit(self, error: BaseException | None) -> bool:
        """Close the scope; returns ``True`` if *error* is the scope's own cancellation."""
        self._end()
        self.record.scopes.pop(self, None)
        own = self._cancelled and (task := self.task) is not None and self._is_own(task, error)
        # Another lost block of the task may have waited for this one.
        if self.record.has_lost:
            self.cancel_if_lost()
        return own

    def note_may_be_left(self) -> None:
        """Note that this block may have been left, so that its lease must end with its task."""
        self.lease._note_may_be_left()

    def let_go(self) -> None:
        """Drop the block: its task closes the client, or has ended, so no body has to be cancelled or waited for."""
        self.lease._scoped = False
        self._end()

    def look(self, due: float) -> None:
        """
        Note when the count of cancellations last changed.

        The look was due at *due*: if the loop was blocked or the process paused since, the count did not change then.
        """
        task = self.task
        if task is not None and task.cancelling() != self._seen:
            self._seen, self._since = task.cancelling(), due

    def cancel_if_lost(self) -> None:
        """Cancel the outermost body of the task whose lock is lost, unless a scope of the task has fired already."""
        # A list: before Python 3.12 the collector may run in the middle of making a tuple, and leave a block.
        scopes = list(self.record.scopes)
        lost = [scope for scope in scopes if scope.hold.loss is not None and scope in scope.hold.bodies]
        self.record.has_lost = bool(lost)
        if lost and not any(scope.fired for scope in scopes) and (task := self.task) is not None:
            lost[0]._fire(task)

    def _is_own(self, task: asyncio.Task[object], error: BaseException | None) -> bool:
        """Whether *error* is the scope's own cancellation, not one of the user's; takes the cancellation back."""
        others = task.uncancel()
        if not isinstance(error, asyncio.CancelledError) or others > self._counted:
            return False
        return others <= self._cancelling or not _unwinds_a_cancellation(error)

    def _end(self) -> None:
        """Stop watching for a loss."""
        if self.fired and (task := self.task) is not None:
            _unwinding.discard(task)
        if self._next is not None:
            self._next.cancel()
        if self in self.hold.bodies:
            self.hold.bodies.remove(self)
            if self.hold.loss is not None:
                self.hold.notice_body_end()

    def _fire(self, task: asyncio.Task[object]) -> None:
        loop = asyncio.get_running_loop()
        if self._next is not None:
            self._next.cancel()
        if self._is_to_wait(task):
            self._next = loop.call_later(_LOOK_AGAIN, self.cancel_if_lost, context=Context())
        else:
            self.fired = True
            _unwinding.add(task)
            self._counted = task.cancelling()
            # In the next turn: the body may be in the running task.
            self._next = loop.call_soon(self._cancel, context=Context())

    def _is_to_wait(self, task: asyncio.Task[object]) -> bool:
        """Whether the body has time for a cleanup: after a loss of another client, or after a cancellation."""
        if task in _unwinding:
            return True
        self.look(monotonic())
        self._due = self._due or self.hold.patient_until or self._since + min(CLEANUP, self.lease.lease)
        return task.cancelling() > self._cancelling and monotonic() < self._due

    def _cancel(self) -> None:
        task = self.task
        if task is not None:
            self._cancelled = True
            # The message tells the reason if the body is in an async generator, and the task around it is cancelled.
            task.cancel(f"lock {quoted(self.hold.keys.name)} lost: {self.hold.loss}")


def _unwinds_a_cancellation(error: BaseException) -> bool:
    """Whether *error* was raised while another cancellation was on its way."""
    context = error.__context__
    # A task group that was cancelled raises an exception group: this cancellation is over.
    while context is not None and not isinstance(context, (asyncio.CancelledError, BaseExceptionGroup)):
        context = context.__context__
    return isinstance(context, asyncio.CancelledError)
