"""
Marks: short texts that the telemetry of a holder leaves in Redis for the waiters of its lock.

A lock that is held for a moment gets no mark, because nobody waits long for it. The core knows only an `Observer`, and
a client without telemetry has no observer.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context
from functools import partial
from time import monotonic

from aiolock._backend import Call
from aiolock._config import Timing
from aiolock._core.commands import Commands
from aiolock._core.held import Held
from aiolock._core.leases import Entries
from aiolock._core.report import Wait
from aiolock._core.session import Observe
from aiolock._events import Acquired, Telemetry
from aiolock._keys import mark_key
from aiolock._scripts import MARK, READ_MARK
from aiolock._types import milliseconds

# Characters of a mark.
_LONGEST = 200


def observed_by(telemetry: Telemetry | None) -> Observe | None:
    """The function that begins to observe a client for *telemetry*, if there is any."""
    if telemetry is None:
        return None
    return lambda entries, commands, timing: Marks(telemetry, entries, commands, timing)


class Marks:
    """The marks that one client leaves and looks for: an `Observer`."""

    # Invariant: a hold that has a mark is in `_texts`, and until it ends it has a timer, which leaves the mark
    # for the first time, or again.

    def __init__(self, telemetry: Telemetry, entries: Entries, commands: Commands, timing: Timing) -> None:
        self._telemetry = telemetry
        self._hears_release: Callable[[], bool] = getattr(telemetry, "hears_release", lambda: True)
        self._entries = entries
        self._commands = commands
        self._timing = timing
        self._patience = telemetry.patience
        self._loop = asyncio.get_running_loop()
        # Timers run in a context of their own, so that they keep nothing of a user's context alive.
        self._context = Context()
        self._texts: dict[Held, str] = {}
        self._timers: dict[Held, asyncio.TimerHandle] = {}
        # The holds whose marks are in Redis.
        self._left: set[Held] = set()
        self._looks: dict[Wait, asyncio.TimerHandle] = {}

    # The methods of an `Observer`.

    def is_behind(self, hook: object) -> bool:
        return getattr(hook, "__self__", None) is self._telemetry

    def hears_release(self) -> bool:
        try:
            return self._hears_release()
        except Exception:
            return True

    def acquired(self, hold: Held, event: Acquired) -> None:
        if mark := self._telemetry.mark(event):
            # A lone surrogate has no encoding: its command could not leave, and would keep the commands beside it.
            text = mark[:_LONGEST].encode(errors="replace").decode()
            if hold not in self._texts:
                self._leave_in(self._patience / 4, hold)
            self._texts[hold] = text

    def ended(self, hold: Held) -> None:
        """Remove the mark of *hold*, which has ended, unless another hold has left its mark since."""
        if (mark := self._texts.pop(hold, None)) is not None:
            self._timers.pop(hold).cancel()
            if hold in self._left:
                self._left.remove(hold)
                self._send(hold, mark, 0)

    def wait_started(self, wait: Wait) -> None:
        self._look_in(wait, self._patience)

    def wait_ended(self, wait: Wait) -> None:
        if (look := self._looks.pop(wait, None)) is not None:
            look.cancel()

    def closed(self, client: str) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._telemetry.closed(client)

    # The marks of this client's holds.

    def _leave_in(self, seconds: float, hold: Held) -> None:
        self._timers[hold] = self._loop.call_later(seconds, self._leave, hold, context=self._context)

    def _leave(self, hold: Held) -> None:
        # It has ended without an event, if its last acquire was given up or failed.
        if hold.ended:
            self.ended(hold)
            return
        self._left.add(hold)
        # The mark lasts no longer than the lock, if nobody renews it.
        ttl = min(hold.expires - monotonic(), self._timing.lease)
        if ttl > 0:
            self._send(hold, self._texts[hold], ttl)
        self._leave_in(self._timing.renew_interval, hold)

    def _send(self, hold: Held, mark: str, ttl: float) -> None:
        """Leave *mark* next to the lock for *ttl* seconds; 0 removes it. Nothing waits for the answer."""
        _ = self._commands.send(MARK, (mark_key(hold.keys),), (hold.claim.id, mark, milliseconds(ttl)))

    # The marks of other clients' holds.

    def _look_in(self, wait: Wait, seconds: float) -> None:
        self._looks[wait] = self._loop.call_later(seconds, self._look, wait, seconds, context=self._context)

    def _look(self, wait: Wait, waited: float) -> None:
        """Look for the mark of the lock's holder, after a wait of *waited* seconds."""
        del self._looks[wait]
        if wait.mark is not None:
            return
        if (hold := self._entries.in_the_way(wait.keys)) is not None:
            wait.mark = self._texts.get(hold)
        else:
            self._commands.send(READ_MARK, (mark_key(wait.keys),), ()).when_ended(partial(_learn, wait))
        self._look_in(wait, 2 * waited)


def _learn(wait: Wait, asked: Call[list[str | None]]) -> None:
    """Note the mark in the server's answer."""
    if asked.answer is not None:
        [mark] = asked.answer
        wait.mark = mark or wait.mark
