"""Cancel a coroutine at its k-th suspension, for every possible k: the proof that nothing is left behind.

The coroutine runs in a task of its own, driven through a wrapper that counts each time it suspends and cancels on the
way of the k-th suspension to the event loop, so that exactly that await is cancelled.

    native         task.cancel(), which the task applies to its next await: nothing can come in between
    native_twice   the same, and again at the next suspension, which is inside the cleanup
    native_late    task.cancel() after that await's result has arrived and before the task has seen it
    scope          the anyio.CancelScope around it is cancelled in the next turn of the loop, and so is each further
                   await. anyio spares an await whose result has arrived within that turn, and takes the next one

`cancelling` cancels tasks that are not the test's own at such a point.
"""

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Generic, Literal, TypeVar, cast

import anyio

T = TypeVar("T")
C = TypeVar("C")

Mode = Literal["native", "native_twice", "native_late", "scope"]
MODES: tuple[Mode, ...] = ("native", "native_twice", "native_late", "scope")


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """The end of a coroutine.

    `cancelled` says that the cancellation was sent; the coroutine may have answered with a CancelledError, with another
    error or with a result. `where` is the innermost await that was cancelled. `swallowed` is 0 unless the
    coroutine miscounted: it took back a cancellation that was not its own, left one of its own behind in
    `task.cancelling()`, or kept the scope from recognising its own.
    """

    suspended: int
    cancelled: bool
    result: T | None
    error: BaseException | None
    where: str
    swallowed: int = 0


async def suspensions(make: Callable[[], Coroutine[Any, Any, object]]) -> int:
    """The number of suspensions of the coroutine when it is left alone."""
    return (await cancel_at(0, "native", make)).suspended


async def cancel_at(
    k: int, mode: Mode, coroutine_function: Callable[[], Coroutine[Any, Any, T]], *, within: float = 10.0
) -> Outcome[T]:
    """Run the coroutine in a task and cancel it while it is suspended for the k-th time, counted from one."""
    probe = _Probe(k, mode, coroutine_function)
    task = asyncio.create_task(probe.run(), name=f"{mode} cancellation at suspension {k}")
    try:
        await asyncio.wait({task}, timeout=within)
        if not task.done():
            raise AssertionError(f"{mode}, suspension {k} ({probe.where}): hangs in {probe.position()}")
        return task.result()
    finally:
        task.cancel()
        await asyncio.wait({task}, timeout=1.0)


async def every_suspension(
    mode: Mode,
    setup: Callable[[], Awaitable[C]],
    run: Callable[[C], Coroutine[Any, Any, T]],
    verify: Callable[[C, Outcome[T]], Awaitable[None]],
    *,
    limit: int = 500,
    within: float = 10.0,
) -> int:
    """Cancel `run` at its first, second, ... suspension until it gets through; return how many points there were.

    Each round has a context of its own from `setup`. `verify` also sees the last round, the one that was not cancelled.
    """
    for k in range(1, limit + 1):
        context = await setup()
        outcome = await cancel_at(k, mode, functools.partial(run, context), within=within)
        with _noting(f"{mode}, suspension {k}: {outcome}"):
            await verify(context, outcome)
        if not outcome.cancelled:
            return k - 1
    raise AssertionError(f"{mode}: more than {limit} suspensions")


@contextlib.contextmanager
def cancelling(method: str, k: int, *, times: int = 1) -> Iterator[list[asyncio.Task[Any]]]:
    """Cancel *times* tasks that run *method* and begin from now on, each at its k-th suspension or, if k is 0, before
    its first step, like code that cancels every task of the loop. The cancelled tasks are listed.
    """
    loop = asyncio.get_running_loop()
    cancelled: list[asyncio.Task[Any]] = []

    def make(loop: asyncio.AbstractEventLoop, coroutine: Any, **settings: Any) -> Any:
        # uvloop passes this argument on, and Python 3.11 does not know it.
        settings.pop("eager_start", None)
        if coroutine.__qualname__ != method or len(cancelled) == times:
            return asyncio.Task(coroutine, loop=loop, **settings)
        task = asyncio.Task(_cancelled_at(k, coroutine) if k else coroutine, loop=loop, **settings)
        cancelled.append(task)
        if not k:
            task.cancel()
        return task

    loop.set_task_factory(make)
    try:
        yield cancelled
    finally:
        loop.set_task_factory(None)


async def _cancelled_at(k: int, coroutine: Coroutine[Any, Any, T]) -> T:
    """Run the coroutine, and cancel the current task at its k-th suspension."""
    task = cast("asyncio.Task[Any]", asyncio.current_task())
    suspended = 0

    def on_suspension(_: object) -> None:
        nonlocal suspended
        suspended += 1
        if suspended == k:
            task.cancel()

    return await _Steps(coroutine, on_suspension)


def suspended_in(task: asyncio.Task[Any]) -> list[str]:
    """The functions in which the task is suspended, the outermost first."""
    frames = (_frame(waiting) for waiting in _chain(task.get_coro()))
    return [frame.f_code.co_name for frame in frames if frame is not None]


class _Probe(Generic[T]):
    """One coroutine, cancelled at one point."""

    def __init__(self, k: int, mode: Mode, coroutine_function: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self.where = ""
        self._mode = mode
        self._coroutine_function = coroutine_function
        self._coroutine: Coroutine[Any, Any, T]
        self._points = (k, k + 1) if mode == "native_twice" and k else (k,)
        self._scope = anyio.CancelScope() if mode == "scope" else None
        self._suspended = 0
        self._sent = 0
        self._task: asyncio.Task[Any] | None = None

    async def run(self) -> Outcome[T]:
        """Run the coroutine in the current task; any exception is part of the outcome."""
        task = self._task = cast("asyncio.Task[Any]", asyncio.current_task())
        result: T | None = None
        error: BaseException | None = None
        escaped = False
        try:
            with self._scope or contextlib.nullcontext():
                try:
                    self._coroutine = self._coroutine_function()
                    result = await _Steps(self._coroutine, self._on_suspension)
                except (Exception, asyncio.CancelledError) as raised:
                    error = raised
                    raise
        except (Exception, asyncio.CancelledError):
            escaped = self._scope is not None and isinstance(error, asyncio.CancelledError)
        swallowed = self._sent - task.cancelling() + escaped
        return Outcome(self._suspended, bool(self.where), result, error, self.where, swallowed)

    def position(self) -> str:
        """The innermost await at which the coroutine is suspended."""
        code, line = _innermost(self._coroutine)
        return f"{Path(code.co_filename).name}:{line} {code.co_qualname}"

    def _on_suspension(self, awaited: object) -> None:
        self._suspended += 1
        if self._suspended in self._points:
            self.where = self.where or self.position()
            self._cancel_during(awaited)

    def _cancel_during(self, awaited: object) -> None:
        if self._mode == "scope":
            asyncio.get_running_loop().call_soon(self._cancel)
        elif self._mode == "native_late" and isinstance(awaited, asyncio.Future):
            # This callback runs before that of the task, which is added when the future reaches it.
            awaited.add_done_callback(lambda _: self._cancel())
        else:
            self._cancel()

    def _cancel(self) -> None:
        if self._scope is not None:
            self._scope.cancel()
        elif self._task is not None:
            self._sent += self._task.cancel()


class _Steps(Generic[T]):
    """Drives a coroutine as its task would, and reports each suspension before the task sees it."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], on_suspension: Callable[[object], None]) -> None:
        self._coroutine = coroutine
        self._on_suspension = on_suspension

    def __await__(self) -> Generator[Any, Any, T]:
        step = functools.partial[Any](self._coroutine.send, None)
        while True:
            try:
                awaited = step()
            except StopIteration as done:
                return cast("T", done.value)
            self._on_suspension(awaited)
            try:
                step = functools.partial(self._coroutine.send, (yield awaited))
            except BaseException as error:
                # Anything that the task throws in is meant for the coroutine, GeneratorExit included.
                step = functools.partial(self._coroutine.throw, error)


def _innermost(coroutine: object) -> tuple[CodeType, int]:
    """Follow the awaits of each coroutine or generator down to the last one that is Python."""
    frames = [frame for waiting in _chain(coroutine) if (frame := _frame(waiting)) is not None]
    return frames[-1].f_code, frames[-1].f_lineno


def _chain(waiting: object) -> Iterator[object]:
    while waiting is not None:
        yield waiting
        waiting = _first_of(waiting, "cr_await", "gi_yieldfrom", "ag_await")


def _frame(waiting: object) -> FrameType | None:
    return cast("FrameType | None", _first_of(waiting, "cr_frame", "gi_frame", "ag_frame"))


def _first_of(thing: object, *names: str) -> object:
    return next((getattr(thing, name) for name in names if hasattr(thing, name)), None)


@contextlib.contextmanager
def _noting(note: str) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        error.add_note(note)
        raise
