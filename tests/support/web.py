"""Applications of aiohttp that serve over TCP, in this process or in one of their own."""

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import ClientSession, web

from tests.support.observe import until

_HOST = "127.0.0.1"
_START = 30.0  # Seconds that a process may take to import everything and listen.


@asynccontextmanager
async def serving(
    app: web.Application, *, handler_cancellation: bool = False, shutdown_timeout: float = 0.1
) -> AsyncIterator[ClientSession]:
    """Serve *app* as `web.run_app` does; gives a session of its address."""
    runner = web.AppRunner(app, handler_cancellation=handler_cancellation, shutdown_timeout=shutdown_timeout)
    await runner.setup()
    try:
        await web.TCPSite(runner, _HOST, 0).start()
        async with ClientSession(f"http://{_HOST}:{runner.addresses[0][1]}") as session:
            yield session
    finally:
        await runner.cleanup()


class WebProcess:
    """A web server in a process of its own, from a command that ends with the port to listen on."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self.port = free_port()
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, *command, str(self.port)], stdout=output, stderr=subprocess.STDOUT
            )

    @property
    def url(self) -> str:
        return f"http://{_HOST}:{self.port}"

    @property
    def output(self) -> str:
        return self._log.read_text(errors="replace")

    async def ready(self) -> None:
        """Wait until it accepts connections."""
        await until(self._accepts, within=_START)

    def terminate(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self._process.kill()

    async def ended(self, within: float = 30.0) -> int:
        """Wait until it has ended; the status."""
        await until(lambda: self._process.poll() is not None, within)
        return self._process.returncode

    def stop(self) -> None:
        """End it, however far it is."""
        self._process.kill()
        self._process.wait()

    async def _accepts(self) -> bool:
        assert self._process.poll() is None, self.output
        try:
            _, writer = await asyncio.open_connection(_HOST, self.port)
        except OSError:
            return False
        writer.close()
        await writer.wait_closed()
        return True


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])
