"""Processes that run a module: the code of a recipe, and what the test adds to it."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.docs.pages import ROOT

_END = 30.0


class Crew:
    """*count* processes of *code*; the variables of *environment* tell each of them what to do."""

    def __init__(self, directory: Path, code: str, count: int, environment: dict[str, str] | None = None) -> None:
        self._directory = directory
        self._count = count
        self._environment = os.environ | {"PYTHONPATH": str(ROOT)} | (environment or {})
        self.workers: dict[int, subprocess.Popen[bytes]] = {}
        (directory / "worker.py").write_text(code, "utf-8")

    @property
    def output(self) -> str:
        return (self._directory / "output").read_text("utf-8", errors="replace")

    def hire(self) -> int:
        """Start one more; its process id."""
        with (self._directory / "output").open("ab") as output:
            worker = subprocess.Popen(
                [sys.executable, "worker.py"],
                cwd=self._directory,
                env=self._environment,
                stdout=output,
                stderr=output,
            )
        self.workers[worker.pid] = worker
        return worker.pid

    def dismiss(self, pid: int, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal, and wait until the process has ended; its status."""
        worker = self.workers.pop(pid)
        worker.send_signal(number)
        return worker.wait(_END)

    def __enter__(self) -> Self:
        for _ in range(self._count):
            self.hire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self.workers.values():
            worker.kill()
            worker.wait()
