"""
The watchdog: a deadline for every hold, and renewals that push it out for those whose user asked for it.

Both lie on wheels: one timer of the loop serves all that is due within the same moment. Each hold has a task of its own
that deals with the answers to its renewals; it starts when the first is due, so that a short critical section never
pays for it. From then on the deadline is guarded too (where nothing is renewed, from the beginning), so that a renewal
that hangs cannot hide the loss. A failed renewal is *unknown*, not *lost*: it is tried again until the deadline.
"""

import asyncio
from contextvars import Context
from time import monotonic
from typing import Protocol

from aiolock._call import Call
from aiolock._errors import LossReason
from aiolock._lease import Hold
from aiolock._wheel import Wheel


class Ward(Protocol):
    """What the watchdog needs of whoever knows how to renew."""

    def ask_renewal(self, hold: Hold) -> Call:
        """Ask the server to renew *hold*, or whether it still has it if that is not to be renewed; does not wait."""

    def note_renewal(self, hold: Hold, call: Call) -> bool:
        """Take note of the answer to *call*: *hold* is renewed, or lost; ``False`` if it does not count."""

    def lose(self, hold: Hold, reason: LossReason) -> None:
        """The lease of *hold* is over."""

    def late(self, hold: Hold, seconds: float) -> None:
        """A renewal of *hold* is that far behind."""


class Watchdog:
    """Watches over the holds of one client; *interval* is the time from one renewal to the next, in seconds."""

    # Invariant: a hold that is watched over has a place or a timer for its deadline, or a renewal planned, which comes
    # before that.

    def __init__(self, ward: Ward, interval: float) -> None:
        self._ward = ward
        self._interval = interval
        self._loop = asyncio.get_running_loop()
        self._context = Context()  # Of the timers: what the user's tasks carry is not kept alive by them.
        self._grain = min(0.01, interval / 10)
        self._renewals = Wheel(self._renewal_due, self._grain)
        self._deadlines = Wheel(self._deadline_near, self._grain)

    def watch(self, hold: Hold) -> None:
        """Watch over *hold* until `forget`; again whenever its leases changed."""
        if hold.watched and not hold.asked:
            self._plan_renewal(hold, hold.renew_at)
        if not hold.watched or hold.watchdog is not None:
            self._guard(hold)

    def check(self, hold: Hold) -> None:
        """Renew *hold* now, or ask the server whether it still has it: it may have forgotten."""
        if not hold.asked:
            self._plan_renewal(hold, monotonic())

    def forget(self, hold: Hold) -> None:
        """The hold has ended."""
        if hold.renewal_slot is not None:
            self._renewals.remove(hold, hold.renewal_slot)
            hold.renewal_slot = None
        if hold.deadline_slot is not None:
            self._deadlines.remove(hold, hold.deadline_slot)
            hold.deadline_slot = None
        if hold.timer is not None:
            hold.timer.cancel()
            hold.timer = None
        if hold.watchdog is not None and hold.watchdog is not asyncio.current_task():
            hold.watchdog.cancel()
        hold.watchdog = None

    def close(self) -> None:
        """All holds have ended."""
        self._renewals.tidy()
        self._deadlines.tidy()

    def _plan_renewal(self, hold: Hold, when: float) -> None:
        if hold.renewal_slot is not None:
            self._renewals.remove(hold, hold.renewal_slot)
        hold.renewal_slot = self._renewals.add(hold, when)

    def _guard(self, hold: Hold) -> None:
        """See to it that the deadline is not missed: once it is near, by a timer of its own."""
        if hold.timer is not None:
            return
        if hold.deadline_slot is not None:
            if hold.deadline_slot * self._grain <= hold.deadline:
                return
            self._deadlines.remove(hold, hold.deadline_slot)  # The server says that less is left than was thought.
        hold.deadline_slot = self._deadlines.add(hold, hold.deadline - self._grain)

    def _deadline_near(self, hold: Hold) -> None:
        hold.deadline_slot = None
        left = hold.deadline - monotonic()
        if left > self._grain:  # Renewals have moved it.
            self._guard(hold)
        else:
            hold.timer = self._loop.call_later(left, self._deadline_due, hold, context=self._context)

    def _deadline_due(self, hold: Hold) -> None:
        hold.timer = None
        self._lose_or_guard(hold)

    def _renewal_due(self, hold: Hold) -> None:
        hold.renewal_slot = None
        self._lose_or_guard(hold)
        if hold.ended:
            return
        if hold.watched:
            self._note_lateness(hold)
        hold.asked = True
        if hold.watchdog is None or hold.watchdog.done():
            hold.answer = self._loop.create_future()
            hold.watchdog = self._loop.create_task(self._keep(hold, hold.answer), context=Context())
        self._ward.ask_renewal(hold).when_ended(hold.renewal_answered)

    def _lose_or_guard(self, hold: Hold) -> None:
        if monotonic() >= hold.deadline:
            self._ward.lose(hold, "unreachable" if hold.unanswered else "expired")
        else:
            self._guard(hold)

    async def _keep(self, hold: Hold, answer: asyncio.Future[Call]) -> None:
        """See to what becomes of the renewals of *hold*, one after the other: the next is sent when it is due."""
        while not hold.ended:
            call = await answer
            answer = hold.answer = self._loop.create_future()
            hold.asked = False
            if call.error is None and self._ward.note_renewal(hold, call):
                if hold.watched:
                    self._plan_renewal(hold, hold.renew_at)
            elif not hold.ended:
                if hold.watched:
                    self._ward.late(hold, monotonic() - hold.renew_at)
                self._plan_renewal(hold, monotonic() + self._interval / 10)

    def _note_lateness(self, hold: Hold) -> None:
        """Renewals are due in time to the event loop; when they are not, something blocked it."""
        late = monotonic() - hold.renew_at
        if not hold.unanswered and late > self._interval / 2:
            self._ward.late(hold, late)
