"""
The owner of a hold: one asyncio task of one client, or a named owner of the client.

An acquire must run in the task that called it. For example, `create_task(lock.acquire())` would make a task that owns
the lock and ends at once. So must a question about the owner: `gather(lock.held())` would ask about a task that holds
nothing. The verb compares its caller with the task in which it runs, so that wrappers of the coroutine make no
difference: tracing tools wrap every coroutine that becomes a task.
"""

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from contextvars import Context
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar
from weakref import ref

from aiolock._answers import Answer, answered
from aiolock._identity import NAMED

_NAMED = f":{NAMED}"
_ELSEWHERE = (
    "this was called in one task and runs in another, which is another owner, and may end at once "
    "(create_task, gather, and wait_for on Python 3.11 make a task of it). Await it inside of the task that does the "
    "work; for a time limit use try_acquire(wait=...), hold(wait=...) or asyncio.timeout(); to acquire here and "
    "release elsewhere, a named owner: locks.lock(name, owner=...)"
)


def current_task() -> "asyncio.Task[object] | None":
    """The running task, if there is one; there may be none, because the garbage collector runs code in any thread."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def running_task() -> asyncio.Task[object]:
    """The running task; `RuntimeError` outside of one."""
    task = current_task()
    if task is None:
        raise RuntimeError(
            "no asyncio task runs here, and a lock belongs to a task: use it in a coroutine that asyncio runs. A "
            "callback has no task, and trio is not supported"
        )
    return task


def is_named(owner: str) -> bool:
    """Whether *owner* is the id of a named owner: several tasks may act as it at the same time."""
    return _NAMED in owner


class OwningTask:
    """The record of a numbered task, which outlives the task."""

    __slots__ = ("ended", "has_lost", "name", "owner", "scopes", "task", "waits_for")

    def __init__(self, task: "ref[asyncio.Task[object]]", owner: str, name: str) -> None:
        self.task: ref[asyncio.Task[object]] = task
        self.owner: str = owner
        self.name: str = name
        # Still false when the task is gone: Python has destroyed the task, because nothing referred to its future.
        self.ended: bool = False
        # The name of the lock that the task waits for.
        self.waits_for: str | None = None
        # The open blocks of the task, outermost first: see `scope`.
        self.scopes: dict[Any, None] = {}
        # Whether one of them had lost its lock at the last look: see `Scope.cancel_if_lost`.
        self.has_lost: bool = False

    @property
    def is_over(self) -> bool:
        """Whether the task has ended, or was destroyed."""
        return (task := self.task()) is None or task.done()

    @property
    def is_being_destroyed(self) -> bool:
        """Whether Python has destroyed the task, and `Owners` has not handled that yet."""
        return self.task() is None and not self.ended


class Owners(dict["ref[asyncio.Task[object]]", OwningTask]):
    """
    The records of the tasks that use one client; at its first use, each task gets a number that no other task ever has.

    The number belongs to the task *object*: ``id(task)`` is reused within milliseconds, and child tasks inherit a
    context variable.
    """

    # Invariant: a numbered task is here until it has ended, or Python has destroyed it.

    def __init__(self, client: str, task_ended: Callable[[OwningTask], None]) -> None:
        super().__init__()
        self._client = client
        self._task_ended = task_ended
        self._loop = asyncio.get_running_loop()
        self._last = 0
        # For the callbacks, so that they keep no context of a task alive.
        self._context = Context()
        # Each task refers to these two: a bound method of its own would take memory for each.
        self._on_end, self._on_destruction = self._ended, self._destroyed

    def acting(self, named: str | None, caller: "Caller" = None) -> tuple[str, OwningTask]:
        """The id of the owner, which is the *caller* or the owner *named*; and the record of the caller."""
        task = None if caller is None else caller()
        # A task of another loop has no record here: it may have sent the coroutine to a task of this one.
        record = self.running() if task is None or task.get_loop() is not self._loop else self[ref(task)]
        return record.owner if named is None else self.named(named), record

    def running(self) -> OwningTask:
        """The record of the running task."""
        return self[ref(asyncio.current_task(self._loop) or running_task())]

    def named(self, name: str) -> str:
        """The owner id of the owner called *name*; distinct from that of every task."""
        return f"{self._client}{_NAMED}{name}"

    def tasks(self) -> dict[str, str]:
        """The names of the tasks that have used the client and have not ended, by their owner ids."""
        return {record.owner: record.name for record in self.values()}

    def __missing__(self, running: "ref[asyncio.Task[object]]") -> OwningTask:
        task = running()
        assert task is not None, "it is running"
        self._last += 1
        # With a callback, so that the reference is dead before the coroutine of the task is closed.
        key = ref(task, self._on_destruction)
        record = self[key] = OwningTask(key, f"{self._client}:{self._last}", task.get_name())
        task.add_done_callback(self._on_end, context=self._context)
        return record

    def _ended(self, task: asyncio.Task[object]) -> None:
        record = self.pop(ref(task))
        record.name, record.ended = task.get_name(), True
        self._task_ended(record)

    def _destroyed(self, task: "ref[asyncio.Task[object]]") -> None:
        """Note that Python has destroyed *task*; Python calls this at any moment, in any thread."""
        # The loop may have ended.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._tell_destroyed, task, context=self._context)

    def _tell_destroyed(self, task: "ref[asyncio.Task[object]]") -> None:
        # Without a record, the task had ended before.
        if (record := self.pop(task, None)) is not None:
            self._task_ended(record)


class Owned(Protocol):
    """A primitive that has owners: each task is one, or all tasks act as the same named owner."""

    @property
    def _acts_as_one(self) -> bool:
        """Whether all tasks that acquire it are the same owner."""


S = TypeVar("S", bound=Owned)
P = ParamSpec("P")
T = TypeVar("T")
# The task that calls a verb; `None` stands for the running task. A reference keeps no task alive in a traceback.
Caller = ref[asyncio.Task[object]] | None


def in_own_task(
    verb: Callable[Concatenate[S, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """*verb*, whose coroutine raises if it runs in another task than the one that called it."""
    return answered(verb, _OwnAnswer)


def for_caller(
    verb: Callable[Concatenate[S, Caller, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """*verb*, which gets the task that calls it: another one may run the coroutine, as `asyncio.shield` lets one do."""
    signature = inspect.signature(verb)
    owned, _, *others = signature.parameters.values()

    @wraps(verb)
    def called(owned: S, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        task = current_task()
        return verb(owned, None if task is None else ref(task), *args, **kwargs)

    called.__annotations__ = {name: each for name, each in verb.__annotations__.items() if name != "caller"}
    vars(called)["__signature__"] = signature.replace(parameters=[owned, *others])
    return answered(called)


class _OwnAnswer(Answer[T]):
    __slots__ = ("_caller",)

    def __init__(self, owned: Owned, coroutine: Coroutine[Any, Any, T]) -> None:
        self._asked = owned
        self._coroutine = coroutine
        self._caller = current_task()

    def __await__(self) -> Generator[Any, Any, T]:
        if self._caller is not current_task():
            self._refuse_elsewhere()
        return self._coroutine.__await__()

    def send(self, value: Any, /) -> Any:
        if self._caller is not current_task():
            self._refuse_elsewhere()
        return self._coroutine.send(value)

    def _refuse_elsewhere(self) -> None:
        try:
            refuse_elsewhere(self._asked)
        except RuntimeError:
            self._coroutine.close()
            raise


_OwnAnswer.__name__ = Answer.__name__


def refuse_elsewhere(owned: Owned) -> None:
    """Raise because another task than the caller's runs a verb of *owned*, unless all tasks are the same owner."""
    if not owned._acts_as_one:
        raise RuntimeError(f"{owned!r}: {_ELSEWHERE}")
