"""Who owns a hold: one asyncio task of one client, or a named owner of it."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from typing import Any
from weakref import ref

_NAMED = ":named:"


def running_task() -> asyncio.Task[object]:
    """The task that runs; `RuntimeError` outside of one."""
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("a lock is used, and owned, by an asyncio task; there is none here")
    return task


def is_named(owner: str) -> bool:
    """Whether *owner* is the id of a named owner: several tasks may act as it at the same time."""
    return _NAMED in owner


class OwningTask:
    """What is known of a task that was numbered, also when it is no more."""

    __slots__ = ("ended", "name", "owner", "scopes", "task")

    def __init__(self, task: "ref[asyncio.Task[object]]", owner: str, name: str) -> None:
        self.task: ref[asyncio.Task[object]] = task
        self.owner: str = owner
        self.name: str = name
        self.ended: bool = False  # Else, if it is no more, Python destroyed it: it waited for what nobody refers to.
        self.scopes: list[Any] = []  # Its open blocks, outermost first: see `scope`.


class Owners:
    """
    Numbers the tasks of one client; a number is never used twice.

    The number hangs on the task *object*: ``id(task)`` is reused within milliseconds, and a context variable
    is inherited by child tasks.
    """

    def __init__(self, client: str, task_ended: Callable[[OwningTask], None]) -> None:
        self._client = client
        self._task_ended = task_ended
        self._loop = asyncio.get_running_loop()
        # Invariant: a task that was numbered is here until it has ended, or Python has destroyed it.
        self._tasks: dict[ref[asyncio.Task[object]], OwningTask] = {}
        self._last = 0
        self._context = Context()  # Of the callbacks: a task's context does not live as long as they do.

    def acting(self, named: str | None) -> tuple[str, asyncio.Task[object]]:
        """Who acts in the task that runs, and that task: the owner called *named*, or the task itself."""
        task = asyncio.current_task() or running_task()
        if named is not None:
            return self.named(named), task
        return (self._tasks.get(ref(task)) or self._number(task)).owner, task

    def record(self, task: asyncio.Task[object]) -> OwningTask:
        """What is known of *task*."""
        return self._tasks.get(ref(task)) or self._number(task)

    def named(self, name: str) -> str:
        """The owner id of the owner called *name*; distinct from that of every task."""
        return f"{self._client}{_NAMED}{name}"

    def tasks(self) -> dict[str, str]:
        """The names of the tasks that have used the client and have not ended, by their owner ids."""
        return {record.owner: record.name for record in self._tasks.values()}

    def _number(self, task: asyncio.Task[object]) -> OwningTask:
        self._last += 1
        # With a callback, so that it is dead before what the task ran is closed.
        key = ref(task, self._destroyed)
        record = self._tasks[key] = OwningTask(key, f"{self._client}:{self._last}", task.get_name())
        task.add_done_callback(self._ended, context=self._context)
        return record

    def _ended(self, task: asyncio.Task[object]) -> None:
        record = self._tasks.pop(ref(task))
        record.name, record.ended = task.get_name(), True
        self._task_ended(record)

    def _destroyed(self, task: "ref[asyncio.Task[object]]") -> None:
        """Python does this at any moment, and in any thread; nothing can be told when the loop is closed."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._tell_destroyed, task, context=self._context)

    def _tell_destroyed(self, task: "ref[asyncio.Task[object]]") -> None:
        if (record := self._tasks.pop(task, None)) is not None:  # Else it had ended, in a block that nobody left.
            self._task_ended(record)
