"""
The watchdog: a deadline for every hold, and a task that pushes it out for each whose user asked for it.

The task of a hold is made when its first renewal is due; until then it stands in an alarm beside others, so that a
short critical section pays for no more. From then on the deadline is guarded too (where nothing is renewed, from the
beginning), by a timer of its own, so that a renewal that hangs, or a task that somebody else cancelled, cannot hide the
loss. A failed renewal is *unknown*, not *lost*: it is tried again until the deadline.

Renewals that are due in the same turn of the loop leave together, and each task waits for its own answer.
"""

import asyncio
import math
from collections.abc import Sequence
from contextvars import Context
from functools import partial
from time import monotonic

from aiolock._backend import Call
from aiolock._core.hold import CLEANUP, Hold
from aiolock._core.lease_manager import LeaseManager
from aiolock._core.report import Reporter

Answer = tuple[Call, int]  # With the row that is for the hold in question.


class Watchdog:
    """Watches over the holds of one client; *interval* is the time from one renewal to the next, in seconds."""

    # Invariant: a hold that is to be renewed has an alarm, which starts its task or wakes it, or its task waits for an
    # answer. A hold that is watched over has a guard for its deadline, or such an alarm, which comes before that.

    def __init__(self, leases: LeaseManager, report: Reporter, interval: float) -> None:
        self._leases = leases
        self._report = report
        self._interval = interval
        self._loop = asyncio.get_running_loop()
        self._context = Context()  # Of the timers: what the user's tasks carry is not kept alive by them.
        self._grain = min(0.025, interval / 10)  # Alarms are set to its multiples, so that many ring in one turn.
        self._alarms: dict[int, dict[Hold, None]] = {}  # By how many grains: each has one timer, for all its holds.
        self._due: dict[Hold, asyncio.Future[Answer]] = {}  # To be asked for at the end of this turn of the loop.

    def watch(self, hold: Hold) -> None:
        """Watch over *hold* until it ends; again whenever its leases changed."""
        if hold.watched:
            # What it was doubted for is not put off by an answer to what was sent before.
            self._set_alarm(hold, monotonic() if hold.doubted >= hold.heard else hold.renew_at)
        if not hold.watched or hold.renewal > 0:
            self._guard(hold)

    def check(self, hold: Hold) -> None:
        """Renew *hold* now, or ask the server whether it still has it: it may have forgotten."""
        hold.doubted = monotonic()
        self._set_alarm(hold, hold.doubted)

    # Renewals.

    def _set_alarm(self, hold: Hold, due: float) -> None:
        if hold.asked:
            return  # What is next follows from the answer.
        if hold.alarm is not None:
            if due >= hold.due:  # It is set again when it rings.
                hold.due = due
                return
            del hold.alarm[hold]
        hold.due = due
        at = math.ceil(due / self._grain)
        alarm = self._alarms.get(at)
        if alarm is None:
            alarm = self._alarms[at] = {}
            self._loop.call_later(at * self._grain - monotonic(), self._ring, at, context=self._context)
        alarm[hold] = None
        hold.alarm = alarm

    def _ring(self, at: int) -> None:
        alarm = self._alarms.pop(at)
        for hold in list(alarm):
            if hold.alarm is alarm:  # Else it has ended by what became of another.
                hold.alarm = None
                self._wake(hold)

    def _wake(self, hold: Hold) -> None:
        """Have the task of *hold* renew it, if that is due; makes the task the first time."""
        if monotonic() < hold.due:
            self._set_alarm(hold, hold.due)
        elif hold.asleep is None:
            hold.asked = True
            self._guard(hold)  # The task may be cancelled by somebody else, and before it begins.
            name = f"aiolock: watchdog of lock {hold.keys.name!r}"
            hold.watchdog = self._loop.create_task(self._keep(hold), name=name)  # Its context is the alarm's.
            hold.watchdog.add_done_callback(partial(self._end, hold), context=self._context)
        elif not hold.asleep.done():  # Else the task was cancelled just now.
            hold.asked = True
            hold.asleep.set_result(None)

    async def _keep(self, hold: Hold) -> None:
        """The task of one lock entry: renews it whenever that is due."""
        while self._is_to_be_renewed(hold):
            call, row = await self._answer(hold)
            hold.asked = False
            renewed = call.error is None and self._leases.note_renewal(hold, call, row)
            self._plan_next(hold, call, renewed=renewed)
            if hold.alarm is None:
                return  # It has ended, or is not to be renewed any more.
            hold.asleep = self._loop.create_future()
            await hold.asleep
            hold.asleep = None

    def _end(self, hold: Hold, task: asyncio.Task[None]) -> None:
        """
        The *task* of *hold* has ended; cancelled by somebody else, perhaps before it began, it has a successor.

        But not where nobody who still is will release the lock, as at the end of a loop: then it is left to its guard.
        """
        hold.watchdog = hold.asleep = None
        hold.asked = False
        if hold.alarm is None and not hold.ended and hold.is_awaited and (hold.watched or task.cancelled()):
            self._set_alarm(hold, monotonic() + self._interval / 10)

    def _answer(self, hold: Hold) -> "asyncio.Future[Answer]":
        """What the server answers to the renewal of *hold*, which leaves with all others of this turn of the loop."""
        answer = self._due[hold] = self._loop.create_future()
        if len(self._due) == 1:
            self._loop.call_soon(self._ask, context=self._context)
        return answer

    def _is_to_be_renewed(self, hold: Hold) -> bool:
        """Whether *hold* is not over; renewed is what its user asked for, any other is asked after."""
        hold.look(hold.due)
        self._lose_or_guard(hold)
        late = monotonic() - hold.renew_at
        if not hold.ended and hold.watched and not hold.unanswered and late > self._interval / 2:
            self._report.renewal_late(hold, late)  # It is due in time to the event loop, which something blocked.
        return not hold.ended

    def _ask(self) -> None:
        due, self._due = self._due, {}
        for call, holds in self._leases.ask_renewals([hold for hold in due if not hold.ended]):
            call.when_ended(partial(_answered, [due[hold] for hold in holds]))

    def _plan_next(self, hold: Hold, call: Call, *, renewed: bool) -> None:
        if hold.ended:
            return
        if renewed and call.sent <= hold.doubted:
            self._set_alarm(hold, monotonic())
        elif renewed:
            if hold.watched:
                self._set_alarm(hold, hold.renew_at)
        else:
            late = monotonic() - hold.renew_at  # Below zero when `check` brought the renewal forward.
            if hold.watched and late > 0:
                self._report.renewal_late(hold, late)
            self._set_alarm(hold, monotonic() + self._interval / 10)

    # Deadlines.

    def _lose_or_guard(self, hold: Hold) -> None:
        if monotonic() >= hold.deadline:
            self._leases.lose(hold, "unreachable" if hold.unanswered else "expired")
        else:
            self._guard(hold)

    def _guard(self, hold: Hold) -> None:
        """See to it that the deadline is not missed."""
        if hold.guard is not None:
            if hold.guard_at <= hold.deadline:
                return
            hold.guard.cancel()  # The server says that less is left than was thought.
        self._set_guard(hold, hold.deadline - CLEANUP - self._grain)

    def _set_guard(self, hold: Hold, when: float) -> None:
        hold.guard_at = when
        hold.guard = self._loop.call_later(when - monotonic(), self._look, hold, context=self._context)

    def _look(self, hold: Hold) -> None:
        """Have the bodies look, well before the deadline and again, and be there when it comes."""
        hold.guard = None
        hold.look(hold.guard_at)
        now = monotonic()
        left = hold.deadline - now
        if left > CLEANUP + self._grain or left <= 0:  # Renewals have moved it, or it has come.
            self._lose_or_guard(hold)
        else:
            self._set_guard(hold, now + (min(left, CLEANUP / 10) if hold.bodies else left))


def _answered(waiting: Sequence["asyncio.Future[Answer]"], call: Call) -> None:
    for row, answer in enumerate(waiting):
        if not answer.done():
            answer.set_result((call, row))
