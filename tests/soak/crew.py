"""The worker processes: as many as there should be, each on a Python and a loop of its own, also after a kill."""

import signal
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from tests.soak.pythons import ROOT
from tests.soak.settings import Servers, Settings
from tests.support.topologies import wait_until

WORKERS = 4
LOOPS = ("asyncio", "uvloop")
# These workers, one on each loop, are never killed, so that their memory tells of leaks.
VETERANS = (0, 3)
_START_WITHIN = 30.0
# A worker may try a command for long before it gives up.
_END_WITHIN = 60.0


class Worker:
    """One place in the crew, and the process that has it now."""

    def __init__(self, number: int, python: str, settings: Settings) -> None:
        self.name = settings.worker
        self.veteran = number in VETERANS
        self.seen: list[str] = []
        self.process: subprocess.Popen[bytes]
        self._python = python
        self._settings = settings
        self._lives = 0

    def start(self) -> None:
        self._lives += 1
        path = Path(self._settings.journal).with_name(f"{self.name}.{self._lives}.jsonl")
        self._journal = path
        path.touch()
        settings = replace(self._settings, journal=str(path))
        with path.with_suffix(".err").open("wb") as errors:
            self.process = subprocess.Popen(
                [self._python, "-W", "error", "-m", "tests.soak.worker", settings.encode()],
                stdin=subprocess.PIPE,
                # No data are left to write when the pipe is closed.
                bufsize=0,
                stderr=errors,
                cwd=ROOT,
                # If we die while the worker is stopped, the system ends it.
                process_group=0,
            )

    @property
    def started(self) -> bool:
        self.look()
        return self._journal.stat().st_size > 0

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self._ended(-signal.SIGKILL)
        self.start()

    def shut_down(self) -> None:
        """End the worker as a service is ended: by SIGTERM, in the middle of its work."""
        wait_until(lambda: self.started, f"{self.name} has started", _START_WITHIN)
        self.process.terminate()
        self._ended(0)
        self.start()

    def rest(self) -> None:
        self.look()
        self._orders.write(b"rest\n")

    def idle(self) -> bool:
        return self.process.poll() is not None or '{"kind": "idle"' in self._journal.read_text()

    def finish(self) -> None:
        self._orders.close()
        self._ended(0)

    def stop(self) -> None:
        """End the process, in any state."""
        self.process.kill()
        self.process.wait()
        self._orders.close()

    def look(self) -> None:
        """Note a finding and start again if the process has ended by itself."""
        if self.process.poll() is not None:
            self._ended(None)
            self.start()

    @property
    def _orders(self) -> IO[bytes]:
        assert self.process.stdin is not None
        return self.process.stdin

    def _ended(self, expected: int | None) -> None:
        """Wait for the end of the process; another exit code than *expected* is a finding, as is output of errors."""
        try:
            code = self.process.wait(_END_WITHIN)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
            self.seen.append(f"process: {self._journal.stem} did not end within {_END_WITHIN:.0f} s")
        self._orders.close()
        words = self._journal.with_suffix(".err").read_text(errors="replace")
        if code != expected:
            self.seen.append(f"process: {self._journal.stem} ended with {code}, not {expected}")
        if words:
            self.seen.append(f"process: {self._journal.stem} wrote to its standard error:\n{words}")


class Crew:
    """Four workers; leaving the `with` block ends them."""

    def __init__(
        self, servers: Servers, pythons: Sequence[str], folder: Path, seed: int, *, stays: bool = False
    ) -> None:
        self.workers = [
            Worker(
                number,
                pythons[number % len(pythons)],
                Settings(
                    servers,
                    worker=f"worker-{number}",
                    loop=LOOPS[number * len(LOOPS) // WORKERS],
                    journal=str(folder / "journal"),
                    seed=seed,
                    stays=stays,
                ),
            )
            for number in range(WORKERS)
        ]

    @property
    def mortals(self) -> list[Worker]:
        return [worker for worker in self.workers if not worker.veteran]

    @property
    def seen(self) -> Iterable[str]:
        return [word for worker in self.workers for word in worker.seen]

    def look(self) -> None:
        for worker in self.workers:
            worker.look()

    def rest(self, check: Callable[[], None]) -> None:
        """Let all tasks end, *check* while the clients are still open, then end the processes."""
        for worker in self.workers:
            worker.rest()
        try:
            wait_until(lambda: all(worker.idle() for worker in self.workers), "every worker rests", _END_WITHIN)
        except AssertionError:
            busy = [worker for worker in self.workers if not worker.idle()]
            self.workers[0].seen += [f"left: {worker.name} had tasks that did not end" for worker in busy]
        check()
        for worker in self.workers:
            worker.finish()

    def __enter__(self) -> Self:
        for worker in self.workers:
            worker.start()
        wait_until(lambda: all(worker.started for worker in self.workers), "every worker has started", _START_WITHIN)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self.workers:
            worker.stop()
