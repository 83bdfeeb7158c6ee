"""
What `async with` adds to a hold: its body is cancelled when the lock is lost.

A scope works like an `asyncio.timeout` whose deadline is the loss. It cancels once, so that the body's own cleanup (a
rollback) can still be awaited; an anyio scope would cancel every such await again. A cancellation or timeout of the
user's own keeps its meaning: `Task.cancelling` and `Task.uncancel` tell them apart.
"""

import asyncio
from contextvars import Context
from time import monotonic

from aiolock._lease import Lease

# Seconds that a body which is unwinding by a cancellation of the user's own has for its cleanup when the lock is lost
# (`Hold.patient_until` when its client is being closed), and how often to look whether it is through.
_CLEANUP, _LOOK_AGAIN = 0.5, 0.05

Stacks = dict["asyncio.Task[object]", list["Scope"]]


class Scope:
    """One `async with` in one task, from its enter to its exit."""

    # Invariant: the open scopes of a task form a stack, outermost first, and at most one of them has fired: while
    # one unwinds, cancelling again for another would break into cleanup. What is lost meanwhile fires at its exit.
    # Nor does one fire at once while a cancellation of the user's own unwinds. That has an end: before Python 3.13 a
    # task group that failed leaves the count of cancellations raised for good.

    __slots__ = (
        *("fired", "hold", "lease"),
        *("_cancelled", "_cancelling", "_counted", "_due", "_next", "_stacks", "_task"),
    )

    def __init__(self, lease: Lease, task: asyncio.Task[object], stacks: Stacks) -> None:
        self.lease = lease
        self.hold = lease._hold
        self.fired = False
        self._cancelled = False  # Once fired, in the next turn of the loop.
        self._task = task
        self._stacks = stacks
        self._cancelling = self._counted = task.cancelling()  # At the enter, and when it fired.
        self._due: float | None = None  # When to fire at last; None until the lock is lost.
        self._next: asyncio.Handle | None = None  # The cancellation, or another look whether it is time for it.

    def enter(self) -> Lease:
        """Open the scope, in the user's task."""
        self.lease._scoped = True
        self._stacks.setdefault(self._task, []).append(self)
        self.hold.on_loss.append(self._fire_lost)
        if self.hold.loss is not None:
            self._fire_lost()
        return self.lease

    def exit(self, error: BaseException | None) -> bool:
        """Close the scope, which *error* leaves; ``True`` when it was its own cancellation that ended the body."""
        self._close()
        own = self._cancelled and self._is_own(error)
        self._fire_lost()
        return own

    def _is_own(self, error: BaseException | None) -> bool:
        """Whether *error* is the scope's cancellation, which is taken back, and not one of the user's own."""
        others = self._task.uncancel()
        if not isinstance(error, asyncio.CancelledError) or others > self._counted:
            return False
        return others <= self._cancelling or not _unwinds_a_cancellation(error)

    def _close(self) -> None:
        self.hold.on_loss.remove(self._fire_lost)
        if self._next is not None:
            self._next.cancel()
        stack = self._stacks[self._task]
        stack.remove(self)
        if not stack:
            del self._stacks[self._task]

    def _fire_lost(self) -> None:
        """Cancel the outermost body of the task whose lock is lost, unless one is unwinding already."""
        stack = self._stacks.get(self._task)
        if not stack:
            return
        lost = [scope for scope in stack if scope.hold.loss is not None]
        if lost and not any(scope.fired for scope in stack):
            lost[0]._fire()

    def _fire(self) -> None:
        loop = asyncio.get_running_loop()
        self._due = self._due or self.hold.patient_until or monotonic() + _CLEANUP
        if self._next is not None:
            self._next.cancel()
        if self._task.cancelling() > self._cancelling and monotonic() < self._due:
            self._next = loop.call_later(_LOOK_AGAIN, self._fire_lost, context=Context())
        else:
            self.fired = True
            self._counted = self._task.cancelling()
            self._next = loop.call_soon(self._cancel, context=Context())  # Not now: it may be the task that runs.

    def _cancel(self) -> None:
        self._cancelled = True
        self._task.cancel()


def _unwinds_a_cancellation(error: BaseException) -> bool:
    """Whether *error* came while another cancellation was on its way."""
    context = error.__context__
    while context is not None and not isinstance(context, asyncio.CancelledError):
        context = context.__context__
    return context is not None


def innermost(stacks: Stacks, task: asyncio.Task[object], name: str, owner: str) -> Scope | None:
    """The scope of lock *name* and *owner* that *task* opened last, of those that are open."""
    for scope in reversed(stacks.get(task, ())):
        if scope.hold.keys.name == name and scope.hold.owner == owner:
            return scope
    return None


def entered_elsewhere(stacks: Stacks, name: str) -> Scope | None:
    """The scope of lock *name* that another task opened last, preferably one whose lock is not lost."""
    scopes = [scope for stack in stacks.values() for scope in stack if scope.hold.keys.name == name]
    return max(reversed(scopes), key=lambda scope: scope.hold.loss is None, default=None)
