"""
The watchdog: a deadline for every hold, and a task that pushes it out for those whose user asked for it.

The deadline has a timer of its own, so that a renewal that hangs cannot hide the loss. The task starts when the
first renewal is due, so that a short critical section never pays for it; each hold has its own, so that one that is
slow delays no other. A failed renewal is *unknown*, not *lost*: it is tried again until the deadline.
"""

import asyncio
from contextvars import Context
from time import monotonic
from typing import Protocol

from aiolock._errors import BackendError, LossReason
from aiolock._lease import Hold


class Ward(Protocol):
    """What the watchdog needs of whoever knows how to renew."""

    async def renew(self, hold: Hold) -> None:
        """Renew *hold*, or learn that it is lost; `BackendError` when neither is known."""

    def lose(self, hold: Hold, reason: LossReason) -> None:
        """The lease of *hold* is over."""

    def late(self, hold: Hold, seconds: float) -> None:
        """A renewal of *hold* is that far behind."""


class Watchdog:
    """Watches over the holds of one client; *interval* is the time from one renewal to the next, in seconds."""

    def __init__(self, ward: Ward, interval: float) -> None:
        self._ward = ward
        self._interval = interval
        self._loop = asyncio.get_running_loop()

    def watch(self, hold: Hold) -> None:
        """Watch over *hold* until `forget`; again whenever its leases changed."""
        due = min(hold.renew_at, hold.deadline) if hold.watched and hold.watchdog is None else hold.deadline
        self._set_timer(hold, due)

    def forget(self, hold: Hold) -> None:
        """The hold has ended."""
        if hold.timer is not None:
            hold.timer.cancel()
            hold.timer = None
        if hold.watchdog is not None and hold.watchdog is not asyncio.current_task():
            hold.watchdog.cancel()
        hold.watchdog = None

    def _set_timer(self, hold: Hold, due: float) -> None:
        if hold.timer is not None:
            hold.timer.cancel()
        hold.timer = self._loop.call_later(due - monotonic(), self._due, hold, context=Context())

    def _due(self, hold: Hold) -> None:
        # Renewals move the deadline without touching the timer, so it may have come too early.
        if monotonic() >= hold.deadline:
            self._ward.lose(hold, "unreachable" if hold.unanswered else "expired")
            return
        if hold.watched and hold.watchdog is None and monotonic() >= hold.renew_at:
            hold.watchdog = self._loop.create_task(self._keep(hold), context=Context())
        self.watch(hold)

    async def _keep(self, hold: Hold) -> None:
        """Renew *hold* while it is watched."""
        while hold.watched:
            self._note_lateness(hold)
            try:
                await self._ward.renew(hold)
            except BackendError:
                self._ward.late(hold, monotonic() - hold.renew_at)
                await asyncio.sleep(self._interval / 10)
            else:
                await asyncio.sleep(hold.renew_at - monotonic())
        if hold.watchdog is asyncio.current_task():
            hold.watchdog = None  # A later lease may want it again.

    def _note_lateness(self, hold: Hold) -> None:
        """Renewals are due in time to the event loop; when they are not, something blocked it."""
        late = monotonic() - hold.renew_at
        if not hold.unanswered and late > self._interval / 2:
            self._ward.late(hold, late)
