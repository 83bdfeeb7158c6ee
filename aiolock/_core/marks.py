"""
Marks: what a holder leaves in Redis for those whom it makes wait, a short text that its telemetry gave.

What is held for a moment leaves nothing, since it can make nobody wait for long. Without telemetry nothing of this is
there, and nothing is sent.
"""

import asyncio
from collections import OrderedDict
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

    # Invariant: a hold that has a mark is in `texts` until it ends. From its grant on it is in `_young`, and once the
    # mark was left, in `_left`, by when that is to be done next. Both are in that order, and the timer runs while
    # there is anything in them.

    def __init__(self, telemetry: Telemetry, entries: Entries, commands: Commands, timing: Timing) -> None:
        self.telemetry: Telemetry = telemetry
        self._hears_release: Callable[[], bool] = getattr(telemetry, "hears_release", lambda: True)
        self._commands = commands
        self._timing = timing
        self._patience = telemetry.patience
        self._loop = asyncio.get_running_loop()
        self._context = Context()  # Of the timers: what the user's tasks carry is not kept alive by them.
        self.texts: dict[Hold, str] = {}
        self._young: OrderedDict[Hold, float] = OrderedDict()
        self._left: OrderedDict[Hold, float] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    def hears_release(self) -> bool:
        """Whether a `Released` is to be made; see `Telemetry`."""
        try:
            return self._hears_release()
        except Exception:
            return True

    # Left.

    def keep(self, hold: Hold, mark: str) -> None:
        """*hold* was granted, and is to leave this *mark*."""
        self.texts[hold] = mark[:_LONGEST]
        self._young[hold] = hold.since + self._patience / 4
        self._plan()

    def ended(self, hold: Hold) -> None:
        """*hold* is no more; another may have left its mark since."""
        if (mark := self.texts.pop(hold, None)) is not None:
            self._young.pop(hold, None)
            if self._left.pop(hold, None) is not None:
                self._commands.leave_mark(hold, mark, 0)

    def _plan(self) -> None:
        if self._timer is None and self.texts:
            due = min(next(iter(each.values())) for each in (self._young, self._left) if each)
            self._timer = self._loop.call_later(due - monotonic(), self._leave, context=self._context)

    def _leave(self) -> None:
        self._timer = None
        now = monotonic()
        for due in (self._young, self._left):
            while due and next(iter(due.values())) <= now:
                hold, _ = due.popitem(last=False)
                self._left[hold] = now + self._timing.renew_interval
                ttl = min(hold.expires - now, self._timing.lease)  # No longer than the lock, if nobody renews it.
                if ttl > 0:
                    self._commands.leave_mark(hold, self.texts[hold], ttl)
        self._plan()

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
            wait.mark = self.texts.get(hold)
        else:
            self._commands.read_mark(wait.keys).when_ended(wait.learn)
        self._look_in(wait, 2 * waited)  # In case that there is none yet.

    def close(self, client: str) -> None:
        """The client is closed."""
        if self._timer is not None:
            self._timer.cancel()
        self.telemetry.closed(client)
