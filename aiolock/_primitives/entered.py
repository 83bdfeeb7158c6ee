"""A handle that tasks may share, because each ``async with`` opens a block of its own."""

import sys
from abc import ABC, abstractmethod
from asyncio import Task
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from types import CoroutineType, TracebackType
from typing import Any, Generic, TypeVar, cast

from aiolock._answers import marked
from aiolock._core.blocks import Opened, frame_id, nothing_to_give_back, refuse_to_leave
from aiolock._core.lease import Lease
from aiolock._core.owners import OwningTask, current_task, refuse_elsewhere, running_task
from aiolock._core.scope import FrameId
from aiolock._core.session import Sessions
from aiolock._primitives.multi.lease import MultiLease

T = TypeVar("T")


@dataclass(frozen=True, eq=False, slots=True)
class _Entry:
    entered_by: FrameId
    record: OwningTask
    block: AbstractAsyncContextManager[Any]

    @property
    def hold(self) -> object:
        return self.block

    @property
    def is_settled(self) -> bool:
        # A block without a lease belongs to a task, and ends with it.
        return not isinstance(self.block, Lease | MultiLease) or self.block._is_settled

    def note_may_be_left(self) -> None:
        if isinstance(self.block, Lease | MultiLease):
            self.block._note_may_be_left()


class Entered(ABC, Generic[T]):
    """A handle that may be entered by several tasks at the same time, and by one of them several times."""

    __slots__ = ("__weakref__", "_blocks", "_sessions")

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._blocks: Opened[_Entry] = Opened()

    @property
    def _acts_as_one(self) -> bool:
        """Whether all tasks that enter it are the same owner."""
        return False

    @abstractmethod
    async def _begin(self) -> tuple[AbstractAsyncContextManager[Any], T]:
        """Begin an ``async with``; returns the block, and the value after ``as``."""

    @marked
    def __aenter__(self) -> "CoroutineType[Any, Any, T]":
        return cast("CoroutineType[Any, Any, T]", self._enter(current_task()))

    @marked
    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> "CoroutineType[Any, Any, None]":
        entry = self._blocks.find_left(sys._getframe(1), current_task())
        if entry is not None:
            self._blocks.remove(entry)
            left = entry.block.__aexit__(kind, error, trace)
            # No block swallows an exception.
            return cast("CoroutineType[Any, Any, None]", left)
        if self._sessions.can_leave(error):
            refuse_to_leave(repr(self), error)
        return cast("CoroutineType[Any, Any, None]", nothing_to_give_back())

    async def _enter(self, caller: "Task[object] | None") -> T:
        if caller is not running_task():
            refuse_elsewhere(self)
        block, entered = await self._begin()
        record = self._sessions.here().owners.running()
        self._blocks.add(_Entry(frame_id(sys._getframe(1)), record, block))
        return entered
