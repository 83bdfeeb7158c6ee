"""The client card: says who a client is, in Redis, for as long as it holds anything."""

import asyncio
import os
import socket
import time
from collections.abc import Callable, Collection
from contextvars import Context

from aiolock._core.commands import Commands

_TTL = 90.0
_REFRESH = _TTL / 3


class Card:
    """Written with the first grant, and refreshed by one timer while there is anything *held*."""

    def __init__(self, name: str | None, commands: Commands, held: Callable[[], Collection[object]]) -> None:
        self._facts = (socket.gethostname(), os.getpid(), name or "", int(time.time()))
        self._commands = commands
        self._held = held
        self._loop = asyncio.get_running_loop()
        self.shown: asyncio.TimerHandle | None = None  # It is there, and will be seen to.
        self._written = False

    def show(self) -> None:
        """Something is held."""
        if self.shown is None:
            self.shown = self._loop.call_later(_REFRESH, self._refresh, context=Context())
            self._write(_TTL)

    def take_away(self) -> None:
        """Nothing is held any more, nor will be."""
        if self.shown is not None:
            self.shown.cancel()
        if self._written:
            self._write(0)

    def _refresh(self) -> None:
        self.shown = None
        if self._held():
            self.show()

    def _write(self, ttl: float) -> None:
        self._written = True
        self._commands.write_card(ttl, self._facts)
