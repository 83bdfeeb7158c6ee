"""A handle whose ``async with`` is a block of its own each time, so that tasks may share it."""

import sys
from abc import ABC, abstractmethod
from asyncio import Task
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Generic, NamedTuple, TypeVar, cast
from weakref import ref

from aiolock._core.blocks import entered_elsewhere, nothing_to_give_back
from aiolock._core.owners import running_task
from aiolock._core.scope import Place, place_of

T = TypeVar("T")


class _Entry(NamedTuple):
    place: Place
    who: "ref[Task[object]]"  # Entered it. Not kept alive: a task that nobody refers to is to be destroyed.
    block: AbstractAsyncContextManager[Any]
    # Whether it has given back what it had, or Python destroys its task, is not known here.
    is_settled: bool = False
    forsaken: bool = False

    @property
    def task(self) -> "Task[object] | None":
        return self.who()


class Entered(ABC, Generic[T]):
    """A handle that may be entered by several tasks at the same time, and by one of them several times."""

    __slots__ = ("__weakref__", "_blocks")

    def __init__(self) -> None:
        self._blocks: list[_Entry] = []  # That were entered and not left, the last one last.

    @property
    def _acts_as_one(self) -> bool:
        """Whether all tasks that enter it are the same owner."""
        return False

    @abstractmethod
    async def _begin(self) -> tuple[AbstractAsyncContextManager[Any], T]:
        """One ``async with`` begins: what leaves it, and what it gives."""

    def __aenter__(self) -> Coroutine[object, object, T]:
        return self._enter(place_of(sys._getframe(1)))

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Coroutine[object, object, None]:
        # The handle is shared: its caller's frame tells which block is left, also by another task than entered it.
        frame = sys._getframe(1)
        place = place_of(frame)
        here = next((each for each in reversed(self._blocks) if each.place == place), None)
        entry = here or entered_elsewhere(frame, self._blocks, as_one=self._acts_as_one)
        if entry is None:
            text = f"{self!r}: this `async with` was not entered, or was left before"
            if error is None:
                raise RuntimeError(text)
            error.add_note(f"aiolock: {text}")
            return nothing_to_give_back()
        self._blocks.remove(entry)
        left = entry.block.__aexit__(kind, error, trace)
        return cast("Coroutine[object, object, None]", left)  # No block swallows an exception.

    async def _enter(self, place: Place) -> T:
        block, entered = await self._begin()
        self._blocks.append(_Entry(place, ref(running_task()), block))
        return entered
