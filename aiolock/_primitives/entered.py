"""A handle whose ``async with`` is a block of its own each time, so that tasks may share it."""

import sys
from abc import ABC, abstractmethod
from asyncio import Task
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import ref

from aiolock._core.blocks import current_task
from aiolock._core.owners import running_task
from aiolock._core.scope import Place, is_stacked, place_of

T = TypeVar("T")


class _Entry(NamedTuple):
    place: Place
    task: "ref[Task[object]]"  # Who entered it. Not kept alive: a task that nobody refers to is to be destroyed.
    block: AbstractAsyncContextManager[Any]


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

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Coroutine[object, object, bool | None]:
        # The handle is shared: its caller's frame tells which block is left, also by another task than entered it.
        place = place_of(sys._getframe(1))
        here = [each for each in self._blocks if each.place == place]
        if not (entries := here or self._entered_elsewhere(place)):
            raise RuntimeError(f"{self!r}: this `async with` was not entered, or was left before")
        entry = entries[-1]
        self._blocks.remove(entry)
        return entry.block.__aexit__(kind, error, trace)

    def _entered_elsewhere(self, place: Place) -> list[_Entry]:
        """What may be left in *place*, where none was entered."""
        task = current_task()
        stacked = [each for each in self._blocks if is_stacked(place) and is_stacked(each.place)]
        mine = [each for each in stacked or self._blocks if each.task() is task]
        gone = [each for each in stacked if each.task() is None]
        return mine or gone or stacked or self._blocks

    async def _enter(self, place: Place) -> T:
        block, entered = await self._begin()
        self._blocks.append(_Entry(place, ref(running_task()), block))
        return entered
