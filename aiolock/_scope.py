"""
What `async with` adds to a hold: its body is cancelled when the lock is lost.

A scope is an `asyncio.timeout` whose deadline is the loss. It cancels once, so that the body's own cleanup (a
rollback) can still be awaited; an anyio scope would cancel every such await again. A cancellation or timeout of the
user's own keeps its meaning: `asyncio.Timeout` tells them apart.
"""

import asyncio
from contextvars import Context
from time import monotonic
from types import TracebackType

from aiolock._lease import Lease

# Seconds that a body which is unwinding by a cancellation of the user's own has for its cleanup when the lock is lost,
# and how often to look whether it is through.
_CLEANUP, _LOOK_AGAIN = 0.5, 0.05

Stacks = dict["asyncio.Task[object]", list["Scope"]]


class Scope:
    """One `async with` in one task, from its enter to its exit."""

    # Invariant: the open scopes of a task form a stack, outermost first, and at most one of them has fired: while
    # one unwinds, cancelling again for another would break into cleanup. What is lost meanwhile fires at its exit.
    # Nor does one fire at once while a cancellation of the user's own unwinds. That has an end: before Python 3.13 a
    # task group that failed leaves the count of cancellations raised for good.

    def __init__(self, lease: Lease, stacks: Stacks) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.lease = lease
        self.hold = lease._hold
        self.fired = False
        self._task = task
        self._stacks = stacks
        self._timeout = asyncio.timeout(None)
        self._cancelling = self._counted = task.cancelling()  # At the enter, and when it fired.
        self._due: float | None = None  # When to fire at last; None until the lock is lost.
        self._look_again: asyncio.TimerHandle | None = None

    async def enter(self) -> Lease:
        """Open the scope, in the user's task; does not suspend."""
        await self._timeout.__aenter__()
        self.lease._scoped = True
        self._stacks.setdefault(self._task, []).append(self)
        self.hold.on_loss.append(self._fire_lost)
        self._fire_lost()
        return self.lease

    async def exit(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Close the scope; ``True`` when it was its own cancellation that ended the body."""
        self._close()
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError:
            return True
        finally:
            self._fire_lost()
        return self.fired and self._is_own(error)

    def _is_own(self, error: BaseException | None) -> bool:
        """Whether *error* is the scope's cancellation, though the count was raised before: by nothing that unwinds."""
        if not isinstance(error, asyncio.CancelledError) or self._task.cancelling() > self._counted:
            return False
        context = error.__context__
        while context is not None and not isinstance(context, asyncio.CancelledError):
            context = context.__context__
        return context is None

    def _close(self) -> None:
        self.hold.on_loss.remove(self._fire_lost)
        if self._look_again is not None:
            self._look_again.cancel()
        stack = self._stacks[self._task]
        stack.remove(self)
        if not stack:
            del self._stacks[self._task]

    def _fire_lost(self) -> None:
        """Cancel the outermost body of the task whose lock is lost, unless one is unwinding already."""
        stack = self._stacks.get(self._task, [])
        lost = [scope for scope in stack if scope.hold.loss is not None]
        if lost and not any(scope.fired for scope in stack):
            lost[0]._fire()

    def _fire(self) -> None:
        loop = asyncio.get_running_loop()
        self._due = self._due or monotonic() + _CLEANUP
        if self._look_again is not None:
            self._look_again.cancel()
        if self._task.cancelling() > self._cancelling and monotonic() < self._due:
            self._look_again = loop.call_later(_LOOK_AGAIN, self._fire_lost, context=Context())
        else:
            self.fired = True
            self._counted = self._task.cancelling()
            self._timeout.reschedule(loop.time())


def innermost(stacks: Stacks, name: str, owner: str) -> Scope | None:
    """The scope of lock *name* and *owner* that the running task opened last, of those that are open."""
    task = asyncio.current_task()
    for scope in reversed(stacks.get(task, []) if task else []):
        if scope.hold.keys.name == name and scope.hold.owner == owner:
            return scope
    return None


def entered_elsewhere(stacks: Stacks, name: str) -> Scope | None:
    """The scope of lock *name* that another task opened last, preferably one whose lock is not lost."""
    scopes = [scope for stack in stacks.values() for scope in stack if scope.hold.keys.name == name]
    return max(reversed(scopes), key=lambda scope: scope.hold.loss is None, default=None)
