"""The client card: says who a client is, in Redis, for as long as it holds anything."""

import asyncio
import os
import socket
import time
from collections.abc import Callable
from contextvars import Context

from aiolock._backend import Backend
from aiolock._scripts import CARD
from aiolock._types import milliseconds

_TTL = 90.0
_REFRESH = _TTL / 3


def card_key(client: str) -> str:
    """The key of the card of *client*."""
    return f"aiolock_client:{client}"


class Card:
    """Written with the first grant, and refreshed by one timer while *in_use* says so."""

    def __init__(self, client: str, name: str | None, backend: Backend, in_use: Callable[[], bool]) -> None:
        self._key = card_key(client)
        self._facts = (socket.gethostname(), os.getpid(), name or "", int(time.time()))
        self._backend = backend
        self._in_use = in_use
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._written = -_TTL  # When it was written last, on the monotonic clock.

    def show(self) -> None:
        """Something is held."""
        if self._timer is None:
            self._timer = self._loop.call_later(_REFRESH, self._refresh, context=Context())
            if time.monotonic() >= self._written + _REFRESH:
                self._write(_TTL)

    def take_away(self) -> None:
        """Nothing is held any more, nor will be."""
        if self._timer is not None:
            self._timer.cancel()
        if self._written > 0:
            self._write(0)

    def _refresh(self) -> None:
        self._timer = None
        if self._in_use():
            self.show()

    def _write(self, ttl: float) -> None:
        self._written = time.monotonic()
        _ = self._backend.submit(CARD, (self._key,), milliseconds(ttl), *self._facts)
