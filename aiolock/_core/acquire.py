"""
The acquire of any primitive.

Rules:
1. The only loop that waits for a turn is in `run`. As a coroutine of its own it would take memory for each waiter.
2. State changes in plain `def`; after an await the state is read again: other tasks may act as the same owner.
3. An acquire that ends without a lease, by a cancellation, an error or the end of its wait, is given up on the server,
   unless it was never sent, or the server has surely refused it and keeps no turn for it. The give-up may be sent while
   the acquire is still on its way: the scripts handle both orders. It is a release on the same connection, and nothing
   waits for its answer.
4. A new acquire asks the server only if no other owner of this client holds the lock, waits for it or asks for it. An
   owner that holds the lock, and an acquire that is not to wait, always ask.
"""

import asyncio
from logging import DEBUG
from random import uniform
from time import monotonic

from aiolock._backend import Call
from aiolock._core.held import DoneError
from aiolock._core.hold import Hold
from aiolock._core.lease import Lease, NewLease
from aiolock._core.long_wait import tell_long_wait
from aiolock._core.owners import OwningTask, is_named
from aiolock._core.place import Place
from aiolock._core.queue import Queue
from aiolock._core.report import Failure, Wait
from aiolock._core.session import Session
from aiolock._errors import BackendError, ClientClosedError, NotALockError, QuorumError, ReplicationError
from aiolock._log import logger
from aiolock._scripts import Claim, Want
from aiolock._scripts.replies import Acquired, Done, Granted, Lost, Refused, Stale
from aiolock._types import SHORTEST

# The late grants of one acquire after which the lease counts as too short: a pause of the process may cause one.
_MOST_TOO_LATE = 3
# After a split vote, an acquire lets others go first for a random time; its limit in seconds doubles up to the second.
_FIRST_STEP_BACK, _MOST_STEP_BACK = 0.01, 0.5


class Acquisition:
    """
    An acquire by *owner*, in the task of *record*. *lease* is in seconds, ``None`` for the watchdog's lease.

    With *kept* false, the grant does not become a hold of the client: no watchdog, no release when the client closes.
    """

    __slots__ = (
        *("_call", "_claim", "_ends", "_entry", "_has_turn", "_may_have_grant", "_kept", "_lease", "_let_go_first"),
        *("_owner", "_refusal", "_repeated", "_session", "_too_late", "_wait", "_want"),
    )

    def __init__(
        self, session: Session, want: Want, owner: str, record: OwningTask, lease: float | None, *, kept: bool = True
    ) -> None:
        self._session, self._want, self._owner = session, want, owner
        length = session.timing.lease if lease is None else lease
        self._lease = NewLease(length, lease is None and want.scripts.expires, record)
        self._kept = kept
        self._claim: Claim | None = None
        self._call: Call[Acquired] | None = None
        self._refusal: Refused | None = None
        # The server may have granted a try without the knowledge of this client, or may keep a turn for this acquire.
        self._may_have_grant = False
        # The server has said that others may not overtake this acquire.
        self._has_turn = False
        # A try was sent again after a failure: an earlier copy may still arrive.
        self._repeated = False
        self._wait: Wait | None = None
        # The end of the wait, on the monotonic clock; 0 for no wait.
        self._ends: float | None = None
        self._let_go_first, self._too_late = 0.0, 0

    @property
    def _waits(self) -> bool:
        """Whether the acquire waits and tries again after a refusal."""
        return self._ends != 0

    @property
    def record(self) -> OwningTask:
        """The task that acquires: it is the owner, or acts for a named owner."""
        return self._lease.record

    def _asked_for(self) -> float:
        """The seconds for which the server is to keep the lock."""
        return max(self._lease.length, self._want.at_least)

    async def run(self, wait: float | None) -> Lease | None:
        """The lease; ``None`` if *wait* seconds (``None``: for ever) ended before a grant."""
        session, started = self._session, monotonic()
        self._ends = started + wait if wait else wait
        granted: Lease | None = None
        failed: Failure = None
        self._entry = session.entries.of(self._want.keys)
        self._entry.acquires += 1
        try:
            granted = await (self._seek_behind() if session.leases.behind.releases else self._seek())
            if granted is None and self._waits:
                place = Place(self._owner, self.record, self._want, self._submit, self._ends)
                queue = self._join(place)
                try:
                    while granted is None and await place.comes_up():
                        granted = await self._try(place, queue)
                finally:
                    queue.leave(place)
            if granted is None:
                self._refuse_without_votes()
        except BaseException as error:
            failed = type(error)
            if isinstance(error, BackendError):
                session.check_open()
            raise
        finally:
            self._end(granted, failed, wait, started)
        return self._checked(granted)

    def is_next(self) -> bool:
        """Whether to try at once: the owner has the lock, or nobody of this client has it, waits for it or tries."""
        entries = self._session.entries
        entry, scripts, owner = entries.get(self._want.keys.entry), self._want.scripts, self._owner
        if entry is None or not (entry.holds or entry.asked or entry.queue is not None):
            return True
        if scripts.line or owner in entry.holds:
            return True
        if scripts.exclusive:
            return False
        other = entries.get(self._want.keys.other)
        waits = entry.queue is not None and not (self._want.tells_number and entry.queue.lacks_number)
        return not waits or (other is not None and owner in other.holds)

    async def _seek(self, in_a_row: int = 0) -> Lease | None:
        """One try, if there is no wait or `is_next` is true; a grant is hand-off number *in_a_row* of a row."""
        entry, granted = self._entry, None
        if self.is_next():
            if entry.queue is not None and self._want.tells_number:
                entry.queue.lacks_number = False
            entry.asked += 1
            try:
                granted = await self._attempt(None)
            except BaseException as error:
                entry.failed(error)
                raise
            finally:
                entry.asked -= 1
        elif not self._waits:
            granted = await self._attempt(None)
        if granted is not None and in_a_row:
            granted._in_a_row = in_a_row
        return granted

    async def _seek_behind(self) -> Lease | None:
        """As `_seek`, while releases of this client have no answer yet; see `behind`."""
        before = await self._session.leases.behind.follow(self._want, waits=self._waits)
        granted = await self._seek(before.in_a_row)
        if granted is None and await before.overtaken_by(self._call):
            return await self._seek_behind()
        return granted

    def _join(self, place: Place) -> Queue:
        """Put *place* into the queue, as its head if the server has refused a first try; report the wait."""
        scripts, report = self._want.scripts, self._session.report
        if self._kept and report.is_heard():
            holder = self._session.entries.in_the_way(self._want.keys)
            self._wait = report.wait_started(self._want, self._owner, holder)
        first = self._call is not None and not scripts.line and (scripts.exclusive or self._has_turn)
        return self._entry.join(place, self._want, self._refusal, first=first)

    async def _try(self, place: Place, queue: Queue) -> Lease | None:
        """The try of *place*, which was woken, if it may try. If it cannot reach the server, all waits end."""
        place.note_wake_up()
        if not queue.may_try(place, has_it=self._held() is not None):
            return None
        first = queue.is_head(place)
        try:
            granted = await self._attempt(place.begin(), first=first)
        except BackendError as error:
            queue.fail(error.copy)
            raise
        queue.note_answer(place, first=first, granted=granted is not None, has_turn=self._has_turn)
        if granted is None:
            tell_long_wait(self._session, self._want, place)
            return None
        granted._in_a_row = queue.in_a_row = place.in_a_row
        if place.in_a_row:
            self._session.report.handed_off(granted._hold)
        return granted

    def _submit(self, first: bool = True) -> Call[Acquired]:
        """Send a try for the owner's first hold; all tries have the same acquisition id until that is given up."""
        self._may_have_grant = True
        waits = self._waits and (first or not self._want.scripts.client_line)
        arrived = 0 if self._refusal is None else self._refusal.arrived
        lease = self._asked_for()
        self._call = self._session.commands.acquire(self._claimed(), lease, waits=waits, arrived=arrived)
        return self._call

    def _claimed(self) -> Claim:
        if self._claim is None:
            self._claim = self._session.commands.claim(self._want, self._owner)
        return self._claim

    async def _attempt(self, handed: Call[Acquired] | None, *, first: bool = False) -> Lease | None:
        """One try, as the *first* in the queue or another; *handed* is a call that another task has sent for it."""
        if handed is None and (hold := self._held()) is not None:
            return await self._nest(hold)
        call = handed or self._submit(first)
        answer = await call
        if self._session.closed:
            raise ClientClosedError("closed")
        if isinstance(answer, Granted):
            return self._grant_in_time(call, answer)
        if isinstance(answer, Stale):
            # This client does not know of a grant to an earlier try, which was freed by force; or a server of a quorum
            # has to be asked again. Give the id up: servers that have granted it may have refused other acquires.
            self._give_up()
            return await self._attempt(None, first=first)
        if call is self._call:
            self._note_refusal(call, answer)
        if not isinstance(answer, Refused):
            raise self._final_error(call, answer)
        self.refuse_upgrade()
        if (hold := self._held()) is not None:
            return await self._nest(hold)
        await self._step_back(answer)
        self._entry.look_later(answer.left, handed=handed is not None)
        return None

    def _final_error(self, call: Call[Acquired], answer: Acquired) -> Exception:
        """The error for an *answer* after which no try can be granted."""
        if not isinstance(answer, Done):
            return NotALockError(self._want.keys.name)
        self._answer_all(call)
        return DoneError(answer.outcome)

    def _answer_all(self, call: Call[Acquired]) -> None:
        """Pass the answer on to all tasks that waited when the call was sent: it took nothing from them."""
        if call is self._call:
            self._entry.answered(call)

    async def _step_back(self, answer: Refused) -> None:
        """On a quorum after a split vote: wait for a random time, in which others may get a majority."""
        if answer.is_split and self._waits:
            self._let_go_first = min(max(_FIRST_STEP_BACK, 2 * self._let_go_first), _MOST_STEP_BACK)
            rest = self._let_go_first if self._ends is None else max(0.0, self._ends - monotonic())
            await asyncio.sleep(min(uniform(0, self._let_go_first), rest))

    def _held(self) -> Hold | None:
        """The owner's hold, if the primitive is reentrant and the owner has it."""
        return self._entry.holds.get(self._owner)

    def refuse_upgrade(self) -> None:
        """Raise if the owner would wait for itself: it reads and wants to write, or has the lock of another kind."""
        if self._want.scripts.exclusive or self._want.scripts.line:
            self._session.entries.refuse_upgrade(self._want.keys, self._owner)

    def _grant_in_time(self, call: Call[Acquired], answer: Granted) -> Lease | None:
        """The lease of the grant to *call*; ``None``, as after a refusal, if it was lost when the grant arrived."""
        if call.short is not None:
            raise ReplicationError(self._want.keys.name, *call.short, kind=self._want.scripts.kind)
        if self._want.scripts.form == "question":
            self._answer_all(call)
        session = self._session
        hold = session.new_hold(self._claimed(), answer.token, session.leases, repeated=self._repeated or call.repeated)
        if call.delivery is not None:
            hold.follow(call.delivery)
        if self._want.scripts.expires:
            hold.extend(call.sent, answer.left)
        else:
            hold.stay(call.sent)
        if hold.since < hold.deadline:
            lease = Lease(hold, session, *self._lease)
            if not self._kept:
                return self._grant(lease, answer)
            if session.leases.keep(hold):
                session.watchdog.watch(hold)
                return self._grant(lease, answer)
        self._came_too_late(hold)
        return None

    def _came_too_late(self, hold: Hold) -> None:
        """Give the grant of *hold* up, and try again soon; raise if that happened several times."""
        self._give_up()
        self._too_late += 1
        if self._too_late == _MOST_TOO_LATE:
            raise hold.error()
        self._entry.look_later(0, handed=False)

    def _grant(self, lease: Lease, answer: Granted) -> Lease:
        hold = lease._hold
        self._may_have_grant = False
        lease._granted = True
        if self._want.at_least:
            hold.keep(self._want.at_least, self._session.client)
        if not self._kept and not hold.open_changes:
            self._session.commands.may_forget(hold.keys, hold.claim.id)
        self._note_line(answer)
        if (queue := self._entry.queue) is not None:
            queue.granted(answer)
            if self._want.scripts.reentrant and is_named(self._owner):
                queue.wake_owner(self._owner)
        return lease

    async def _nest(self, hold: Hold) -> Lease:
        """One more hold for an owner that has the lock."""
        hold.refuse_if_over()
        lease = Lease(hold, self._session, *self._lease)
        lasts = max(SHORTEST, hold.renewable(self._asked_for())) if lease.watched else self._asked_for()
        call = hold.acquire_again(lasts)
        try:
            answer = await call
            hold.close_change(call)
            if isinstance(answer, Lost):
                hold.lose(answer.reason, gone=answer.everywhere)
            hold.refuse_if_over()
            if not isinstance(answer, Granted):
                assert isinstance(call.trouble, QuorumError), "one server alone grants it, or has lost it"
                raise call.trouble
            if call.short is not None:
                raise ReplicationError(self._want.keys.name, *call.short, kind=self._want.scripts.kind, what="hold")
        except BaseException as error:
            _ = hold.take_back(lease)
            if isinstance(error, BackendError):
                hold.refuse_if_over()
            raise
        hold.extend(call.sent, answer.left)
        self._session.watchdog.watch(hold)
        lease._granted = True
        if self._want.at_least:
            hold.keep(self._want.at_least, self._session.client)
        return lease

    def _end(self, granted: Lease | None, failed: Failure, most: float | None, started: float) -> None:
        """End the acquire, which was to wait for *most* seconds; give up a grant that may be on its way."""
        report, entry = self._session.report, self._entry
        entry.acquires -= 1
        if self._may_have_grant:
            self._abandon()
        if not entry.holds:
            entry.drop_if_empty()
        if self._wait is not None:
            report.wait_ended(self._wait)
        if self._kept and (report.is_observed or logger.isEnabledFor(DEBUG)):
            hold, took = None if granted is None else granted._hold, monotonic() - started
            report.acquire_ended(self._want, self._owner, hold, self._wait, took, most=most, failed=failed)

    def _refuse_without_votes(self) -> None:
        """Raise if the acquire was not granted because too few servers have a vote: then nobody has the lock."""
        if self._call is not None and isinstance(self._call.trouble, QuorumError):
            raise self._call.trouble

    def _checked(self, lease: Lease | None) -> Lease | None:
        """*lease*, or `LeaseLostError` if it is lost already: a lease of a few milliseconds may be."""
        if lease is None:
            return None
        hold = lease._hold
        if hold.loss is not None or (monotonic() >= hold.deadline and not hold.ended):
            hold.notice_end()
            _ = hold.take_back(lease)
            raise hold.error()
        return lease

    def _note_refusal(self, call: Call[Acquired], answer: Acquired) -> None:
        """Note a refusal of the server, for now or for good; on a quorum, give the grants of a minority back."""
        self._repeated = self._repeated or call.repeated
        if isinstance(answer, Refused):
            self._has_turn = self._has_turn or answer.has_turn
            self._refusal = answer
            self._note_line(answer)
        self._may_have_grant = self._repeated or self._has_turn
        if isinstance(answer, Refused) and answer.has_some:
            # No waiter needs the message, unless a server that did not answer made the minority look like a majority.
            self._give_up(quietly=not answer.is_split or call.is_settled)

    def _note_line(self, answer: Granted | Refused) -> None:
        """Note whether the first in the server's line is of this client: only then can a release hand the lock over."""
        if answer.leads is not None:
            self._entry.leads = answer.leads

    def _give_up(self, *, quietly: bool = False) -> None:
        """Give up any grant to this acquisition; the next try belongs to a new one."""
        # The only try that the server can have granted.
        only_one = self._call if not (self._repeated or self._has_turn) else None
        delivery = None if only_one is None else only_one.delivery
        self._session.commands.give_up(self._claimed(), self._asked_for(), undoes=delivery, quietly=quietly)
        self._claim = None
        self._may_have_grant = self._repeated = self._has_turn = False

    def _abandon(self) -> None:
        """End without a lease: withdraw a try that was never sent, or give up what the server may have granted."""
        call, withdraw = self._call, self._session.commands.backend.withdraw
        # There is no call if submitting it has failed. A call that failed unsent has nothing to withdraw.
        never_sent = call is not None and not call.sent and (call.error is not None or withdraw(call))
        if not never_sent or self._repeated or self._has_turn:
            self._give_up()
