"""
The `async with` blocks of one client: which of them is left, and what is given back then.

A block may be left by another task than entered it, or by none: when its generator is closed, when its exit stack is,
when Python destroys a task that nobody refers to. Whatever happens, leaving one block never ends another.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Sequence
from traceback import walk_stack
from types import FrameType
from typing import Protocol, TypeVar

import anyio

from aiolock._core.hold import Grant
from aiolock._core.lease_manager import LeaseManager
from aiolock._core.owners import Owners, OwningTask, is_named, running_task
from aiolock._core.queue import Entries
from aiolock._core.report import Reporter
from aiolock._core.scope import Place, Scope, is_stacked, place_of
from aiolock._errors import AioLockError
from aiolock._keys import LockKeys

_MOST_SETTLED = 16  # Blocks of a name whose tasks are no more, of which nothing is to be given back any more.


class Open(Protocol):
    """A block that was entered and not left."""

    @property
    def place(self) -> Place | None:
        """Where it was entered, if it is to be found by that."""

    @property
    def task(self) -> "asyncio.Task[object] | None":
        """Who entered it, if it still is."""

    @property
    def is_settled(self) -> bool:
        """Whether nothing of it is to be given back any more."""

    @property
    def forsaken(self) -> bool:
        """Whether Python destroys its task."""


B = TypeVar("B", bound=Open)


class Blocks:
    """The blocks of one client."""

    def __init__(
        self,
        entries: Entries,
        leases: LeaseManager,
        owners: Owners,
        report: Reporter,
        can_leave: Callable[[BaseException | None], bool],
    ) -> None:
        self._entries = entries
        self._leases = leases
        self._owners = owners
        self._report = report
        self._can_leave = can_leave

    def enter(self, lease: Grant, place: Place | None = None) -> None:
        """A block begins in the running task; it will give *lease* back."""
        task = running_task()
        scope = Scope(lease, self._owners.record(task), task.cancelling(), place)
        keys = lease._hold.keys
        entry = self._entries.get(keys.entry) or self._entries.of(keys)
        if len(entry.scopes) >= entry.crowded:
            settled = [each for each in entry.scopes if each.is_settled and each.has_lost_its_task]
            for each in settled[:-_MOST_SETTLED]:
                entry.scopes.remove(each)
            entry.crowded = 2 * len(entry.scopes)  # So that none is looked at again and again.
        entry.scopes.append(scope)
        scope.enter()

    def refuse_in_lost(self, task: asyncio.Task[object], keys: LockKeys, owner: str) -> None:
        """Raise if the block of *owner* that *task* entered last, and has not left, has lost its lock."""
        scopes = self._owners.record(task).scopes
        scope = next((each for each in reversed(scopes) if each.is_of(keys, owner)), None)
        if scope is not None:
            self._leases.refuse_if_over(scope.hold)

    def at(self, frame: FrameType, keys: LockKeys, named: str | None) -> Scope | None:
        """The block of the owner *named*, or of a task, that *frame* leaves: it entered it, or another frame did."""
        owner = None if named is None else self._owners.named(named)
        place, opened = place_of(frame), self._opened(keys)
        for scope in reversed(opened):
            if scope.place == place and not scope.left and _is_owned_by(scope, owner):
                return scope
        candidates = [each for each in opened if each.place is not None and not each.left and _is_owned_by(each, owner)]
        return entered_elsewhere(frame, candidates, as_one=named is not None)

    def leave_lease(self, lease: Grant, error: BaseException | None) -> Coroutine[object, object, None]:
        """The block of *lease* is left by *error*."""
        keys = lease._hold.keys
        scope = next((each for each in self._opened(keys) if each.lease is lease), None)
        if scope is None:
            raise RuntimeError(f"lock {keys.name!r}: this lease is in no `async with`, or no more")
        return self.leave(scope, error)

    def leave(self, scope: Scope, error: BaseException | None) -> Coroutine[object, object, None]:
        """*scope* is left by *error*: give its lease back; raises if the lock was lost."""
        scope.left = True
        if scope.forsaken or not self._can_leave(error):
            return nothing_to_give_back()
        elsewhere = scope.task is not current_task()
        self._forget(scope)
        own = scope.exit(error)
        if elsewhere:
            if scope.lease.given_back:
                return nothing_to_give_back()  # As its task ended, with a word of that.
            self._report.left_elsewhere(scope.hold)
        if own:
            if not scope.lease.given_back:
                self._leases.take_back(scope.lease)
            raise scope.hold.error() from error
        return self._leases.give_back(scope.lease) if error is None else self._give_back_beside(error, scope.lease)

    def task_ended(self, task: OwningTask) -> None:
        """*task* is no more; if Python destroyed it, what a named owner has by its blocks is given back, too."""
        task.scopes.clear()
        if task.ended:
            return
        for scope in [each for entry in self._entries.all() for each in entry.scopes if each.record is task]:
            scope.let_go()
            if is_named(scope.hold.owner) and not scope.lease.given_back:
                self._report.orphaned(scope.hold, task.name)
                self._leases.take_back(scope.lease)
            if scope.left:
                self._forget(scope)
        task.ended = True  # It is being destroyed no more.

    def let_go(self) -> None:
        """The running task closes the client: the blocks that it has not left are not told of that."""
        task = running_task()
        for scope in [each for entry in self._entries.all() for each in entry.scopes if each.task is task]:
            scope.let_go()

    def _opened(self, keys: LockKeys) -> tuple[Scope, ...]:
        entry = self._entries.get(keys.entry)
        return () if entry is None else tuple(entry.scopes)

    def _forget(self, scope: Scope) -> None:
        entry = self._entries[scope.hold.keys.entry]
        entry.scopes.remove(scope)
        if not entry.holds:
            entry.settle()

    async def _give_back_beside(self, error: BaseException, lease: Grant) -> None:
        """
        Give *lease* back while *error* is on its way, which nothing that fails here may replace.

        An anyio scope that is cancelled would cut off the wait for the answer, so it is kept out; the wait is bounded.
        """
        with anyio.CancelScope(shield=True):
            try:
                await self._leases.give_back(lease)
            except AioLockError as failure:
                error.add_note(f"aiolock: {failure}")


async def nothing_to_give_back() -> None:
    """Leave a block at once: whoever is destroyed, or forked off, can wait for nothing."""


def entered_elsewhere(frame: FrameType, opened: Sequence[B], *, as_one: bool = False) -> B | None:
    """
    Which of *opened* an exit stack or a method leaves in *frame*, which entered none; ``None`` if nobody can tell.

    It is one that a stack entered if a stack leaves it, else one that a method did, if there is any. Sooner one of this
    task than of another, and sooner one that is over than one around the call that leaves it. What may be that of two
    other tasks is left alone, unless stacks entered it and the tasks act *as_one*. While something is closed, which the
    collector may do within any task, it is first one whose task was destroyed.
    """
    task, by_stack = current_task(), is_stacked(place_of(frame))
    around = {place_of(each) for each, _ in walk_stack(frame)}
    alike = [each for each in opened if is_stacked(each.place) is by_stack]
    either = alike or opened
    mine = [each for each in either if each.task is task]
    found = (
        [each for each in either if each.forsaken and isinstance(sys.exc_info()[1], GeneratorExit)]
        or [each for each in mine if each.place not in around]
        or [each for each in either if each.is_settled]
        or [each for each in either if (who := each.task) is None or who.done()]
        or mine
        or (alike if by_stack and as_one else [])
        or (either if len({each.task for each in either}) == 1 else [])
    )
    return found[-1] if found else None


def _is_owned_by(scope: Scope, owner: str | None) -> bool:
    """Whether *scope* is of the named *owner*; of any task if that is ``None``."""
    return scope.hold.owner == owner if owner is not None else not is_named(scope.hold.owner)


def current_task() -> "asyncio.Task[object] | None":
    """The task that runs, if any: the collector may be at work in any thread."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
