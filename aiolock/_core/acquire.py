"""
Acquire, whatever the lock.

Rules:
1. The only loop that waits for the server is `_contend`.
2. State changes in plain `def`; after an await nothing is taken for granted.
3. An acquire that ends without a lease is given up on the server, unless it never left or the server is known to have
   refused it and to keep nothing for it. That may be sent while the acquire is still on its way: the scripts sort it
   out, in whichever order they run.
4. A newcomer asks the server only if nobody of this client has the lock, waits for it or is asking; but an owner that
   has it, and one that is not ready to wait, always ask.
"""

import asyncio
from logging import DEBUG
from random import uniform
from time import monotonic

from aiolock._backend import Call
from aiolock._core.hold import DoneError, Hold
from aiolock._core.lease import Lease
from aiolock._core.lease_manager import REASONS
from aiolock._core.marks import Wait
from aiolock._core.owners import is_named
from aiolock._core.queue import Entry, Place
from aiolock._core.report import Failure, why_not
from aiolock._core.session import Session
from aiolock._errors import BackendError, ClientClosedError, LeaseLostError, NotALockError, ReplicationError
from aiolock._log import logger
from aiolock._scripts import DONE, GRANTED, HAS_TURN, HELD, LOST, REFUSED, SPLIT, STALE, Claim, Want

_MOST_TOO_LATE = 3  # Grants in a row: a pause of the process may cause one.
# Seconds that one of a split vote lets others go first, at random: so many at most, twice as many each time, no more.
_FIRST_STEP_BACK, _MOST_STEP_BACK = 0.01, 0.5


class Acquisition:
    """
    An acquire by *owner*, who is or acts in *task*. *lease* is in seconds, ``None`` for the watchdog's.

    What is not *kept* is nobody's once it was granted: nothing gives it back.
    """

    __slots__ = (
        *("_arrived", "_asked_for", "_call", "_claim", "_ends", "_has_turn", "_in_doubt", "_kept", "_keys"),
        *("_lease", "_left", "_let_go_first", "_owner", "_repeated", "_scripts", "_session"),
        *("_task", "_too_late", "_wait", "_waits", "_want", "_watched"),
    )

    def __init__(
        self,
        session: Session,
        want: Want,
        owner: str,
        task: "asyncio.Task[object]",
        lease: float | None,
        *,
        kept: bool = True,
    ) -> None:
        self._session, self._want = session, want
        self._keys, self._scripts = want.keys, want.scripts
        self._owner = owner
        self._task = task
        self._kept = kept
        self._watched = lease is None and want.scripts.expires
        self._lease = session.timing.lease if lease is None else lease
        self._asked_for = max(self._lease, want.at_least)  # Also for the time when this process may be no more.
        self._waits = True  # When it is refused, it goes on to try.
        self._claim: Claim | None = None  # None until the server is asked.
        self._call: Call | None = None  # The last try.
        self._in_doubt = False  # The server may have granted it, or may yet do so, unseen; or keeps its turn for it.
        self._has_turn = False  # It was told that others may not overtake it.
        self._arrived = 0  # When it did, by the server, where that keeps a line.
        self._repeated = False  # A try was sent again after a failure: an earlier copy of it may still arrive.
        self._left: float | None = None  # Seconds that the holder had left when we were refused.
        self._wait: Wait | None = None  # What is told of its wait, if anybody listens.
        self._ends: float | None = None  # When the wait is over, on the monotonic clock.
        self._let_go_first = 0.0  # Seconds that others had for that at most, when a vote was split last.
        self._too_late = 0  # Grants whose lease was over when they arrived.

    async def run(self, wait: float | None) -> Lease | None:
        """The lease that is wanted; ``None`` when *wait* seconds (``None``: for ever) ended."""
        session, started = self._session, monotonic()
        self._waits = wait != 0
        self._ends = None if wait is None else started + wait
        granted, first = None, self.is_next()
        failed: Failure = None
        session.acquiring += 1
        try:
            if first:
                granted = await self._attempt_first()
            elif wait == 0:
                granted = await self._attempt(None)
            if granted is None and wait != 0:
                granted = await self._contend(first=first)
        except BaseException as error:
            failed = type(error)
            if isinstance(error, BackendError):
                session.check_open()  # Closing fails what is under way.
            raise
        finally:
            session.acquiring -= 1
            if self._in_doubt:
                self._abandon()
            if self._kept and (session.report.on_event is not None or logger.isEnabledFor(DEBUG)):
                self._tell_end(granted, monotonic() - started, wait, failed)
        return None if granted is None else self._checked(granted)

    def _tell_end(self, granted: Lease | None, waited: float, most: float | None, failed: Failure) -> None:
        """It has ended: in a lease, by an exception, or because it was to wait *most* seconds and no longer."""
        report = self._session.report
        if granted is not None:
            report.acquired(granted._hold, self._wait, waited)
        elif failed is not GeneratorExit:  # Else Python destroys it, perhaps in another thread.
            reason = "done" if failed is DoneError else why_not(failed, most)
            who = (self._keys.name, self._scripts.kind, self._owner, 0)
            report.not_acquired(who, self._wait, waited, reason, failed)

    # When to try.

    def is_next(self) -> bool:
        """Whether to try at once: the owner has the lock, or nobody of this client has it, waits for it or tries."""
        if self._scripts.line:
            return True
        entries = self._session.entries
        entry = entries.get(self._keys.entry)
        if entry is None or self._owner in entry.holds:
            return True
        if not self._scripts.exclusive:
            other = entries.get(self._keys.other)
            return entry.queue is None or (other is not None and self._owner in other.holds)
        return not entry.holds and not entry.asked and entry.queue is None

    async def _attempt_first(self) -> Lease | None:
        """A try ahead of the queue; those who come meanwhile take their places and need not try."""
        entry = self._session.entries.of(self._keys)
        entry.asked += 1  # Which keeps the entry.
        try:
            return await self._attempt(None)
        except BackendError as error:
            entry.fail(error.copy)
            raise
        except BaseException:
            entry.look_again()
            raise
        finally:
            entry.asked -= 1
            if not entry.holds:
                entry.settle()

    async def _contend(self, *, first: bool) -> Lease | None:
        """The wait loop: take a place, the *first* if refused already, and try whenever it is its turn."""
        entry = self._session.entries.of(self._keys)
        if self._kept and self._session.report.is_heard():
            self._wait = self._session.report.wait_started(self._want, self._owner)
        place = Place(self._owner, self._submit, self._ends)
        exclusive = self._scripts.exclusive
        left = entry.hold.expires - monotonic() if exclusive and entry.hold is not None else self._left
        first = first and not self._scripts.line and (exclusive or self._has_turn)
        queue = entry.join(place, self._scripts, left, first=first)
        try:
            while await place.comes_up():
                try:
                    granted = await self._attempt(place.take())
                except BackendError as error:  # What one waiter learns of the server, all learn, and at once.
                    queue.fail(error.copy)
                    raise
                place.settle(granted is not None, exclusive=exclusive)
                if granted is not None:
                    granted._hold.in_a_row = queue.in_a_row = place.in_a_row
                    if place.in_a_row:
                        self._session.report.handed_off(granted._hold)
                    return granted
                if self._let_go_first and self._ends is not None and monotonic() >= self._ends:
                    break  # What is given back wakes also who gives it back.
            return None
        finally:
            queue.leave(place)
            if self._wait is not None:
                self._wait.end()

    # One try, and its answer.

    def _submit(self) -> Call:
        """Try to become the first hold of the owner; every try is of one acquisition until that has ended."""
        commands = self._session.commands
        self._in_doubt = True
        if self._claim is None:
            self._claim = commands.claim(self._want, self._owner)
        self._call = commands.acquire(self._claim, self._asked_for, waits=self._waits, arrived=self._arrived)
        return self._call

    async def _attempt(self, handed: Call | None) -> Lease | None:
        """One try; *handed* is one that is under way already."""
        if handed is None and (hold := self._held()) is not None:
            return await self._nest(hold)
        call = handed or self._submit()
        status, value, left, *_ = await call
        if self._session.closed:
            raise ClientClosedError("closed")
        if status == GRANTED:
            if call.short is not None:
                raise ReplicationError(self._keys.name, *call.short)
            return self._grant_in_time(call, value, left / 1000)
        if status == STALE:  # Granted unseen, and freed by force since.
            self._begin_anew()
            return await self._attempt(None)
        self._note_refusal(call, left / 1000)
        if status != REFUSED:
            raise DoneError(call.reply[3]) if status == DONE else NotALockError(self._keys.name)
        self.refuse_upgrade()
        if (hold := self._held()) is not None:
            return await self._nest(hold)  # Granted meanwhile, to another task that acts as the same owner.
        left = await self._step_back(call, left / 1000)
        self._look_later(left, handed=handed is not None)
        return None

    async def _step_back(self, call: Call, left: float) -> float:
        """
        Give back what too few servers granted, and let others who did the same go first, for a random time.

        How many seconds are left then, of *left* in any other refusal.
        """
        if call.reply[3:] not in ([SPLIT], [HELD]):
            return left
        assert self._claim is not None
        held = call.reply[3] == HELD
        self._session.commands.give_up(self._claim, self._asked_for, quietly=held)
        self._begin_anew()
        if held:
            return left
        self._left = 0.0
        if self._waits:
            self._let_go_first = min(max(_FIRST_STEP_BACK, 2 * self._let_go_first), _MOST_STEP_BACK)
            rest = self._let_go_first if self._ends is None else max(0.0, self._ends - monotonic())
            await asyncio.sleep(min(uniform(0, self._let_go_first), rest))
        return 0.0

    def _held(self) -> Hold | None:
        """What the owner has of the lock, where all its acquires are of one hold."""
        return None if (entry := self._entry) is None else entry.holds.get(self._owner)

    @property
    def _entry(self) -> Entry | None:
        """What this client knows of the name."""
        return self._session.entries.get(self._keys.entry)

    def refuse_upgrade(self) -> None:
        """Raise if the owner wants to write while it reads: it would wait for itself."""
        reading = self._session.entries.get(self._keys.other) if self._scripts.exclusive else None
        if reading is not None and self._owner in reading.holds and self._held() is None:
            raise RuntimeError(
                f"lock {self._keys.name!r}: who reads cannot get the write lock, because it would wait for itself; "
                "release the read lock before, or acquire the write lock first and then the read lock"
            )

    def _look_later(self, left: float, *, handed: bool) -> None:
        """Whoever has the lock has it for *left* seconds: who waits need not try before, unless a message comes."""
        if (entry := self._entry) is not None and entry.queue is not None:
            entry.queue.probe_in(left)
            if handed:  # It may have run before the release that it was sent along with.
                entry.queue.look_again()

    def _grant_in_time(self, call: Call, token: int, left: float) -> Lease | None:
        """
        The lease that *call* was granted, the key having *left* seconds.

        A grant that came too late to be of use, because the process was paused or the loop blocked, is as good as
        a refusal; one after the other is too short a lease.
        """
        assert self._claim is not None
        session = self._session
        hold = Hold(self._claim, token, session.timing, repeated=self._repeated or call.repeated)
        if self._scripts.expires:
            hold.extend(call.sent, left)
        else:
            hold.stay(call.sent)
        hold.since = monotonic()
        if hold.since < hold.deadline:
            return self._grant(hold, call, left)
        session.commands.give_up(self._claim, self._asked_for)
        self._begin_anew()
        self._too_late += 1
        if self._too_late == _MOST_TOO_LATE:
            raise LeaseLostError(self._keys.name, token, "expired")
        self._look_later(0, handed=False)
        return None

    def _grant(self, hold: Hold, call: Call, left: float) -> Lease:
        self._in_doubt = False
        lease = self._add_lease(hold)
        lease._granted = True
        if self._want.at_least:
            hold.keep(self._want.at_least, self._session.client)
        entry: Entry | None
        if self._kept:
            entry = self._session.leases.keep(hold)
            self._session.watchdog.watch(hold)
            if self._session.card.shown is None:
                self._session.card.show()
        else:
            if not hold.unheard:
                self._session.commands.may_forget(hold.keys, hold.claim.id)
            entry = self._entry
        if self._scripts.line:
            self._note_line(call)
        if entry is not None and entry.queue is not None:
            entry.queue.granted(left if self._scripts.exclusive else call.reply[3] / 1000)
            if self._scripts.reentrant and is_named(self._owner):
                entry.queue.wake_owner(self._owner)
        return lease

    def _add_lease(self, hold: Hold) -> Lease:
        lease = Lease(hold, self._session, self._lease, self._watched, self._task)
        hold.add(lease)
        return lease

    async def _nest(self, hold: Hold) -> Lease:
        """One more hold for an owner that has the lock."""
        leases = self._session.leases
        leases.refuse_if_over(hold)
        lease = self._add_lease(hold)
        call = self._session.commands.acquire_again(hold, self._asked_for)
        hold.unheard += 1
        try:
            status, why, left, *_ = await call
            hold.unheard -= not call.repeated
            if status == LOST:
                leases.lose(hold, REASONS[why], gone=True)
            leases.refuse_if_over(hold)
            if status == REFUSED:
                raise BackendError("acquire failed: too few servers of the quorum can say so at the moment")
            if call.short is not None:
                raise ReplicationError(self._keys.name, *call.short)
        except BaseException as error:
            leases.take_back(lease)
            if isinstance(error, BackendError):
                leases.refuse_if_over(hold)
            raise
        hold.extend(call.sent, left / 1000)
        self._session.watchdog.watch(hold)
        lease._granted = True
        if self._want.at_least:
            hold.keep(self._want.at_least, self._session.client)
        return lease

    def _checked(self, lease: Lease) -> Lease:
        """Hand out no *lease* that is lost already, as one of a few milliseconds may be; raises `LeaseLostError`."""
        leases, hold = self._session.leases, lease._hold
        if hold.loss is not None or (monotonic() >= hold.deadline and not hold.ended):
            leases.notice_end(hold)
            leases.take_back(lease)
            raise hold.error()
        return lease

    # What the server may have granted unseen.

    def _note_refusal(self, call: Call, left: float) -> None:
        """The server refused it; the holder has *left* seconds."""
        self._repeated = self._repeated or call.repeated
        self._has_turn = self._has_turn or call.reply[3:4] == [HAS_TURN]
        self._in_doubt = self._repeated or self._has_turn
        self._left = left
        if self._scripts.line:
            self._arrived = call.reply[1]
            self._note_line(call)

    def _note_line(self, call: Call) -> None:
        """The server said whether somebody of this client is the first in line, whom a release may be handed to."""
        if (entry := self._entry) is not None and (told := call.reply[4:]):
            entry.leads = told == [1]

    def _begin_anew(self) -> None:
        """That acquisition has ended; the next try is of a new one."""
        self._claim = None
        self._in_doubt = self._repeated = self._has_turn = False

    def _abandon(self) -> None:
        """Nobody waits for it any more: give up what may have been granted; what never left is not sent at all."""
        commands, call = self._session.commands, self._call
        sent = call is None or call.sent > 0 or (call.error is None and not commands.backend.withdraw(call))
        if sent or self._repeated or self._has_turn:
            assert self._claim is not None
            commands.give_up(self._claim, self._asked_for)
