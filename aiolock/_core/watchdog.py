"""
The watchdog: it loses each hold at its deadline, and has a task for each hold that is to be renewed.

The task of a hold is made when its first renewal is due; until then, the hold only shares an alarm with others, so that
a short critical section is cheap. From then on (for a hold without renewals, from the beginning), the hold has a timer
for its deadline, so that a hanging renewal, or a task that other code has cancelled, cannot hide the loss. After a
failed renewal the state of the lock is unknown; the renewal is tried again until the deadline.

Renewals that are due in the same turn of the loop are sent together, and each task waits for its own answer.
"""

import asyncio
import math
from collections.abc import Sequence
from functools import partial
from time import monotonic

from aiolock._config import Timing
from aiolock._core.commands import Commands
from aiolock._core.held import CLEANUP, Renewal
from aiolock._core.hold import BaseLease, Hold, margin
from aiolock._core.renewer import RenewalCall, Renewer, next_number
from aiolock._core.report import Reporter
from aiolock._core.watch import Watch
from aiolock._errors import BackendError, NotHeldError, ReplicationError
from aiolock._scripts.replies import Granted, Lost, Renewed
from aiolock._types import quoted


class Watchdog(Renewer[Hold]):
    """Watches over the holds of one client."""

    # Invariant: a hold that is to be renewed has an alarm, which starts or wakes its task, or its task waits for an
    # answer. Each watched hold has a guard, which is a timer for its deadline, or an alarm before its deadline.

    def __init__(self, commands: Commands, report: Reporter, timing: Timing) -> None:
        super().__init__(commands, timing)
        self._report = report
        # Seconds from one renewal to the next.
        self._interval = interval = timing.renew_interval
        # Alarms ring at multiples of this, so that many ring in one turn of the loop.
        self._grain = grain_of(interval)
        # The holds of each alarm, by its time in grains; an alarm has one timer.
        self._alarms: dict[int, dict[Watch, Hold]] = {}
        # The timers that warn about renewals without an answer.
        self._warnings: dict[RenewalCall, asyncio.TimerHandle] = {}

    def watch(self, hold: Hold) -> None:
        """Watch over *hold* until it ends; call this again after a change of its leases."""
        watch = hold.watch
        # Whether no command that was sent since `check` has been answered: the hold still has to be checked now.
        in_doubt = watch.doubted >= hold.confirmed_at
        if watch.renews or in_doubt:
            due = monotonic() if in_doubt else watch.renew_at
            # Before the first renewal, the alarm also rings half an interval early, to connect.
            self._set_alarm(hold, due, early=0.0 if watch.number else self._interval / 2)
        # Before the first renewal no guard is needed, because the alarm rings before the deadline.
        if not watch.renews or watch.number > 0 or watch.renew_at >= hold.deadline:
            self._guard(hold)

    def check(self, hold: Hold) -> None:
        """Renew *hold* now, or ask the server for it, because the server may have lost it."""
        hold.watch.doubted = monotonic()
        self._set_alarm(hold, hold.watch.doubted)

    # Renewals.

    def _set_alarm(self, hold: Hold, due: float, early: float = 0.0) -> None:
        """Renew *hold* at the time *due*; the alarm rings *early* seconds before."""
        watch = hold.watch
        # While a renewal is on its way, `_plan_next` sets the alarm after the answer.
        if watch.asked:
            return
        if watch.alarm is not None:
            # The alarm is set again when it rings.
            if due >= watch.due:
                watch.due = due
                return
            del watch.alarm[watch]
        watch.due = due
        at = math.ceil((due - early) / self._grain)
        alarm = self._alarms.get(at)
        if alarm is None:
            alarm = self._alarms[at] = {}
            self._loop.call_later(at * self._grain - monotonic(), self._ring, at, context=self._context)
        alarm[watch] = hold
        watch.alarm = alarm

    def _ring(self, at: int) -> None:
        alarm = self._alarms.pop(at)
        for watch, hold in list(alarm.items()):
            # An earlier hold of this loop may have ended this one.
            if watch.alarm is alarm:
                watch.alarm = None
                self._wake(hold)

    def _wake(self, hold: Hold) -> None:
        """If a renewal of *hold* is due, wake its task, or make the task the first time; otherwise connect."""
        watch = hold.watch
        if monotonic() < watch.due:
            self._commands.backend.prepare(hold.claim.keys)
            self._set_alarm(hold, watch.due)
        elif watch.asleep is None:
            watch.asked = True
            # Other code may cancel the task, even before it begins.
            self._guard(hold)
            # Its context is the alarm's.
            name = f"aiolock: watchdog of lock {quoted(hold.keys.name)}"
            watch.task = self._loop.create_task(self._keep(hold), name=name)
            watch.task.add_done_callback(partial(self._end, hold), context=self._context)
        # The future is done if the task has just been cancelled.
        elif not watch.asleep.done():
            watch.asked = True
            watch.asleep.set_result(None)

    async def _keep(self, hold: Hold) -> None:
        """The task of one hold, which renews it whenever a renewal is due."""
        watch = hold.watch
        while self._is_to_be_renewed(hold):
            call, answer = await self._answer(hold)
            watch.asked = False
            renewed = answer is not None and self._note(hold, call, answer)
            self._plan_next(hold, call, renewed=renewed)
            # No alarm: the hold has ended, or is not to be renewed any more.
            if watch.alarm is None:
                return
            watch.asleep = self._loop.create_future()
            await watch.asleep
            watch.asleep = None

    def _end(self, hold: Hold, task: asyncio.Task[None]) -> None:
        """
        Note the end of the *task* of *hold*; if other code has cancelled the task, another one follows.

        It leaves time for an answer, and for the end of a loop that has cancelled the task.
        """
        watch = hold.watch
        watch.task = watch.asleep = None
        watch.asked = False
        if watch.alarm is None and not hold.ended and (watch.renews or task.cancelled()):
            now = monotonic()
            self._set_alarm(hold, now + min(self._interval, (hold.deadline - now) / 2))

    def _is_to_be_renewed(self, hold: Hold) -> bool:
        """Whether *hold* has not ended; reports a renewal that is late because the event loop was blocked."""
        watch = hold.watch
        hold.look(watch.due)
        self._lose_or_guard(hold)
        late = monotonic() - watch.renew_at
        if not hold.ended and watch.renews and not watch.unanswered and late > self._interval / 2:
            self._report.renewal_late(hold, late)
        return not hold.ended

    def _next(self, hold: Hold) -> Renewal:
        # For a hold without renewals, 0 seconds only ask whether the server has it.
        return _numbered(hold, hold.renewable(self._timing.lease) if hold.watch.renews else 0.0)

    def _goes_alone(self, hold: Hold) -> bool:
        return hold.watch.unanswered > 0

    def _sent(self, call: RenewalCall, holds: Sequence[Hold]) -> None:
        for hold in holds:
            hold.watch.sent(call)
        self._warn_later(call, holds)

    def _over(self, call: RenewalCall) -> None:
        self._warnings.pop(call).cancel()

    def _warn_later(self, call: RenewalCall, holds: Sequence[Hold]) -> None:
        context = self._context
        self._warnings[call] = self._loop.call_later(self._interval, self._warn, call, holds, context=context)

    def _warn(self, call: RenewalCall, holds: Sequence[Hold]) -> None:
        """Report that the renewal of *holds* by *call* is late, because it has no answer yet."""
        for hold in holds:
            if hold.watch.renews and hold.watch.call is call:
                self._report.renewal_late(hold, monotonic() - hold.watch.renew_at)
        self._warn_later(call, holds)

    def _plan_next(self, hold: Hold, call: RenewalCall, *, renewed: bool) -> None:
        watch = hold.watch
        if hold.ended:
            return
        if renewed and call.sent <= watch.doubted:
            self._set_alarm(hold, monotonic())
        elif renewed:
            if watch.renews:
                self._set_alarm(hold, watch.renew_at)
        else:
            # Below zero when `check` brought the renewal forward.
            late = monotonic() - watch.renew_at
            self._set_alarm(hold, monotonic() + self._interval / 10)
            if watch.renews and late > 0:
                self._report.renewal_late(hold, late)

    # Renewals by the user and by the watchdog.

    async def renew(self, lease: BaseLease, seconds: float) -> None:
        """Let the lock of *lease* live *seconds* from now; see `Lease.renew`."""
        hold = lease._hold
        self._timing.check_lease(seconds)
        hold.refuse_if_over()
        lease._refuse_if_given_back()
        # Redis counts whole milliseconds, and on older servers a key loses life while the script runs.
        enough = seconds - max(margin(seconds, self._timing), 0.002)
        try:
            while await self._renew(hold, seconds) < enough:
                # A renewal or a release has overtaken this renewal, which had no effect.
                hold.refuse_if_over()
                if hold.ended:
                    raise NotHeldError.of_lease(hold.keys.name, hold.owner, hold.kind)
        except BackendError:
            hold.refuse_if_over()
            raise

    async def _renew(self, hold: Hold, seconds: float) -> float:
        """Renew *hold* by *seconds*; returns the seconds that the server gives it."""
        patience = min(self._timing.command_timeout, hold.deadline - monotonic())
        call = self._commands.renew([_numbered(hold, seconds)], patience)
        # A cancelled caller does not see the answer.
        call.when_ended(hold.watch.note_end)
        [answer] = await call
        if call.short is not None:
            raise ReplicationError(hold.keys.name, *call.short, kind=hold.kind, what="renewal")
        return self._acknowledged(hold, call, answer)

    def _note(self, hold: Hold, call: RenewalCall, answer: Renewed) -> bool:
        """Note the *answer* for *hold*; returns ``False`` if too few replicas acknowledged the renewal."""
        if call.short is not None:
            return False
        if hold.watch.renews:
            self._acknowledged(hold, call, answer)
        elif (granted := _granted(hold, answer)) is not None:
            # The server knows how long the lock lives, even if no lease asks for renewals any more.
            hold.extend(call.sent, granted.left)
            self._guard(hold)
        return True

    def _acknowledged(self, hold: Hold, call: RenewalCall, answer: Renewed) -> float:
        """Note an acknowledged renewal; returns the seconds that the server gives *hold*, -inf for an ended one."""
        if (granted := _granted(hold, answer)) is None:
            return -math.inf
        hold.watch.acknowledged += 1
        hold.extend(call.sent, granted.left)
        self._report.renewed(hold)
        return granted.left

    # Deadlines.

    def _lose_or_guard(self, hold: Hold) -> None:
        hold.notice_end()
        if not hold.ended:
            self._guard(hold)

    def _guard(self, hold: Hold) -> None:
        """Make sure that a timer, the guard, notices the deadline."""
        watch = hold.watch
        if watch.guard is not None:
            if watch.guard_at <= hold.deadline:
                return
            # The deadline has moved to an earlier time.
            watch.guard.cancel()
        self._set_guard(hold, hold.deadline - CLEANUP - self._grain)

    def _set_guard(self, hold: Hold, when: float) -> None:
        hold.watch.guard_at = when
        hold.watch.guard = self._loop.call_later(when - monotonic(), self._look, hold, context=self._context)

    def _look(self, hold: Hold) -> None:
        """Let the bodies note their state, from well before the deadline on; lose the hold at the deadline."""
        hold.watch.guard = None
        hold.look(hold.watch.guard_at)
        now = monotonic()
        left = hold.deadline - now
        # Renewals have moved the deadline, or it has come.
        if left > CLEANUP + self._grain or left <= 0:
            self._lose_or_guard(hold)
        else:
            self._set_guard(hold, now + (min(left, CLEANUP / 10) if hold.bodies else left))


def grain_of(interval: float) -> float:
    """The seconds by which a renewal may be late, with that *interval*, so that many renewals are sent together."""
    return min(0.025, interval / 10)


def _numbered(hold: Hold, seconds: float) -> Renewal:
    """A new renewal of *hold* by *seconds*, for sending."""
    watch = hold.watch
    watch.number = next_number(watch.number)
    watch.unanswered += 1
    watch.ask_for(seconds)
    return Renewal(hold.claim, watch.number, seconds)


def _granted(hold: Hold, answer: Renewed) -> Granted | None:
    """The *answer*, if it says that the server still has *hold*, and the hold has not ended."""
    # No answer revives a hold that has ended.
    hold.notice_end()
    if isinstance(answer, Lost) and not hold.ended:
        hold.lose(answer.reason, gone=answer.everywhere)
    hold.watch.unanswered = 0
    if hold.ended or isinstance(answer, Lost):
        return None
    hold.watch.call = None
    return answer
