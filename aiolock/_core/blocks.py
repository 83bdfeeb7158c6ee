"""
The `async with` blocks of one client, from the enter of each to the release of its lease.

Tasks share a handle, so its `__aexit__` has to find the block that it leaves: by the frame that entered the block, else
by the task. Both ways are needed. If another task, or the loop, closes a generator, the generator leaves its block in
its own frame, but in a task that may have a block of its own. An exit stack or a method leaves a block in another frame
than the one that entered it.
"""

import asyncio
import inspect
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from types import FrameType
from typing import Any, Generic, Protocol, TypeVar

import anyio

from aiolock._core.hold import BaseLease, Hold
from aiolock._core.owners import Owners, OwningTask, current_task, is_named, running_task
from aiolock._core.report import Reporter
from aiolock._core.scope import FrameId, Scope
from aiolock._errors import beside
from aiolock._keys import LockKeys
from aiolock._scripts import Want
from aiolock._types import BlockRelease, quoted

_IS_GENERATOR = inspect.CO_ASYNC_GENERATOR | inspect.CO_GENERATOR | inspect.CO_ITERABLE_COROUTINE
# The settled blocks that are remembered: their tasks have ended, and they have nothing to give back.
_MOST_SETTLED = 16
# When there are this many blocks, and each time the number has doubled, settled blocks are removed.
_CROWDED = 32
Task = asyncio.Task[object]
CanLeave = Callable[[BaseException | None], bool]


class Open(Protocol):
    """A block that was entered and not left."""

    @property
    def entered_by(self) -> FrameId | None:
        """The frame that entered it."""

    @property
    def record(self) -> OwningTask:
        """The task that entered it."""

    @property
    def hold(self) -> object:
        """The hold whose lease the exit of the block gives back."""

    @property
    def is_settled(self) -> bool:
        """Whether the block has nothing to give back any more."""

    def note_may_be_left(self) -> None:
        """Note that this block may have been left: an exit could not find its block among several."""


B = TypeVar("B", bound=Open)


class Opened(Generic[B]):
    """The open blocks of one name, or of one handle, in the order of their enters."""

    __slots__ = ("_blocks", "_of_frame")

    def __init__(self) -> None:
        self._blocks: dict[B, None] = {}
        # By the frame that entered them: an exit in that frame need not look at all blocks.
        self._of_frame: dict[FrameId, list[B]] = {}

    def __iter__(self) -> Iterator[B]:
        # A copy, and a list: the collector may leave a block at any moment; before Python 3.12 also in the middle of
        # making a tuple.
        return iter(list(self._blocks))

    def __contains__(self, block: B) -> bool:
        return block in self._blocks

    def __len__(self) -> int:
        return len(self._blocks)

    def add(self, block: B) -> None:
        """Add *block*, which was just entered; if there are many, forget most of those that are settled."""
        if len(self) >= _CROWDED and not len(self) & (len(self) - 1):
            settled = [each for each in self if each.record.is_over and each.is_settled]
            for each in settled[:-_MOST_SETTLED]:
                self.remove(each)
        self._blocks[block] = None
        if block.entered_by is not None:
            self._of_frame.setdefault(block.entered_by, []).append(block)

    def remove(self, block: B) -> None:
        """Remove *block*, which was left."""
        del self._blocks[block]
        if block.entered_by is not None:
            of_frame = self._of_frame[block.entered_by]
            of_frame.remove(block)
            if not of_frame:
                del self._of_frame[block.entered_by]

    def find_left(
        self, here: FrameType, running: Task | None, may_be: Callable[[B], bool] = lambda each: True
    ) -> B | None:
        """
        The block that the frame *here* of the *running* task leaves; ``None`` if it cannot be found.

        Only blocks for which *may_be* is true are candidates. If the block cannot be found, each candidate is doubted,
        so that none of them is held for ever.
        """
        for each in reversed(self._of_frame.get(frame_id(here), ())):
            if may_be(each) and _may_be_that_frame(each, here, running):
                return each
        candidates = [each for each in self if may_be(each)]
        found = _of_task(candidates, running)
        if found:
            return found[-1]
        for each in candidates:
            each.note_may_be_left()
        return None


class Blocks:
    """The blocks of one client."""

    # Invariant: a block is in `opened`, under its name, from its enter to its exit, even after the end of its task or
    # the loss of its lock; a name is in `opened` exactly while it has blocks.

    def __init__(self, owners: Owners, report: Reporter, can_leave: CanLeave, release: BlockRelease) -> None:
        self.opened: dict[str, Opened[Scope]] = {}
        self._owners = owners
        self._report = report
        self._can_leave = can_leave
        self._release: BlockRelease = release

    def enter(
        self, lease: BaseLease, *, entered_by: FrameType | None = None, release: BlockRelease | None = None
    ) -> None:
        """
        Begin a block of *lease* in the running task; *release* overrides the client's.

        The block of a handle is *entered_by* a frame, and `leave_handle` finds it; `leave_lease` knows its lease.
        """
        # The block of a handle begins in the task that has just acquired the lease.
        hold, record = lease._hold, self._owners.running() if entered_by is None else lease._record
        task, frame = record.task(), None if entered_by is None else frame_id(entered_by)
        assert task is not None, "it is running"
        scope = Scope(lease, record, task.cancelling(), frame, behind=self.leaves_behind(hold, release))
        scope.enter()
        if (opened := self.opened.get(hold.keys.entry)) is None:
            opened = self.opened[hold.keys.entry] = Opened()
        opened.add(scope)

    def leaves_behind(self, hold: Hold, release: BlockRelease | None) -> bool:
        """Whether a block of *hold* does not wait for the answer to its release; *release* overrides the client's."""
        return (release or self._release) == "behind" and not hold.claim.want.scripts.awaited

    def refuse_in_lost(self, task: OwningTask, keys: LockKeys, owner: str) -> None:
        """Raise if the innermost open block of *task* for that lock and *owner* has lost it: they would wait for it."""
        scope = next((each for each in reversed(list(task.scopes)) if each.is_of(keys, owner)), None)
        if scope is not None:
            scope.hold.refuse_if_over()

    def leave_handle(
        self, here: FrameType, running: Task | None, want: Want, named: str | None, error: BaseException | None
    ) -> Coroutine[Any, Any, None] | None:
        """Leave a block of the owner *named*, or of a task, from the frame *here*; ``None`` if there is none."""
        owner = None if named is None else self._owners.named(named)
        opened = self.opened.get(want.keys.entry)
        if opened is None:
            return None
        scope = opened.find_left(here, running, lambda each: each.is_by_handle_of(owner, want.amount))
        return None if scope is None else self._leave(scope, running, error)

    def leave_lease(self, lease: BaseLease, error: BaseException | None) -> Coroutine[Any, Any, None]:
        """Leave the block of *lease*, with *error* or without."""
        keys = lease._hold.keys
        scope = next((each for each in self.opened.get(keys.entry, ()) if each.lease is lease), None)
        if scope is None:
            raise RuntimeError(f"lock {quoted(keys.name)}: this lease is in no `async with` block, or has left it")
        return self._leave(scope, current_task(), error)

    def _leave(self, scope: Scope, running: Task | None, error: BaseException | None) -> Coroutine[Any, Any, None]:
        """Leave *scope* in the *running* task, and give its lease back; raises if the lock was lost."""
        scope.left = True
        task = scope.record.task()
        if (task is None and not scope.record.ended) or not self._can_leave(error):
            return nothing_to_give_back()
        self._forget(scope)
        own = scope.exit(error)
        if (detached := scope.lease._detached) and not own:
            return detached.leave(error)
        if task is not running:
            if scope.lease.given_back:
                return nothing_to_give_back()
            self._report.left_elsewhere(scope.hold)
        if own:
            if not scope.lease.given_back:
                _ = scope.hold.take_back(scope.lease)
            raise scope.hold.error() from error
        if error is not None:
            return _give_back_beside(error, scope)
        return scope.hold.give_back(scope.lease, behind=scope.behind)

    def task_ended(self, task: OwningTask) -> None:
        """
        Note the end of *task*, and give back the named owner's leases in its blocks that no task can leave any more.

        These are the blocks of a task that Python destroyed, and doubted blocks: see `find_left`.
        """
        scopes = list(task.scopes)
        may_have_left = [each for each in scopes if each.lease._may_be_left or not task.ended]
        for scope in scopes:
            scope.hold.notice_body_end()
        task.scopes.clear()
        for scope in may_have_left:
            scope.let_go()
            if is_named(scope.hold.owner) and not scope.lease.given_back:
                scope.hold.forsake(scope.lease, task.name)
            if scope.left and scope in self.opened.get(scope.hold.keys.entry, ()):
                self._forget(scope)
        # From now on `is_being_destroyed` is false.
        task.ended = True

    def let_go(self) -> None:
        """Drop the running task's open blocks: this task closes the client, so the close must not cancel it."""
        task = running_task()
        for scope in [each for opened in self.opened.values() for each in opened if each.task is task]:
            scope.let_go()

    def _forget(self, scope: Scope) -> None:
        name = scope.hold.keys.entry
        opened = self.opened[name]
        opened.remove(scope)
        if not opened:
            del self.opened[name]


async def _give_back_beside(error: BaseException, scope: Scope) -> None:
    """Give the lease of *scope* back while *error* is on its way; a failure here becomes a note of *error*."""
    # Without the shield, a cancelled anyio scope would end the wait for the answer at once. The wait has a time limit.
    with anyio.CancelScope(shield=True), beside(error):
        await scope.hold.give_back(scope.lease, behind=scope.behind)


async def nothing_to_give_back() -> None:
    """Leave a block at once, with nothing to release: for destroyed tasks and forked children, which cannot wait."""


def refuse_to_leave(handle: str, error: BaseException | None) -> None:
    """Raise, or add a note to *error*, because no block of *handle* can be found that this exit leaves."""
    text = (
        f"{handle}: this `async with` was not entered, or was left before, or is one of several that other tasks "
        "entered. Leave it in the task that entered it, or enter a `hold()` for each"
    )
    if error is None:
        raise RuntimeError(text)
    error.add_note(f"aiolock: {text}")


def frame_id(frame: FrameType) -> FrameId:
    """The identity of *frame*; a frame that leaves a block is compared with the frame that entered it."""
    return id(frame), frame.f_code


def _may_be_that_frame(block: Open, here: FrameType, running: Task | None) -> bool:
    """
    Whether the frame *here* can be the frame that entered *block*, and not a later call of the same function.

    Only a generator can go on in another task than the task that began it.
    """
    if block.record.task() is running or here.f_code.co_flags & _IS_GENERATOR:
        return True
    return block.record.is_being_destroyed


def _of_task(opened: Sequence[B], running: Task | None) -> Sequence[B]:
    """
    The blocks of which the running task leaves the last one. The first rule that finds a block decides:

    1. while a generator is closed: the blocks of a task that Python is destroying, which it may do in any task;
    2. the blocks that the running task entered;
    3. all blocks, if one other task entered them and they share a hold: it makes no difference which one is left;
    4. the blocks whose task has ended or was destroyed.
    """
    if isinstance(sys.exc_info()[1], GeneratorExit):
        destroyed = [each for each in opened if each.record.is_being_destroyed]
        if destroyed:
            return destroyed
    mine = [each for each in opened if each.record.task() is running]
    if mine or len({(each.record, each.hold) for each in opened}) == 1:
        return mine or opened
    return [each for each in opened if each.record.is_over]
