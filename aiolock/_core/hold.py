"""
A hold: one owner's part of one lock, from its first acquire to its last release.

    state        its user is told    it is renewed             the server
    LIVE         it is held          if a lease asks for it    has it
    UNWINDING    it is lost          if a lease asks for it    has it, until the work under it has ended
    GIVEN_BACK   it was given back   no                        is being told
    LOST         it is lost          no                        may have it, until the work under it has ended
    GONE         it is lost          no                        does not have it, or is being told

    LIVE ──► GIVEN_BACK            the last lease is given back: `give_back`, or detached
    LIVE ──► UNWINDING             the client is closed, or its time will be over before a leader's work has stopped:
                                   `tell_early`; its task has ended while another runs under it: `orphan`
    LIVE, UNWINDING ──► LOST, GONE its time ended, the server says that it is not ours, or its bodies have left: `lose`
    GIVEN_BACK ──► GONE            the server answers, before the deadline, that it was not ours any more
    LOST ──► GONE                  its bodies have left, and the server is told

The deadline lies on the monotonic clock, a margin before the key can expire on the server, because it is counted from
the moment *before* the answered command was sent. No other owner can have the lock before the deadline.
"""

import asyncio
import math
from functools import partial
from logging import DEBUG
from time import monotonic

from aiolock._backend import Call, Delivery
from aiolock._config import ENDED_MEMORY, Timing
from aiolock._core.detached import Detached
from aiolock._core.held import GIVEN_BACK, GONE, LIVE, LOST, UNWINDING, Body, Held, Remains, State
from aiolock._core.keeper import Keeper
from aiolock._core.owners import OwningTask
from aiolock._core.watch import Watch
from aiolock._errors import LeaseLostError, LossReason, NotHeldError, ReplicationError
from aiolock._identity import KEPT
from aiolock._log import logger
from aiolock._process import Unique
from aiolock._scripts import Claim
from aiolock._scripts.replies import Acquired, Changed, Lost

# Seconds by which the life in the server's answer may be shorter than the command asked for, because of rounding.
ROUNDED = 0.01
# Seconds that the client needs to tell one holder of its loss, and to let it end, on a slow machine.
_TO_TELL = 0.0003


class BaseLease(Unique):
    """One lease of a *hold*; the acquire of a nested one may still be on its way. `Lease` has what a user may call."""

    __slots__ = (
        *("_detached", "_may_be_left", "_granted", "_hold", "_in_a_row", "_record", "_scoped", "_session"),
        *("given_back", "lease", "watched"),
    )

    def __init__(self, hold: "Hold", session: object, lease: float, watched: bool, record: OwningTask) -> None:
        self._hold: Hold = hold
        # A `Session`, which stands above: see `Lease`.
        self._session: object = session
        self.lease: float = lease
        """Seconds: the lease that the acquire asked for, or the watchdog's."""
        self.watched: bool = watched
        """Whether the watchdog renews it: true if the acquire asked for no lease."""
        # The task that acquired it.
        self._record: OwningTask = record
        self._granted = False
        self._scoped = False
        self._detached: Detached | None = None
        # Whether its block may have been left: an exit could not find its block among several.
        self._may_be_left = False
        # The hand-offs in a row to this hold, during which no other process could get the lock.
        self._in_a_row: int = hold.leases[0]._in_a_row if hold.leases else 0
        self.given_back: bool = False
        """Whether the lease was given back."""
        hold.leases.append(self)
        hold.watch.renews = watched or hold.watch.renews

    def _refuse_if_given_back(self) -> None:
        if self.given_back:
            raise NotHeldError.of_lease(self._hold.keys.name, self._hold.owner, self._hold.kind)

    @property
    def _is_settled(self) -> bool:
        """Whether there is nothing to give back any more."""
        return self.given_back or self._hold.ended

    def _note_may_be_left(self) -> None:
        """Note that the block may have been left, so that the lease must end with the task that entered the block."""
        self._may_be_left = True


class Hold(Held):
    """An acquisition that was granted, with its states."""

    # Invariant: when all commands are answered, the server's hold count is len(leases). Each change of the count has
    # the next step, each renewal a greater number (`Watch.number`); the server ignores a command with an earlier one.

    __slots__ = ("__weakref__", "_keeper", "_lost")

    def __init__(self, claim: Claim, token: int, keeper: "Keeper[Hold]", *, repeated: bool = False) -> None:
        self.claim = claim
        self.token = token
        self.since: float = monotonic()
        self.state: State = LIVE
        self.loss: LossReason | None = None
        self.orphan_of: str | None = None
        self.delivery: Delivery | None = None
        self.remains: Remains | None = None
        self.leases: list[BaseLease] = []
        self.bodies: list[Body] = []
        self.step: int = 1
        self.open_changes: int = int(repeated)
        self.confirmed_at: float = 0.0
        self.expires: float = 0.0
        self.deadline: float = 0.0
        self.watch: Watch = Watch()
        self._keeper = keeper
        self._lost: asyncio.Event | None = None

    @property
    def patient_until(self) -> float | None:
        """See `Keeper.patient_until`."""
        return self._keeper.patient_until

    @property
    def is_at_its_end(self) -> bool:
        """Whether the watchdog stops renewing it, because `max_hold` is reached."""
        return self.watch.renews and self.expires >= self.since + self._keeper.timing.max_hold - ROUNDED

    @property
    def why_over(self) -> LossReason:
        """The reason of a loss at the deadline."""
        if self.is_at_its_end:
            return "max_hold"
        return "unreachable" if self.watch.unanswered else "expired"

    def renewable(self, lease: float) -> float:
        """The seconds of life that a renewal by *lease* may give the hold now, because of `max_hold`."""
        return max(0.0, min(lease, self.since + self._keeper.timing.max_hold - monotonic()))

    def error(self) -> LeaseLostError:
        """The error for the loss of the lock."""
        what = (self.keys.name, self.token, self.loss or self.why_over, self.watch.trouble)
        return LeaseLostError(*what, task=self.orphan_of, kind=self.kind)

    def refuse_if_over(self) -> None:
        """Raise if the lock is lost."""
        self.notice_end()
        if self.loss is not None:
            raise self.error()

    async def until_lost(self) -> LossReason:
        """Wait until the lock is lost; never ends if it is not lost."""
        if self.loss is None:
            self._lost = self._lost or asyncio.Event()
            await self._lost.wait()
        assert self.loss is not None
        return self.loss

    # The grant, and further grants.

    def acquire_again(self, seconds: float) -> Call[Acquired]:
        """Tell the server the present number of its owner's leases."""
        self.step += 1
        self.open_changes += 1
        self.watch.ask_for(seconds)
        return self._keeper.commands.acquire(self.claim, seconds, step=self.step, holds=len(self.leases), waits=False)

    def follow(self, acquire: Delivery) -> None:
        """Note that several servers keep the lock: the acquire may still arrive at some of them."""
        self.delivery = acquire
        self.open_changes += 1
        acquire.when_settled(self._change_closed)

    def keep(self, at_least: float, client: str) -> None:
        """Note that the lock is to be kept for *at_least* seconds, even after its release; the longest time counts."""
        until = monotonic() + at_least
        if self.remains is None or self.remains.until < until:
            self.remains = Remains(f"{client}:{KEPT}", 1, until)

    def extend(self, sent: float, left: float) -> None:
        """Note the answer to a command that was sent at *sent*: the key had *left* seconds."""
        if sent >= self.confirmed_at:
            timing = self._keeper.timing
            self.confirmed_at = sent
            self.expires = sent + left
            self.deadline = sent + left - margin(left, timing, len(self._keeper.entries))
            soon = left < 2 * timing.renew_interval and not self.is_at_its_end
            self.watch.renew_at = sent + (left / 2 if soon else timing.renew_interval)

    def stay(self, sent: float) -> None:
        """Note the answer to a command that was sent at *sent*, for a primitive that lasts until its release."""
        self.confirmed_at = sent
        self.expires = self.deadline = self.watch.renew_at = math.inf

    # The release.

    async def give_back(self, lease: BaseLease, *, behind: bool = False) -> None:
        """Give *lease* back; see `Lease.release`. With *behind*, do not wait for the answer."""
        lease._refuse_if_given_back()
        released_at = monotonic()
        if released_at >= self.deadline:
            self.notice_end()
        behind = behind and self.remains is None
        if (call := self.take_back(lease, behind=behind)) is None:
            raise self.error()
        holds_left, report = len(self.leases), self._keeper.report
        if behind:
            call.when_ended(partial(self._behind_ended, holds_left, released_at))
            return
        try:
            await call
        except BaseException:
            report.released(self, holds_left, released_at, confirmed=False)
            raise
        if not self._is_given_back(call, holds_left, released_at):
            raise self.error()
        if call.short is not None:
            raise ReplicationError(self.keys.name, *call.short, kind=self.kind, what="result")

    def _is_given_back(self, call: Call[Changed], holds_left: int, released_at: float, *, behind: bool = False) -> bool:
        """Handle the answer to a release at *released_at* that left *holds_left*; returns false for a lost lock."""
        answer, report = call.answer, self._keeper.report
        if isinstance(answer, Lost) and self.was_lost_before(answer):
            self.lose(answer.reason, gone=True, behind=behind)
            return False
        # A clean release leaves no id to be forgotten.
        if call.script is not self.claim.want.scripts.release_clean:
            self.close_change(call)
        if report.is_observed or logger.isEnabledFor(DEBUG):
            report.released(self, holds_left, released_at)
        return True

    def _behind_ended(self, holds_left: int, released_at: float, call: Call[Changed]) -> None:
        """Report the end of a release that was left behind. Of several releases, only the last one reports a loss."""
        if call.error is not None:
            self._keeper.report.unanswered(self, holds_left, released_at, call.error)
        elif self.leases or not holds_left or not isinstance(call.answer, Lost):
            _ = self._is_given_back(call, holds_left, released_at, behind=not holds_left)

    def take_back(self, lease: BaseLease, *, behind: bool = False) -> Call[Changed] | None:
        """Remove *lease* and send the release; ``None`` if the lock is lost, because then there is no answer."""
        lease.given_back = True
        self.leases.remove(lease)
        self.notice_body_end()
        if self.state is not LIVE and self.state is not UNWINDING:
            if not self.leases:
                self._keeper.lost_given_back(self)
                self.free()
            return None
        self.open_changes += 1
        if self.leases and (self.orphan_of is None or self.in_use):
            self.watch.renews = self.orphan_of is None and any(each.watched for each in self.leases)
            return self._release(len(self.leases))
        self._end(GIVEN_BACK if self.loss is None else LOST)
        call = self._release(0)
        self._keeper.given_back(self, call, lease._in_a_row, behind=behind)
        return call

    def notice_body_end(self) -> None:
        """Note that a body, or its task, has ended: a lock that is lost is free then, and closing may wait for that."""
        if self.state is LOST and not self.in_use:
            self.free()
        if (body_ended := self._keeper.body_ended) is not None:
            body_ended.set()

    def close_change(self, call: Call[Acquired] | Call[Changed]) -> None:
        """Note that *call*, a change of the hold count, is answered; it counts once no copy can be late any more."""
        call.when_settled(self._change_closed)

    def _change_closed(self) -> None:
        self.open_changes -= 1
        if self.state is GIVEN_BACK and not self.open_changes:
            self._keeper.commands.may_forget(self.claim.want.keys, self.claim.id)

    def _release(self, holds_left: int) -> Call[Changed]:
        """Send a release that leaves *holds_left* holds."""
        commands, remains = self._keeper.commands, self.remains
        until = max(self.expires, self.watch.asked_until) + ENDED_MEMORY
        if not holds_left and remains is not None and remains.ends > monotonic():
            return commands.release_later(self.claim, self.token, remains, until, undoes=self.delivery)
        if self.state is GIVEN_BACK and (call := commands.release_clean(self, until)) is not None:
            return call
        self.step += 1
        return commands.release(self.claim, self.step, holds_left, until, undoes=self.delivery)

    # The loss.

    def lose(self, reason: LossReason, *, gone: bool = False, behind: bool = False) -> None:
        """Lose the lock: *gone* if the server said so, *behind* if it said so to a release for which nobody waits."""
        if self.state is LOST or self.state is GONE or (self.state is GIVEN_BACK and not gone):
            return
        if not self.ended:
            self._end(LOST)
            self._keeper.ended(self)
        self.state = GONE if gone else LOST
        if self.loss is None:
            self._tell(reason, behind=behind)
        # If only the acquire was sent, the key ends, and nothing brings it back. A running body frees it at its end.
        sent_more = self.orphan_of is not None or self.watch.number or self.step > 1 or self.open_changes
        if reason == "closed" or (sent_more and not self.in_use):
            self.free()
        self._keeper.lost(self)

    def notice_end(self) -> None:
        """Lose the lock if the deadline has passed, even before the timer notices that."""
        if self.expired:
            self.lose(self.why_over)

    def tell_early(self, reason: LossReason) -> None:
        """Tell the holder of a loss in advance, so that its bodies end, and roll back, before the lock is free."""
        if self.loss is None and not self.ended:
            self.state = UNWINDING
            self._tell(reason)

    def orphan(self, task: str) -> None:
        """Note the end of the *task* that acquired it: the lock is lost, and is freed once its bodies have left."""
        self._keeper.report.orphaned(self, task)
        if self.ended:
            return
        self.orphan_of = task
        self.notice_body_end()
        # The bodies must finish their cleanup before the lease ends.
        self.watch.renews = False
        if self.loss is None:
            self._tell("orphaned")
        if self.in_use:
            self.state = UNWINDING
        else:
            self.lose("orphaned")

    def forsake(self, lease: BaseLease, task: str) -> None:
        """Give *lease* back because *task* has ended without doing so; other tasks of the same owner keep theirs."""
        if self.leases == [lease]:
            self.orphan(task)
        else:
            self._keeper.report.orphaned(self, task)
            if not lease.given_back:
                _ = self.take_back(lease)

    def look(self, due: float) -> None:
        """Let the bodies note their state, well before the lock may be lost."""
        for body in tuple(self.bodies):
            body.look(due)

    def _tell(self, reason: LossReason, *, behind: bool = False) -> None:
        """Tell the holder that the lock is lost."""
        self.loss = reason
        if self._lost is not None:
            self._lost.set()
        for body in tuple(self.bodies):
            body.cancel_if_lost()
        self._keeper.report.lost(self, reason, behind=behind)

    def _end(self, state: State) -> None:
        """End the hold in *state*, released or lost for good, and stop watching it."""
        self.state, watch = state, self.watch
        watch.renews = False
        if watch.alarm is not None:
            del watch.alarm[watch]
        if watch.guard is not None:
            watch.guard.cancel()
        watch.alarm = watch.guard = None
        if watch.task is not None and not watch.task.get_loop().is_closed():
            watch.task.cancel()

    def free(self) -> None:
        """Tell the server that the hold has ended, unless the server has said so. Nothing waits for the answer."""
        if self.state is not GONE:
            self.state = GONE
            _ = self._release(0)


def margin(lease: float, timing: Timing, names: int = 0) -> float:
    """
    How long before its end on the server a lease counts as ended, in seconds; a quarter of *lease* at most.

    With many *names* in use, an outage may end all their leases at one moment; the client tells their holders in turn.
    """
    drift = 0.01 * lease + 0.01 if timing.drift is None else timing.drift
    return min(max(drift, _TO_TELL * names), lease / 4)
