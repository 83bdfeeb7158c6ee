"""
A process of the simulated world: asyncio's own event loop, run turn by turn by the world, with a clock of its own.

A process can be killed, and it can be frozen, as a paused virtual machine or a blocked loop is. A freeze that was
armed strikes within a turn, where the code reads its clock or writes to a connection; the rest of the world goes on.

The loop is `BaseEventLoop`, without a selector: the network says what has arrived. A turn does what a turn of asyncio's
loop does, in the same order, with fewer steps, since turns are most of what a seed costs. That is why private names of
asyncio are used here, and nowhere else.
"""

import asyncio
import heapq
import inspect
import sys
import weakref
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, TypeVarTuple

from tests.simulation.world import NEVER, World

if TYPE_CHECKING:
    from tests.simulation.network import Network
    from tests.simulation.transport import Transport

_Ts = TypeVarTuple("_Ts")


class Process(asyncio.BaseEventLoop):
    # An attribute of BaseEventLoop that its type stubs leave out.
    _ready: deque[Any]
    # The loop reads this before `__init__` has come to an end.
    in_turn = False

    def __init__(self, network: "Network", name: str, offset: float = 0.0, rate: float = 1.0) -> None:
        super().__init__()
        self.network, self.world, self.name = network, network.world, name
        self.number = -1 - len(self.world.processes)
        self.offset, self.rate = offset, rate
        # The true time at which the process, if it is not frozen, has something to do; within a turn there is none.
        self.due = NEVER
        self.frozen_until = 0.0
        self.froze_last = -NEVER
        self.killed = False
        self.root = Context()
        # The loop calls this when data have arrived, before it reads them.
        self.on_arrival: Callable[[], object] = lambda: None
        # An armed freeze: its seconds, and the number of looks at the clock before it.
        self._armed: tuple[int, float] | None = None
        # Transports that have something to read.
        self._arrived: dict[Transport, None] = {}
        self._clock_resolution = 1e-6
        # A heap.
        self._timers: list[tuple[float, _Timer]] = []
        self._made: list[weakref.ref[asyncio.Task[Any]]] = []
        self.world.processes.append(self)

    # Time.

    def time(self) -> float:
        return self.offset + self.rate * self.world.now

    def clock(self) -> float:
        """The time as code that runs in the process reads it; an armed freeze strikes here."""
        if self._armed is not None and self.world.running is self:
            self.freeze_if_armed()
        return self.offset + self.rate * self.world.now

    def _look_when_due(self) -> None:
        # A turn that a freeze interrupted goes on by itself.
        if self.in_turn:
            return
        if self._ready or self._arrived:
            self.due = self.frozen_until
            return
        timers = self._timers
        while timers and timers[0][1]._cancelled:
            heapq.heappop(timers)
        self.due = max((timers[0][0] - self.offset) / self.rate, self.frozen_until) if timers else NEVER

    def turn(self) -> None:
        world, running = self.world, events._get_running_loop()
        before, world.running = world.running, self
        events._set_running_loop(self)
        self.in_turn, self.due = True, NEVER
        try:
            if self._arrived:
                self._read_what_arrived()
            if self._timers and self._timers[0][0] < (until := self.time() + self._clock_resolution):
                self._ring_timers(until)
            ready = self._ready
            for _ in range(len(ready)):
                handle = ready.popleft()
                if not handle._cancelled:
                    try:
                        handle._context.run(handle._callback, *handle._args)
                    except Exception as error:
                        self.call_exception_handler({"message": f"in {handle!r}", "exception": error})
        finally:
            self.in_turn = False
            events._set_running_loop(running)
            world.running = before
            self._look_when_due()

    def _read_what_arrived(self) -> None:
        arrived = list(self._arrived)
        self._arrived.clear()
        self.on_arrival()
        for transport in arrived:
            self._ready.append(_Handle(transport.read_ready, (), self, transport.context))

    def _ring_timers(self, until: float) -> None:
        timers = self._timers
        while timers and timers[0][0] < until:
            timer = heapq.heappop(timers)[1]
            if not timer._cancelled:
                self._ready.append(timer)

    def next_timers(self) -> list[float]:
        """The times of the timers that are set, by the clock of the process."""
        return [when for when, timer in self._timers if not timer._cancelled]

    # Faults.

    def freeze(self, seconds: float) -> None:
        self.frozen_until = self.froze_last = max(self.frozen_until, self.world.now + seconds)
        self._look_when_due()
        self.world.trace(self.name, f"frozen for {seconds:.3f} s")

    def arm_freeze(self, looks: int, seconds: float) -> None:
        """Freeze within a turn: at the look at the clock after that many *looks*."""
        self._armed = (looks, seconds)

    def disarm(self) -> tuple[int, float] | None:
        """Take an armed freeze away, so that the checker may read the clock; returns it for `rearm`."""
        armed, self._armed = self._armed, None
        return armed

    def rearm(self, armed: tuple[int, float] | None) -> None:
        self._armed = armed

    def freeze_if_armed(self) -> None:
        if self._armed is None or self.world.running is not self:
            return
        looks, seconds = self._armed
        if looks > 0:
            self._armed = (looks - 1, seconds)
            return
        self._armed = None
        self.freeze(seconds)
        self.world.trace(self.name, "it froze within a turn")
        self._let_the_world_go_on()

    def _let_the_world_go_on(self) -> None:
        task = asyncio.current_task(self)
        if task is not None:
            asyncio.tasks._leave_task(self, task)
        running, before = events._get_running_loop(), self.world.running
        events._set_running_loop(None)
        self.world.running = None
        try:
            self.world.run_until(self.frozen_until)
        finally:
            # This takes longer than planned if another process froze within a turn meanwhile.
            self.froze_last = self.world.now
            self.world.running = before
            events._set_running_loop(running)
            if task is not None:
                asyncio.tasks._enter_task(self, task)

    def kill(self) -> None:
        self.killed = True
        self.world.processes.remove(self)
        self.world.trace(self.name, "killed")

    def end(self) -> None:
        """
        End every task here and now, at the end of the world.

        Otherwise the garbage collector ends the rest, in the middle of another seed or when Python exits.
        """
        running = events._get_running_loop()
        events._set_running_loop(self)
        try:
            # Ending coroutines may create tasks.
            while self._made:
                task = self._made.pop()()
                if task is None:
                    continue
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                # Python 3.12 crashes when it is asked for the coroutine of an eager task that is done.
                if not task.done():
                    end_coroutine(task.get_coro())
        finally:
            events._set_running_loop(running)
        self._ready.clear()
        self._timers.clear()

    # The methods of an event loop.

    def is_running(self) -> bool:
        return self.in_turn

    def begin_tasks_at_once(self) -> None:
        """Let each task run when it is created, before its creator goes on; Python 3.11 cannot do that."""
        if sys.version_info >= (3, 12):
            self.set_task_factory(asyncio.eager_task_factory)

    def create_task(self, coro: Any, **options: Any) -> "asyncio.Task[Any]":
        task = super().create_task(coro, **options)
        self._made.append(weakref.ref(task))
        return task

    def unfinished_tasks(self) -> "list[asyncio.Task[Any]]":
        """The tasks in the order of creation: `asyncio.all_tasks` is a set, whose order differs between runs."""
        return [task for made in self._made if (task := made()) is not None and not task.done()]

    def start(self, coroutine: Coroutine[Any, Any, Any], name: str) -> "asyncio.Task[Any]":
        """Create a task from outside of the loop."""
        running = events._get_running_loop()
        events._set_running_loop(self)
        try:
            return self.create_task(coroutine, name=name, context=self.root.copy())
        finally:
            events._set_running_loop(running)

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        return await self.network.connect(self, protocol_factory, f"{host}:{port}")

    def arrived(self, transport: "Transport") -> None:
        self._arrived[transport] = None
        self._look_when_due()

    def call_soon(
        self, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> events.Handle:
        handle = _Handle(callback, args, self, copy_context() if context is None else context)
        self._ready.append(handle)
        if not self.in_turn:
            self._look_when_due()
        return handle

    def call_at(
        self, when: float, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> events.TimerHandle:
        timer = _Timer(when, callback, args, self, copy_context() if context is None else context)
        heapq.heappush(self._timers, (when, timer))
        self._look_when_due()
        return timer

    def _timer_handle_cancelled(self, handle: events.TimerHandle) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.killed or World.here is not self.world:
            return
        error, task = context.get("exception"), context.get("task") or ""
        self.world.violation("unhandled", f"{self.name}: {context.get('message')} {error!r} {task}")


class _Handle(events.Handle):
    """A handle without the look at the debug mode."""

    __slots__ = ()

    def __init__(self, callback: Any, args: Any, loop: Process, context: Context) -> None:
        self._callback, self._args, self._loop, self._context = callback, args, loop, context
        self._cancelled = False
        self._repr = self._source_traceback = None


class _Timer(events.TimerHandle):
    """A timer of that kind, which is not in asyncio's own heap."""

    __slots__ = ()

    def __init__(self, when: float, callback: Any, args: Any, loop: Process, context: Context) -> None:
        self._callback, self._args, self._loop, self._context = callback, args, loop, context
        self._cancelled = self._scheduled = False
        self._repr = self._source_traceback = None
        self._when = when


def end_coroutine(coroutine: Any) -> None:
    """
    Close *coroutine*, even one that awaits something as it ends; errors of that are ignored.

    It is closed from the inside out: a coroutine whose inner one goes on as it is closed would get an error from there,
    end, and leave the inner one to the garbage collector, which prints the errors of its end.
    """
    while inspect.getcoroutinestate(coroutine) != inspect.CORO_CLOSED:
        with suppress(BaseException):
            _innermost(coroutine).close()


def _innermost(coroutine: Any) -> Any:
    while (awaited := coroutine.cr_await) is not None:
        if not inspect.iscoroutine(awaited) or inspect.getcoroutinestate(awaited) == inspect.CORO_CLOSED:
            break
        coroutine = awaited
    return coroutine
