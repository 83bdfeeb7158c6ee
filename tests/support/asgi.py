"""Applications of ASGI, served by uvicorn: in the loop of the test, which can look inside, or in processes."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Any, Self

import httpx
import uvicorn

from tests.support.ports import reserved_port

_START, _END = 60.0, 30.0
_POLL = 0.02
_ROOT = Path(__file__).parents[2]


def http_client(url: str) -> httpx.AsyncClient:
    """
    A client that opens as many connections as there are requests.

    It speaks no TLS, so that it reads no certificates, which would take longer than most tests.
    """
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=50)
    return httpx.AsyncClient(base_url=url, limits=limits, timeout=60, verify=False)


class _Server(uvicorn.Server):
    """A server that does not touch the signals of the test's process."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def served(app: Any) -> AsyncIterator[httpx.AsyncClient]:
    """
    *app* (ASGI) on uvicorn in this event loop, over TCP, and a client of it.

    Requests that still run when the block is left are cancelled after a second.
    """
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    server = _Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1))
    serving = asyncio.create_task(server.serve([listening]), name="uvicorn")
    try:
        while not server.started:
            assert not serving.done(), "the application did not start"
            await asyncio.sleep(_POLL)
        port = listening.getsockname()[1]
        async with http_client(f"http://127.0.0.1:{port}") as client:
            yield client
    finally:
        server.should_exit = True
        await serving
        # A cancelled request ends in the next turn of the loop.
        await asyncio.sleep(0)


class WebProcess:
    """
    A server of web applications, with its workers, as a process group of its own.

    *command* are arguments for Python, with ``{port}`` in place of its port, which is also in the variable PORT; a GET
    of *ready* is answered when it has started. Its output is in `output`.
    """

    def __init__(self, command: Sequence[str], log: Path, *, ready: str, environment: dict[str, str]) -> None:
        self._reservation = ExitStack()
        self.port = self._reservation.enter_context(reserved_port())
        self.url = f"http://127.0.0.1:{self.port}"
        self._command = [sys.executable, *(word.replace("{port}", str(self.port)) for word in command)]
        self._log = log
        self._ready = ready
        self._environment = os.environ | {"PYTHONPATH": str(_ROOT), "PORT": str(self.port)} | environment
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def output(self) -> str:
        return self._log.read_text("utf-8", errors="replace")

    @property
    def running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def client(self) -> httpx.AsyncClient:
        return http_client(self.url)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Ask the server to stop, and wait until it has."""
        self.running.send_signal(number)
        self.running.wait(_END)

    def tracebacks(self) -> list[str]:
        """The last lines of the tracebacks in its output; other processes of it may have written in between."""
        written = re.sub(r"^INFO: .*\n", "", self.output, flags=re.MULTILINE)
        return re.findall(r"^Traceback.*?^(\S[^\n]*)$", written, re.MULTILINE | re.DOTALL)

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, env=self._environment, start_new_session=True
            )
        try:
            self._wait_until_ready()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kill()
        self._reservation.close()

    def _wait_until_ready(self) -> None:
        deadline = monotonic() + _START
        while not self._answers():
            waiting = self.running.poll() is None and monotonic() < deadline
            assert waiting, f"did not start:\n{self.output}"
            sleep(_POLL)

    def _answers(self) -> bool:
        try:
            return httpx.get(self.url + self._ready, timeout=_START, verify=False).is_success
        except httpx.TransportError:
            return False

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.running.pid, signal.SIGKILL)
        self.running.wait()


def uvicorn_command(app: str, *options: str) -> list[str]:
    """For `WebProcess`: uvicorn, with *app* and its options."""
    return ["-m", "uvicorn", app, "--host", "127.0.0.1", "--port", "{port}", "--no-access-log", *options]
