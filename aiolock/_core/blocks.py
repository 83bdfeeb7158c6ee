"""
The `async with` blocks of one client: which of them is left, and what is given back then.

A block may be left by another task than entered it, or by none: when its generator is closed, when its exit stack is,
when Python destroys a task that nobody refers to. Whatever happens, leaving one block never ends another.
"""

import asyncio
from collections.abc import Callable, Coroutine
from types import FrameType

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
        """
        The block that *frame* leaves, of the owner *named* or of a task; asked anywhere, also by the collector.

        It is the one that the same frame entered. Where there is none, an exit stack or a method leaves what another
        frame entered: sooner a block of this task than of another, and sooner one of which nothing is left than one
        that runs on. What an exit stack leaves, such a stack entered, if any did.
        """
        owner = None if named is None else self._owners.named(named)
        place, opened = place_of(frame), self._opened(keys)
        for scope in reversed(opened):
            if scope.place == place and not scope.left and _is_owned_by(scope, owner):
                return scope
        candidates = [each for each in opened if each.place is not None and not each.left and _is_owned_by(each, owner)]
        return self._entered_in_another_frame(frame, candidates)

    def _entered_in_another_frame(self, frame: FrameType, opened: list[Scope]) -> Scope | None:
        task, running = current_task(), _places(frame)
        mine = [each for each in opened if task is not None and each.task is task]
        stacked = [each for each in opened if each.is_stacked] if is_stacked(place_of(frame)) else []
        choices = (
            [each for each in mine if each.is_stacked],
            [each for each in mine if not stacked and each.place not in running],
            [each for each in stacked or opened if each.is_settled],
            [] if stacked else mine,
            [each for each in stacked or opened if each.has_lost_its_task],
            stacked if len({each.hold.owner for each in stacked}) == 1 else [],  # Also those of tasks that act as one.
            opened if not stacked and len({each.record for each in opened}) == 1 else [],
        )
        return next((some[-1] for some in choices if some), None)

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


def _places(frame: FrameType | None) -> set[Place]:
    """The places of *frame* and of whoever called it: every block that runs is in one of them."""
    places = set()
    while frame is not None:
        places.add(place_of(frame))
        frame = frame.f_back
    return places


def _is_owned_by(scope: Scope, owner: str | None) -> bool:
    """Whether *scope* is of the named *owner*; of any task if that is ``None``."""
    return scope.hold.owner == owner if owner is not None else not is_named(scope.hold.owner)


def current_task() -> "asyncio.Task[object] | None":
    """The task that runs, if any: the collector may be at work in any thread."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
