"""The workers as the demo sees them: processes that are given orders and signals, and tell what happens."""

import asyncio
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from examples.demo.protocol import Event, Order, Settings, What, encode, event_of
from examples.demo.timeline import Timeline

NAMES = ("1", "2", "3", "4")
_ROOT = Path(__file__).parents[2]
_START_TIMEOUT = 30.0
_STOP_TIMEOUT = 4.0
_KILL_TIMEOUT = 5.0


class WorkerError(Exception):
    """A worker was not ready in time, or ended before."""


class Team:
    """Four workers; leaving the `async with` block ends them."""

    def __init__(self, settings: Settings) -> None:
        self.events: list[Event] = []
        self.timeline = Timeline()
        self.condition: dict[str, str] = {}
        self._settings = settings
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._listeners: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()

    async def start(self) -> None:
        """Start the workers, and let them go when all are ready."""
        for name in NAMES:
            await self._start(name)
        try:
            await self.until(lambda: all(map(self._is_ready_or_dead, NAMES)), _START_TIMEOUT)
        except TimeoutError:
            raise WorkerError(f"not all workers were ready within {_START_TIMEOUT:g} seconds") from None
        for name in NAMES:
            if self._processes[name].returncode is not None:
                raise WorkerError(f"worker {name} did not start: {self.last_words(name)}")
        for name in NAMES:
            self.order(name, "go")

    def _is_ready_or_dead(self, name: str) -> bool:
        return name in self.timeline.latest or self._processes[name].returncode is not None

    async def _start(self, name: str) -> None:
        with self._errors(name).open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "examples.demo.worker", name),
                cwd=_ROOT,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                # This keeps the terminal's Ctrl-C from the worker, and lets the system end a stopped one when we die.
                process_group=0,
            )
        self._processes[name] = process
        self._listeners.append(asyncio.create_task(self._listen(name, process)))
        assert process.stdin is not None
        process.stdin.write(encode(self._settings).encode())

    async def _listen(self, name: str, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            # A process that was killed may leave half a line.
            if line.endswith(b"\n"):
                self._add(event_of(line))
        await process.wait()
        self.timeline.dead(name)
        self._changed.set()

    def _add(self, event: Event) -> None:
        self.events.append(event)
        self.timeline.add(event)
        self._changed.set()

    async def until(self, done: Callable[[], bool], timeout: float) -> None:
        """Wait until *done*, looked at after each event; `TimeoutError` after *timeout* seconds."""
        async with asyncio.timeout(timeout):
            while not done():
                self._changed.clear()
                await self._changed.wait()

    async def event(self, wanted: Callable[[Event], bool], timeout: float, start: int = 0) -> Event:
        """The first event from the number *start* on that is *wanted*."""
        found: list[Event] = []

        def look() -> bool:
            nonlocal start
            found.extend(filter(wanted, self.events[start:]))
            start = len(self.events)
            return bool(found)

        await self.until(look, timeout)
        return found[0]

    async def after_order(self, name: str, order: Order, what: What, timeout: float) -> Event:
        """Give worker *name* an order, and wait for *what* comes of it."""
        start = len(self.events)
        self.order(name, order)
        return await self.event(lambda event: event.worker == name and event.what == what, timeout, start)

    def order(self, name: str, order: Order) -> None:
        stdin = self._processes[name].stdin
        assert stdin is not None
        stdin.write(f"{order}\n".encode())

    def pid(self, name: str) -> int:
        return self._processes[name].pid

    def signal(self, name: str, number: signal.Signals) -> None:
        process = self._processes[name]
        if process.returncode is None:
            process.send_signal(number)

    async def kill(self, name: str) -> None:
        """SIGKILL, and wait until it is gone."""
        self.signal(name, signal.SIGKILL)
        self.condition[name] = "killed"
        async with asyncio.timeout(_KILL_TIMEOUT):
            await self._processes[name].wait()

    async def stop(self) -> dict[str, int]:
        """End the workers, politely if they let us; returns the exit code of each."""
        for name, process in self._processes.items():
            assert process.stdin is not None
            process.stdin.close()
            self.signal(name, signal.SIGCONT)
        try:
            async with asyncio.timeout(_STOP_TIMEOUT):
                await asyncio.shield(asyncio.gather(*self._listeners))
        except TimeoutError:
            await self._kill_all()
        return {name: process.returncode or 0 for name, process in self._processes.items()}

    async def _kill_all(self) -> None:
        for name in self._processes:
            self.signal(name, signal.SIGKILL)
        await asyncio.gather(*self._listeners)

    def last_words(self, name: str) -> str:
        """The last line that a worker wrote to its standard error, without the frame of an exception group."""
        lines = [line.strip(" |+-") for line in self._errors(name).read_text(errors="replace").splitlines()]
        return next(filter(None, reversed(lines)), "")

    def _errors(self, name: str) -> Path:
        return Path(self._settings.folder) / f"worker-{name}.err"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
