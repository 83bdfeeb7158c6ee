"""
Marks: what a holder leaves in Redis for those whom it makes wait, a short text that its telemetry gave.

What is held for a moment leaves nothing, since it can make nobody wait for long. Without telemetry nothing of this is
there, and nothing is sent.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context
from time import monotonic

from aiolock._backend import Call
from aiolock._config import Timing
from aiolock._core.commands import Commands
from aiolock._core.hold import Hold
from aiolock._core.queue import Entries
from aiolock._events import Telemetry
from aiolock._keys import LockKeys

_LONGEST = 200  # Characters of a mark.


class Wait:
    """An acquire that waits, and what is known of whoever has the lock meanwhile."""

    __slots__ = ("_entries", "holder", "keys", "look", "mark")

    def __init__(self, entries: Entries, keys: LockKeys) -> None:
        self._entries = entries
        self.keys: LockKeys = keys
        hold = self.hold()
        self.holder: str | None = None if hold is None else hold.owner  # When the wait began.
        self.mark: str | None = None
        self.look: asyncio.TimerHandle | None = None  # Will look for it.

    def hold(self) -> Hold | None:
        """The hold of this client that is in the way now, if it is one of this client."""
        entries = (self._entries.get(self.keys.entry), self._entries.get(self.keys.other))
        return next((entry.hold for entry in entries if entry is not None and entry.hold is not None), None)

    def learn(self, answer: Call) -> None:
        """The server was asked for the mark."""
        if answer.error is None and answer.reply[0] is not None:
            self.mark = answer.reply[0].decode(errors="replace")

    def end(self) -> None:
        if self.look is not None:
            self.look.cancel()


class Marks:
    """The marks that one client leaves and looks for."""

    # Invariant: a hold that has a mark is in `_texts` and has a timer, which will leave it or did and will again, until
    # it ends.

    def __init__(self, telemetry: Telemetry, entries: Entries, commands: Commands, timing: Timing) -> None:
        self.telemetry: Telemetry = telemetry
        self._hears_release: Callable[[], bool] = getattr(telemetry, "hears_release", lambda: True)
        self._commands = commands
        self._timing = timing
        self._patience = telemetry.patience
        self._loop = asyncio.get_running_loop()
        self._context = Context()  # Of the timers: what the user's tasks carry is not kept alive by them.
        self._texts: dict[Hold, str] = {}
        self._timers: dict[Hold, asyncio.TimerHandle] = {}
        self._left: set[Hold] = set()  # Whose marks were left.

    def hears_release(self) -> bool:
        """Whether a `Released` is to be made; see `Telemetry`."""
        try:
            return self._hears_release()
        except Exception:
            return True

    # Left.

    def keep(self, hold: Hold, mark: str) -> None:
        """*hold* was granted, and is to leave this *mark*."""
        if hold not in self._texts:
            self._leave_in(self._patience / 4, hold)
        self._texts[hold] = mark[:_LONGEST]

    def ended(self, hold: Hold) -> None:
        """*hold* is no more; another may have left its mark since."""
        if (mark := self._texts.pop(hold, None)) is not None:
            self._timers.pop(hold).cancel()
            if hold in self._left:
                self._left.remove(hold)
                self._commands.leave_mark(hold, mark, 0)

    def _leave_in(self, seconds: float, hold: Hold) -> None:
        self._timers[hold] = self._loop.call_later(seconds, self._leave, hold, context=self._context)

    def _leave(self, hold: Hold) -> None:
        if hold.ended:  # Which was not told of: its last acquire was given up, or failed.
            self.ended(hold)
            return
        self._left.add(hold)
        ttl = min(hold.expires - monotonic(), self._timing.lease)  # No longer than the lock, if nobody renews it.
        if ttl > 0:
            self._commands.leave_mark(hold, self._texts[hold], ttl)
        self._leave_in(self._timing.renew_interval, hold)

    # Looked for.

    def look_for(self, wait: Wait) -> None:
        """Find out, once it has waited for long, who makes it wait."""
        self._look_in(wait, self._patience)

    def _look_in(self, wait: Wait, seconds: float) -> None:
        wait.look = self._loop.call_later(seconds, self._look, wait, seconds, context=self._context)

    def _look(self, wait: Wait, waited: float) -> None:
        if wait.mark is not None:
            return
        if (hold := wait.hold()) is not None:
            wait.mark = self._texts.get(hold)
        else:
            self._commands.read_mark(wait.keys).when_ended(wait.learn)
        self._look_in(wait, 2 * waited)  # In case that there is none yet.

    def close(self, client: str) -> None:
        """The client is closed."""
        for timer in self._timers.values():
            timer.cancel()
        self.telemetry.closed(client)
