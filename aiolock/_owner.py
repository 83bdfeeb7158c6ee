"""Who owns a hold: one asyncio task of one client, or a named owner of it."""

import asyncio
from collections.abc import Callable
from contextvars import Context
from weakref import WeakKeyDictionary

_NAMED = ":named:"


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

    def current(self) -> str:
        """The owner id of the running task; `RuntimeError` outside of a task."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a lock is owned by an asyncio task; outside of one, use a named owner")
        owner = self._ids.get(task)
        return self._number(task) if owner is None else owner

    def named(self, name: str) -> str:
        """The owner id of the owner called *name*; distinct from that of every task."""
        return f"{self._client}{_NAMED}{name}"

    def _number(self, task: "asyncio.Task[object]") -> str:
        self._last += 1
        owner = self._ids[task] = f"{self._client}:{self._last}"
        # A context of its own, so that a task's context does not live as long as its callbacks.
        task.add_done_callback(lambda done: self._task_ended(owner, done.get_name()), context=Context())
        return owner
