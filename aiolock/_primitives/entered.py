"""What a handle needs whose `async with` is a context manager of its own each time, so that tasks may share it."""

from abc import ABC, abstractmethod
from asyncio import Task, current_task
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Entered(ABC, Generic[T]):
    """A handle that may be entered by several tasks at the same time, and by one of them several times."""

    __slots__ = ("__weakref__", "_blocks")

    def __init__(self) -> None:
        # The blocks that were entered and not left, by the task that did: it leaves its last one first.
        self._blocks: list[tuple[Task[Any] | None, AbstractAsyncContextManager[T]]] = []

    @abstractmethod
    def _block(self) -> AbstractAsyncContextManager[T]:
        """One ``async with``."""

    async def __aenter__(self) -> T:
        block = self._block()
        entered = await block.__aenter__()
        self._blocks.append((current_task(), block))
        return entered

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task = current_task()
        mine = [each for each in self._blocks if each[0] is task] or self._blocks
        if not mine:
            raise RuntimeError(f"{self!r}: this `async with` was not entered, or was left before")
        self._blocks.remove(mine[-1])
        await mine[-1][1].__aexit__(kind, error, trace)
