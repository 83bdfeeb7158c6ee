"""Workers of taskiq, each a process, run the jobs of a module, and the jobs write lines into a ledger."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

SOON = 30.0


@contextmanager
def workers(directory: Path, count: int, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """The parent process of the workers, which starts a new worker in place of one that was killed."""
    command = [sys.executable, "-m", "taskiq", "worker", "jobs:broker", "--workers", str(count), *options]
    with (directory / "output").open("ab") as output:
        running = subprocess.Popen(command, cwd=directory, stdout=output, stderr=output, start_new_session=True)
    try:
        yield running
    finally:
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()


@asynccontextmanager
async def jobs(directory: Path, code: str) -> AsyncIterator[Any]:
    """The module that the workers run, with a started broker, so that the test can send jobs."""
    (directory / "jobs.py").write_text(code, "utf-8")
    sys.path.insert(0, str(directory))
    try:
        module = import_module("jobs")
        await module.broker.startup()
        yield module
        await module.broker.shutdown()
    finally:
        sys.path.remove(str(directory))
        sys.modules.pop("jobs", None)


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty file, which the jobs know as LEDGER."""
    path = tmp_path / "ledger"
    path.touch()
    monkeypatch.setenv("LEDGER", str(path))
    return path


def lines(ledger: Path) -> list[list[str]]:
    """The words of each whole line."""
    *whole, _ = ledger.read_text().split("\n")
    return [line.split() for line in whole]
