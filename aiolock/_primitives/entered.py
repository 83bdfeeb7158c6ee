"""A handle whose ``async with`` is a block of its own each time, so that tasks may share it."""

import sys
from abc import ABC, abstractmethod
from asyncio import Task
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from types import FrameType, TracebackType
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import ref

from aiolock._core.blocks import entered_elsewhere
from aiolock._core.owners import running_task
from aiolock._core.scope import Place, place_of

T = TypeVar("T")


class _Entry(NamedTuple):
    place: Place
    who: "ref[Task[object]]"  # Entered it. Not kept alive: a task that nobody refers to is to be destroyed.
    block: AbstractAsyncContextManager[Any]
    is_settled: bool = False  # Whether it has given back what it had is not known here.

    @property
    def task(self) -> "Task[object] | None":
        return self.who()


class Entered(ABC, Generic[T]):
    """A handle that may be entered by several tasks at the same time, and by one of them several times."""

    __slots__ = ("__weakref__", "_blocks")

    def __init__(self) -> None:
        self._blocks: list[_Entry] = []  # That were entered and not left, the last one last.

    @abstractmethod
    async def _begin(self) -> tuple[AbstractAsyncContextManager[Any], T]:
        """One ``async with`` begins: what leaves it, and what it gives."""

    def __aenter__(self) -> Coroutine[object, object, T]:
        return self._enter(place_of(sys._getframe(1)))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The handle is shared: the frame that awaits this tells which block is left, also by another task's.
        entry = self._left_in(sys._getframe(1))
        if entry is not None:
            await entry.block.__aexit__(kind, error, trace)  # None swallows an exception.
        elif error is None:
            raise RuntimeError(f"{self!r}: this `async with` was not entered, or was left before")

    def _left_in(self, frame: FrameType) -> _Entry | None:
        place = place_of(frame)
        here = next((each for each in reversed(self._blocks) if each.place == place), None)
        if entry := here or entered_elsewhere(frame, self._blocks):
            self._blocks.remove(entry)
        return entry

    async def _enter(self, place: Place) -> T:
        block, entered = await self._begin()
        self._blocks.append(_Entry(place, ref(running_task()), block))
        return entered
