"""
The watchdog: a deadline for every hold, and renewals that push it out for those whose user asked for it.

Both lie on wheels: one timer of the loop serves all that is due within the same moment, and what is to be renewed then
is renewed together. Nobody waits for the answers: they are taken note of as they come, since a task for each of ten
thousand holds would cost more than all the rest. From the first renewal on the deadline is guarded too (where nothing
is renewed, from the beginning; so a short critical section never pays for it), so that a renewal that hangs cannot hide
the loss. A failed renewal is *unknown*, not *lost*: it is tried again until the deadline.
"""

import asyncio
from collections.abc import Iterable, Sequence
from contextvars import Context
from functools import partial
from time import monotonic
from typing import Protocol

from aiolock._call import Call
from aiolock._errors import LossReason
from aiolock._lease import CLEANUP, Hold
from aiolock._wheel import Wheel


class Ward(Protocol):
    """What the watchdog needs of whoever knows how to renew."""

    def ask_renewals(self, holds: Sequence[Hold]) -> Iterable[tuple[Call, Sequence[Hold]]]:
        """
        Ask the server to renew *holds*, or whether it still has those that are not to be renewed; does not wait.

        Each call is for some of them.
        """

    def note_renewal(self, hold: Hold, call: Call, row: int) -> bool:
        """Take note of that *row* of the answer: *hold* is renewed, or lost; ``False`` if it does not count."""

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
        self._grain = min(0.025, interval / 10)
        self._renewals = Wheel(self._renewals_due, self._grain)
        self._deadlines = Wheel(self._deadlines_near, self._grain)

    def watch(self, hold: Hold) -> None:
        """Watch over *hold* until `forget`; again whenever its leases changed."""
        if hold.watched and not hold.asked:
            self._plan_renewal(hold, hold.renew_at)
        if not hold.watched or hold.renewal > 0:
            self._guard(hold)

    def check(self, hold: Hold) -> None:
        """Renew *hold* now, or ask the server whether it still has it: it may have forgotten."""
        hold.doubted = monotonic()
        if not hold.asked:
            self._plan_renewal(hold, hold.doubted)

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
        hold.deadline_slot = self._deadlines.add(hold, hold.deadline - CLEANUP - self._grain)

    def _deadlines_near(self, holds: list[Hold]) -> None:
        while holds:
            hold = holds.pop()
            if not hold.ended and hold.deadline_slot is not None:
                due, hold.deadline_slot = hold.deadline_slot * self._grain, None
                self._deadline_near(hold, due)

    def _deadline_near(self, hold: Hold, due: float) -> None:
        """Have the bodies look, which was *due* by now, and again, and be there when the deadline comes."""
        hold.look(due)
        now = monotonic()
        left = hold.deadline - now
        if left > CLEANUP + self._grain:  # Renewals have moved it.
            self._guard(hold)
        else:
            step = min(left, CLEANUP / 10) if hold.bodies else left
            hold.timer = self._loop.call_later(step, self._deadline_due, hold, now + step, context=self._context)

    def _deadline_due(self, hold: Hold, due: float) -> None:
        hold.timer = None
        if monotonic() < hold.deadline:
            self._deadline_near(hold, due)
        else:
            hold.look(due)
            self._lose_or_guard(hold)

    def _renewals_due(self, holds: list[Hold]) -> None:
        due = []
        while holds:
            hold = holds.pop()
            if not hold.ended and self._is_due(hold):
                due.append(hold)
        for call, asked in self._ward.ask_renewals(due):
            call.when_ended(partial(self._answered, asked))

    def _is_due(self, hold: Hold) -> bool:
        """Whether *hold* is to be renewed now, and not over."""
        assert hold.renewal_slot is not None
        hold.look(hold.renewal_slot * self._grain)
        hold.renewal_slot = None
        self._lose_or_guard(hold)
        if hold.ended:
            return False
        if hold.watched:
            self._note_lateness(hold)
        hold.asked = True
        return True

    def _lose_or_guard(self, hold: Hold) -> None:
        if monotonic() >= hold.deadline:
            self._ward.lose(hold, "unreachable" if hold.unanswered else "expired")
        else:
            self._guard(hold)

    def _answered(self, holds: Sequence[Hold], call: Call) -> None:
        """The renewals of *holds* have their answer, or have failed."""
        for row, hold in enumerate(holds):
            hold.asked = False
            if not hold.ended:
                self._plan_next(hold, call, renewed=call.error is None and self._ward.note_renewal(hold, call, row))

    def _plan_next(self, hold: Hold, call: Call, *, renewed: bool) -> None:
        if hold.ended:
            return
        if renewed and call.sent <= hold.doubted:
            self._plan_renewal(hold, monotonic())
        elif renewed:
            if hold.watched:
                self._plan_renewal(hold, hold.renew_at)
        else:
            late = monotonic() - hold.renew_at  # Below zero when `check` brought the renewal forward.
            if hold.watched and late > 0:
                self._ward.late(hold, late)
            self._plan_renewal(hold, monotonic() + self._interval / 10)

    def _note_lateness(self, hold: Hold) -> None:
        """Renewals are due in time to the event loop; when they are not, something blocked it."""
        late = monotonic() - hold.renew_at
        if not hold.unanswered and late > self._interval / 2:
            self._ward.late(hold, late)
