"""A command under a guard, seen from the process that holds the lock."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from errno import ENOENT
from pathlib import Path
from time import monotonic
from typing import Self

from aiolock._cli.command import guard
from aiolock._cli.verb import CANNOT_EXECUTE, NOT_FOUND, VerbError

_SCRIPT = str(Path(guard.__file__))
_KILLED = -signal.SIGKILL
# On a busy machine, a process group that was killed does nothing more after this time.
_TO_DIE = 0.1


@dataclass(slots=True)
class Guarded:
    """The command called *name*, which has the *grace* to end by itself; made by `start`."""

    name: str
    grace: float
    process: asyncio.subprocess.Process
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    outgoing: socket.socket
    pid: int | None = None
    stopped: bool = False
    """Whether the command was stopped because the lock may be lost."""

    @classmethod
    async def start(
        cls, command: Sequence[str], environment: Mapping[str, str], grace: float, remaining: float
    ) -> Self:
        """
        Start the guard, which starts *command*; that may run for *remaining* seconds, the *grace* included.

        Raises:
            VerbError: the system cannot start the guard, for example because the arguments are too long.
        """
        with ExitStack() as stack:
            try:
                ours, theirs = map(stack.enter_context, socket.socketpair())
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-I", "-S", _SCRIPT),
                    *(str(theirs.fileno()), str(_deadline(remaining)), str(grace), *command),
                    env=dict(environment),
                    pass_fds=(theirs.fileno(),),
                    # Signals of a terminal go to this process only.
                    start_new_session=True,
                )
                theirs.close()
                outgoing = stack.enter_context(ours.dup())
                reader, writer = await asyncio.open_connection(sock=ours)
            except OSError as error:
                raise _cannot_run(command[0], error.strerror or str(error), CANNOT_EXECUTE) from error
            _ = stack.pop_all()
        return cls(command[0], grace, process, reader, writer, outgoing)

    def allow(self, remaining: float) -> None:
        """Let the command run for *remaining* seconds from now, the grace included."""
        self._tell(f"until {_deadline(remaining)} {self.grace}")

    def signal(self, number: int) -> None:
        """Pass a signal on to the command's process group."""
        self._tell(f"signal {number}")

    def kill(self) -> None:
        """Kill the command: others may hold the lock."""
        self._tell("kill")

    async def ended(self) -> int:
        """
        Wait until the command has ended; returns its return code, below zero for a signal.

        Raises:
            VerbError: the command could not be started.
        """
        while line := await self._heard():
            what, *numbers = line.decode().split()
            if what == "ended":
                return int(numbers[0])
            if what == "cannot":
                code = int(numbers[0])
                raise _cannot_run(self.name, os.strerror(code), NOT_FOUND if code == ENOENT else CANNOT_EXECUTE)
            if what == "pid":
                self.pid = int(numbers[0])
            self.stopped = self.stopped or what == "stopping"
        return self._left_alone()

    async def _heard(self) -> bytes:
        """The next line of the guard; empty if the guard has ended, perhaps before it read the last line to it."""
        with suppress(ConnectionError):
            return await self.reader.readline()
        return b""

    def _left_alone(self) -> int:
        """Kill the process group: when the guard is killed, Linux kills the command, but not its children."""
        if self.pid is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        return _KILLED

    def _tell(self, words: str) -> None:
        # Not through the writer: if the guard has ended, a failed write would replace the guard's last line.
        with suppress(OSError):
            _ = self.outgoing.send(f"{words}\n".encode(), socket.MSG_DONTWAIT)

    async def aclose(self) -> None:
        """Close the line to the guard; if the command still runs, that ends it."""
        self.outgoing.close()
        self.writer.close()
        await self.process.wait()
        with suppress(OSError):
            await self.writer.wait_closed()


def _cannot_run(name: str, why: str, code: int) -> VerbError:
    return VerbError(f"the command {name!r} cannot be run: {why}", code)


def _deadline(remaining: float) -> float:
    return monotonic() + remaining - _TO_DIE
