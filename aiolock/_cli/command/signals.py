"""Signals to this process: they end the wait for the lock, and later go to the command."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


class Signals:
    """Cancels the task in which it is made, until there is a command to *pass_to*."""

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        self.received: int | None = None
        """The signal that cancelled the task."""
        self.pass_to: Callable[[int], None] | None = None

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Handle the signals, except those that the parent process ignores (`nohup`): the command ignores them too."""
        loop = asyncio.get_running_loop()
        ours = [each for each in _PASSED_ON if signal.getsignal(each) is not signal.SIG_IGN]
        for each in ours:
            loop.add_signal_handler(each, self._receive, each)
        try:
            yield
        finally:
            for each in ours:
                loop.remove_signal_handler(each)

    def _receive(self, number: int) -> None:
        if self.pass_to is not None:
            self.pass_to(number)
        elif self.received is None and self._task is not None:
            self.received = number
            self._task.cancel()
