"""
Runs a command, and stops it in time: a process of its own, next to the one that holds the lock.

It is run by its path, imports only the standard library, and has no other task, so that neither a stalled event loop
nor the death of the other process keeps it from stopping the command.

    it receives                 it sends
    until DEADLINE GRACE        pid PID           the command runs
    signal N                    cannot ERRNO      it cannot be run
    kill                        stopping          the command gets SIGTERM: the lock may be lost
                                ended STATUS      below zero: killed by that signal

The deadline is on the monotonic clock, which all processes share. The other process counts as dead when its end of the
line is closed.
"""

import ctypes
import os
import select
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from math import inf
from time import monotonic, sleep
from typing import Any

# Arguments of prctl, which only Linux has.
_DIE_WITH_PARENT = 1, signal.SIGKILL
_LOOK_AGAIN = 0.01
_STREAMS = range(3)
# A process that got SIGKILL is dead after this time, or a zombie, which stays in the group until its parent reaps it.
# An orphan's parent may never do that: in a container it is the first process, which need not be an init.
_TO_DIE = 1.0
# The other process passes these signals on to the command.
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


class Guard:
    """Runs one command in a process group of its own."""

    # Invariant: until SIGKILL was sent, `kill_at` is not later than the last deadline that was received: nobody else is
    # granted the lock before that. Once the command got SIGTERM, the deadline is not extended any more.

    def __init__(self, line: socket.socket, deadline: float, grace: float, command: list[str]) -> None:
        self._line = line
        self._unread = b""
        self._grace = grace
        self._term_at, self._kill_at = deadline - grace, deadline
        self._dead_at = inf
        self._stopping = False
        self._ended, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake)
        _outlive_signals()
        # Between fork and exec a function may run, since there is no other thread here.
        self._child = subprocess.Popen(command, start_new_session=True, preexec_fn=_die_with_parent)  # noqa: PLW1509

    def run(self) -> int:
        """Watch the command until it has ended, and, if it was stopped, its process group too; returns its status."""
        self._tell(f"pid {self._child.pid}")
        while (status := self._child.poll()) is None:
            # A later deadline may have been sent while this process began.
            self._wait()
            self._stop_if_due()
        while self._stopping and self._signal(0) and monotonic() < self._dead_at:
            self._stop_if_due()
            sleep(_LOOK_AGAIN)
        return status

    def _stop_if_due(self) -> None:
        if monotonic() >= self._kill_at:
            self._stopping = True
            self._signal(signal.SIGKILL)
            self._dead_at = min(self._dead_at, monotonic() + _TO_DIE)
            self._kill_at = monotonic() + _LOOK_AGAIN
        elif not self._stopping and monotonic() >= self._term_at:
            self._stop()

    def _stop(self) -> None:
        """Send SIGTERM, so that the command can end by itself in the time that is left."""
        self._stopping = True
        self._kill_at = min(self._kill_at, self._term_at + self._grace, monotonic() + self._grace)
        self._tell("stopping")
        self._signal(signal.SIGTERM)
        # A paused command handles no signal.
        self._signal(signal.SIGCONT)

    def _wait(self) -> None:
        due = self._kill_at if self._stopping else self._term_at
        reading: list[Any] = [self._ended] if self._line.fileno() < 0 else [self._ended, self._line]
        ready, _, _ = select.select(reading, [], [], max(0.0, due - monotonic()))
        if self._ended in ready:
            os.read(self._ended, 512)
        if self._line in ready:
            self._hear()

    def _hear(self) -> None:
        heard = b""
        with suppress(ConnectionError):
            heard = self._line.recv(4096)
        if not heard:
            # The holder of the lock is dead, and the lock lasts until the deadline.
            self._line.close()
            self._term_at = min(self._term_at, monotonic())
            return
        *lines, self._unread = (self._unread + heard).split(b"\n")
        for words in lines:
            self._obey(*words.decode().split())

    def _obey(self, act: str, *numbers: str) -> None:
        if act == "signal":
            self._signal(int(numbers[0]))
        elif act == "kill":
            self._stopping, self._kill_at = True, 0.0
        elif not self._stopping:
            deadline, self._grace = map(float, numbers)
            self._term_at, self._kill_at = deadline - self._grace, deadline

    def _signal(self, number: int) -> bool:
        """Send a signal to the processes of the group that may get it; returns whether the group exists."""
        with suppress(PermissionError):
            try:
                os.killpg(self._child.pid, number)
            except ProcessLookupError:
                return False
        return True

    def _tell(self, words: str) -> None:
        tell(self._line, words)


def tell(line: socket.socket, words: str) -> None:
    """Send a line to the other process, if it still runs."""
    with suppress(OSError):
        line.sendall(f"{words}\n".encode())


def _outlive_signals() -> None:
    """
    Let the guard outlive a signal that ends the command: a supervisor may send it to all processes.

    The command itself begins with the default handling of these signals, and ignores those that the guard ignores.
    """
    for each in PASSED_ON:
        if signal.getsignal(each) is not signal.SIG_IGN:
            signal.signal(each, lambda *_: None)
    signal.signal(signal.SIGCHLD, lambda *_: None)


def _fill_streams() -> None:
    """Open the standard streams that are closed, so that no other file of the guard gets their numbers."""
    while (number := os.open(os.devnull, os.O_RDWR)) in _STREAMS:
        pass
    os.close(number)


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(*_DIE_WITH_PARENT)


def main() -> None:
    """Run a command; the arguments are the number of the line, the first deadline, the grace, and the command."""
    _, number, deadline, grace, *command = sys.argv
    line = socket.socket(fileno=int(number))
    line.set_inheritable(False)
    _fill_streams()
    try:
        guard = Guard(line, float(deadline), float(grace), command)
    except OSError as error:
        tell(line, f"cannot {error.errno}")
        return
    nowhere = os.open(os.devnull, os.O_RDWR)
    # The readers of the command's output need not wait for the guard.
    for stream in _STREAMS:
        os.dup2(nowhere, stream)
    tell(line, f"ended {guard.run()}")


if __name__ == "__main__":
    main()
