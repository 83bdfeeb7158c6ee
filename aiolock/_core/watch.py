"""The watchdog's data of one hold: its renewals, its task and its timers."""

import asyncio
from time import monotonic
from typing import Any

from aiolock._backend import Call
from aiolock._words import shortened


class Watch:
    """The watchdog's data of one hold."""

    # The defaults are class attributes, so that a short section does not set any of them.
    renews: bool = False
    """Whether the hold is to be renewed: one of its leases asks for it, and it has not ended."""
    renew_at: float = 0.0
    """The time of the next renewal, by the last answer that had the key's time to live."""
    asked_until: float = 0.0
    """The latest time until which a command, answered or not, has asked the server to keep the lock."""
    number: int = 0
    """The number of the last renewal that was sent."""
    acknowledged: int = 0
    """How many renewals were acknowledged."""
    unanswered: int = 0
    """How many renewals since the last acknowledged one are on their way, have failed, or were cancelled."""
    call: Call | None = None
    """The last of these renewals, if the watchdog has sent it."""
    late: bool = False
    """Whether a late renewal was logged, and none has been acknowledged since."""
    doubted: float = 0.0
    """The time at which the server may have lost the hold; only a command that was sent later can show it."""
    task: asyncio.Task[None] | None = None
    """Renews the hold, from the first due time on."""
    asleep: asyncio.Future[None] | None = None
    """The future that the task awaits while nothing is due."""
    asked: bool = False
    """Whether a renewal of the task is on its way."""
    alarm: "dict[Watch, Any] | None" = None
    """The alarm that will start or wake the task: the holds that have the same alarm."""
    due: float = 0.0
    """The time of the next renewal; the alarm rings at this time or before."""
    guard: asyncio.TimerHandle | None = None
    """Checks at `guard_at` whether the deadline has come."""
    guard_at: float = 0.0

    @property
    def trouble(self) -> str | None:
        """The reason why the last renewal was not acknowledged, as a text, if it is known."""
        call = self.call
        if call is None:
            return None
        if call.short is not None:
            return "{} of {} replicas acknowledged it".format(*call.short)
        return None if call.trouble is None else shortened(str(call.trouble)) or type(call.trouble).__name__

    def note_end(self, call: Call) -> None:
        """Note the end of *call*, a renewal: if it was acknowledged, no renewal is outstanding."""
        if call.error is None and call.short is None:
            self.unanswered = 0

    def ask_for(self, seconds: float) -> None:
        """Note that the server is asked now to keep the lock for that many *seconds*."""
        self.asked_until = max(self.asked_until, monotonic() + seconds)

    def sent(self, call: Call) -> None:
        """Note that the watchdog has sent *call*; it has the trouble of the call before until it ends."""
        if call.trouble is None and self.call is not None:
            call.trouble = self.call.trouble
        self.call = call
