"""Who owns a hold: one asyncio task of one client, or a named owner of it."""

import asyncio
from collections.abc import Callable
from contextvars import Context
from weakref import WeakKeyDictionary

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


class Owners:
    """
    Numbers the tasks of one client; a number is never used twice.

    The number hangs on the task *object*: ``id(task)`` is reused within milliseconds, and a context variable
    is inherited by child tasks.
    """

    def __init__(self, client: str, task_ended: Callable[[str, str], None]) -> None:
        self._client = client
        self._task_ended = task_ended
        self._ids: WeakKeyDictionary[asyncio.Task[object], str] = WeakKeyDictionary()
        self._last = 0
        self._context = Context()  # Of the callbacks: a task's context does not live as long as they do.

    def of(self, task: asyncio.Task[object]) -> str:
        """The owner id of *task*."""
        owner = self._ids.get(task)
        return self._number(task) if owner is None else owner

    def named(self, name: str) -> str:
        """The owner id of the owner called *name*; distinct from that of every task."""
        return f"{self._client}{_NAMED}{name}"

    def _number(self, task: asyncio.Task[object]) -> str:
        self._last += 1
        owner = self._ids[task] = f"{self._client}:{self._last}"
        task.add_done_callback(self._ended, context=self._context)
        return owner

    def _ended(self, task: asyncio.Task[object]) -> None:
        self._task_ended(self._ids.pop(task), task.get_name())
