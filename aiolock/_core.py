"""
The core: acquire, whatever the lock, and close.

Rules:
1. The only loop that waits for the server is `_contend`.
2. State changes in plain `def`; after an await nothing is taken for granted.
3. An acquire that ends without a lease is given up on the server, unless it never left or the server is known to have
   refused it. That may be sent while the acquire is still on its way: the scripts sort it out, in whichever order
   they run.
4. A newcomer asks the server only if nobody of this client has the lock, waits for it or is asking; but an owner that
   has it, and one that is not ready to wait, always ask.
"""

import asyncio
from itertools import count
from time import monotonic

from aiolock._backend import Backend, Topology
from aiolock._blocks import Blocks
from aiolock._call import Call
from aiolock._card import Card
from aiolock._commands import Commands
from aiolock._config import LockConfig, Timing
from aiolock._errors import BackendError, ClientClosedError, LeaseLostError, NotALockError, ReplicationError
from aiolock._inspect import Inspector
from aiolock._keeper import REASONS, HoldKeeper
from aiolock._lease import Hold, Lease
from aiolock._owner import Owners, is_named
from aiolock._queue import Place, Queues
from aiolock._report import Reporter
from aiolock._scripts import GRANTED, LOST, NOT_A_LOCK, STALE, LockScripts
from aiolock._types import Claim, ClientStatistics, LockKeys, LockStatistics
from aiolock._usage import Usage

_MOST_TOO_LATE = 3  # Grants in a row: a pause of the process may cause one.
_TURNS_OF_A_LOSS = 3  # Of the loop: for the cancellation of a body, for that to be delivered, and one to be sure.

# When the client is closed: the shares of the release timeout after which bodies that still unwind by a cancellation of
# the user's own are cancelled once more, and after which their locks are freed.
_TO_ROLL_BACK, _TO_LEAVE = 0.5, 0.6


class Acquisition:
    """An acquire by *owner*, who is or acts in *task*. *lease* is in seconds, ``None`` for the watchdog's."""

    __slots__ = (
        *("in_doubt", "keys", "lease", "left", "owner", "repeated", "task", "too_late", "watched"),
        *("_call", "_claim", "_core", "_scripts"),
    )

    def __init__(
        self,
        core: "Core",
        keys: LockKeys,
        scripts: LockScripts,
        owner: str,
        task: asyncio.Task[object],
        *,
        lease: float | None,
    ) -> None:
        self._core = core
        self.keys: LockKeys = keys
        self._scripts = scripts
        self.owner: str = owner
        self.task: asyncio.Task[object] = task
        self._claim: Claim | None = None  # None until the server is asked.
        self.watched: bool = lease is None
        self.lease: float = core.timing.lease if lease is None else lease
        self.in_doubt: bool = False  # The server may have granted it, or may yet do so, without our knowing.
        self.repeated: bool = False  # A try was sent again after a failure: an earlier copy of it may still arrive.
        self.left: float | None = None  # Seconds that the holder had left when we were refused.
        self.too_late = 0  # Grants whose lease was over when they arrived.
        self._call: Call | None = None  # The last try.

    @property
    def claim(self) -> Claim:
        """What the server was asked for."""
        assert self._claim is not None
        return self._claim

    def submit(self) -> Call:
        """Try to become the first hold of the owner; every try is of one acquisition until that has ended."""
        self.in_doubt = True
        if self._claim is None:
            self._claim = Claim(self.keys, self._scripts, self.owner, self._core.new_id())
        self._call = self._core.commands.acquire(self._claim, self.lease)
        return self._call

    def begin_anew(self) -> None:
        """That acquisition has ended; the next try is of a new one."""
        self._claim = None
        self.in_doubt = self.repeated = False

    def abandon(self) -> None:
        """Nobody waits for it any more: give up what may have been granted; what never left is not sent at all."""
        if self.repeated or self._call is None or not self._core.commands.withdraw(self._call):
            self._core.commands.give_up(self.claim, self.lease)

    def note_failure(self) -> None:
        """If the last try has no answer, it may have been granted, unless it never left."""
        if self._call is not None and self._call.error is not None:
            self.in_doubt = self.repeated or self._call.sent > 0

    def refused(self, call: Call, left: float) -> None:
        """The server refused it; the holder has *left* seconds."""
        self.repeated = self.repeated or call.repeated
        self.in_doubt = self.repeated
        self.left = left


class Core:
    """What a started client runs on."""

    def __init__(self, client: str, topology: Topology, config: LockConfig) -> None:
        self.client = client
        self.timing: Timing = Timing.of(config)
        self._backend = backend = Backend(topology, self.timing.command_timeout)
        self._notifier = topology.notifier
        self.usage: Usage = Usage()
        self.commands: Commands = Commands(backend, self.timing)
        self.inspector: Inspector = Inspector(backend)
        self.queues: Queues = Queues(topology.notifier)
        self.report: Reporter = Reporter(client, config.on_event)
        self.keeper: HoldKeeper = HoldKeeper(
            usage=self.usage,
            commands=self.commands,
            inspector=self.inspector,
            queues=self.queues,
            timing=self.timing,
            report=self.report,
        )
        self.owners: Owners = Owners(client, self.keeper.task_ended)
        self.blocks: Blocks = Blocks(self.usage, self.owners, self.keeper, self.report)
        self.keeper.blocks = self.blocks
        topology.doubted = self.keeper.check
        self._card = Card(client, config.client_name, backend, lambda: len(self.keeper.holds) > 0)
        self._ids = count(1)
        self._asked: set[str] = set()  # Locks that one acquire is asking for; who comes meanwhile takes a place.
        self._acquiring = 0  # Acquires under way; closing lets them end.

    def new_id(self) -> str:
        """An id for an acquisition, or for a request, that no other has or will have."""
        return f"{self.client}:{next(self._ids)}"

    async def acquire(self, want: Acquisition, wait: float | None) -> Lease | None:
        """The lease that is wanted; ``None`` when *wait* seconds (``None``: for ever) ended."""
        started = monotonic()
        granted, first = None, self._is_next(want)
        self._acquiring += 1
        try:
            if first:
                granted = await self._attempt_first(want)
            elif wait == 0:
                granted = await self._attempt(want, None)
            if granted is None and wait != 0:
                granted = await self._contend(want, None if wait is None else started + wait, first=first)
        except BackendError:
            want.note_failure()
            self.usage.check_open()  # Closing fails what is under way.
            raise
        finally:
            self._acquiring -= 1
            if want.in_doubt:
                want.abandon()
        if granted is not None:
            self.report.acquired(granted._hold, monotonic() - started)
            self._refuse_if_over(granted)
        return granted

    def _refuse_if_over(self, lease: Lease) -> None:
        """Hand out no lease that is lost already, as one of a few milliseconds may be; raises `LeaseLostError`."""
        try:
            self.keeper.refuse_if_over(lease._hold)
        except LeaseLostError:
            self.keeper.take_back(lease)
            raise

    async def _contend(self, want: Acquisition, ends: float | None, *, first: bool) -> Lease | None:
        """The wait loop: take a place, the *first* if refused already, and try whenever it is its turn."""
        place = Place(want, ends)
        self.queues.join(want.keys, place, self._time_left(want), first=first)
        try:
            while True:
                await place.parked()
                if not place.begin():
                    return None
                granted = await self._attempt_as_head(want, place)
                place.settle(granted is not None)
                if granted is not None:
                    self._note_hand_off(granted._hold, place.in_a_row)
                    return granted
        finally:
            self.queues.leave(want.keys, place)

    async def _attempt_as_head(self, want: Acquisition, place: Place) -> Lease | None:
        try:
            return await self._attempt(want, place.take())
        except BackendError as error:  # What one waiter learns of the server, all learn, and not one after another.
            self.queues.fail(want.keys, error)
            raise

    def _note_hand_off(self, hold: Hold, in_a_row: int) -> None:
        hold.in_a_row = in_a_row
        if in_a_row:
            self.report.handed_off(hold)

    def _is_next(self, want: Acquisition) -> bool:
        """Whether to try at once: the owner has the lock, or nobody of this client has it, waits for it or tries."""
        hold = self.keeper.holds.on(want.keys.lock)
        if hold is not None:
            return hold.owner == want.owner
        return want.keys.lock not in self._asked and self.queues.get(want.keys) is None

    def _time_left(self, want: Acquisition) -> float | None:
        """Seconds that the lock stays held at most, if that is known."""
        hold = self.keeper.holds.on(want.keys.lock)
        return want.left if hold is None else hold.expires - monotonic()

    async def _attempt_first(self, want: Acquisition) -> Lease | None:
        """A try ahead of the queue; those who come meanwhile take their places and need not try."""
        self._asked.add(want.keys.lock)
        try:
            return await self._attempt(want, None)
        except BackendError as error:
            self.queues.fail(want.keys, error)
            raise
        except BaseException:
            self.queues.look_again(want.keys)
            raise
        finally:
            self._asked.discard(want.keys.lock)

    async def _attempt(self, want: Acquisition, handed: Call | None) -> Lease | None:
        """One try; *handed* is one that is under way already."""
        hold = self.keeper.holds.get(want.owner, want.keys.lock)
        if hold is not None and handed is None:
            return await self._nest(hold, want)
        call = handed or want.submit()
        reply = await call
        self.usage.check_open()
        status, token, left = reply
        if status == GRANTED:
            if call.short is not None:
                raise ReplicationError(want.keys.name, *call.short)
            return self._grant_in_time(want, call, token, left / 1000)
        if status == STALE:  # Granted unseen, and freed by force since.
            want.begin_anew()
            return await self._attempt(want, None)
        left /= 1000
        want.refused(call, left)
        if status == NOT_A_LOCK:
            raise NotALockError(want.keys.name)
        if (hold := self.keeper.holds.get(want.owner, want.keys.lock)) is not None:
            return await self._nest(hold, want)  # Granted meanwhile, to another task that acts as the same owner.
        self.queues.probe_in(want.keys, left)
        if handed is not None:  # It may have run before the release that it was sent along with.
            self.queues.look_again(want.keys)
        return None

    def _grant_in_time(self, want: Acquisition, call: Call, token: int, left: float) -> Lease | None:
        """
        The lease that *call* was granted, the key having *left* seconds.

        A grant that came too late to be of use, because the process was paused or the loop blocked, is as good as
        a refusal; one after the other is too short a lease.
        """
        if monotonic() < call.sent + left - self.timing.margin(left):
            return self._grant(want, call, token, left)
        self.commands.give_up(want.claim, want.lease)
        want.begin_anew()
        want.too_late += 1
        if want.too_late == _MOST_TOO_LATE:
            raise LeaseLostError(want.keys.name, token, "expired")
        self.queues.probe_in(want.keys, 0)
        return None

    def _grant(self, want: Acquisition, call: Call, token: int, left: float) -> Lease:
        want.in_doubt = False
        hold = Hold(want.claim, token, sent_once=not (want.repeated or call.repeated))
        lease = self._add_lease(hold, want)
        lease._granted = True
        self.keeper.keep(hold, call, left)
        self._card.show()
        if (queue := self.queues.get(want.keys)) is not None:
            queue.granted(left)
            if is_named(want.owner):
                queue.wake_owner(want.owner)
        return lease

    def _add_lease(self, hold: Hold, want: Acquisition) -> Lease:
        lease = Lease(hold, self.keeper, want.lease, want.watched, want.task)
        hold.add(lease)
        return lease

    async def _nest(self, hold: Hold, want: Acquisition) -> Lease:
        """One more hold for an owner that has the lock."""
        self.keeper.refuse_if_over(hold)
        lease = self._add_lease(hold, want)
        call = self.commands.acquire_again(hold, want.lease)
        try:
            status, why, left = await call
            if status == LOST:
                self.keeper.lose(hold, REASONS[why], gone=True)
            self.keeper.refuse_if_over(hold)
            if call.short is not None:
                raise ReplicationError(want.keys.name, *call.short)
        except BackendError:
            self.keeper.take_back(lease)
            self.keeper.refuse_if_over(hold)
            raise
        except BaseException:
            self.keeper.take_back(lease)
            raise
        self.keeper.keep(hold, call, left / 1000)
        lease._granted = True
        return lease

    async def force_release(self, keys: LockKeys) -> bool:
        """Free the lock whoever holds it; as `AsyncRLock.force_release`."""
        status, freed, _ = await self.commands.force_release(keys, self.new_id())
        if status == NOT_A_LOCK:
            raise NotALockError(keys.name)
        if freed and (hold := self.keeper.holds.on(keys.lock)) is not None:
            self.keeper.lose(hold, "forced", gone=True)
        return bool(freed)

    def statistics(self) -> ClientStatistics:
        return ClientStatistics(
            held=len(self.keeper.holds),
            parked=sum(len(queue) for queue in self.queues),
            subscriptions=self._notifier.subscriptions,
            pending=self._backend.pending,
            connections=self._backend.connections + self._notifier.connections,
            commands=self._backend.commands,
            batches=self._backend.batches,
            renewals=self.report.renewals,
            losses=self.report.losses,
            hand_offs=self.report.hand_offs,
        )

    def lock_statistics(self, keys: LockKeys) -> LockStatistics:
        hold = self.keeper.holds.on(keys.lock)
        queue = self.queues.get(keys)
        return LockStatistics(
            held=int(hold is not None),
            parked=0 if queue is None else len(queue),
            subscriptions=int(self._notifier.watches(keys.channel)),
            renewals=0 if hold is None else hold.renewals,
            hand_offs=0 if queue is None else queue.hand_offs,
        )

    async def aclose(self) -> None:
        """Close within the release timeout; what could not be told the server by then ends with its lease."""
        ends = asyncio.get_running_loop().time() + self.timing.release_timeout
        self.usage.closed = True
        try:
            await asyncio.sleep(0)  # An eager task must not tell of the closing before its caller knows of it.
            await self._end_all()
            async with asyncio.timeout_at(ends):
                await self._settled()
        except (TimeoutError, BackendError):
            self.report.closed_in_doubt(self._backend.pending)
        finally:
            await self._backend.aclose()

    async def _end_all(self) -> None:
        """Let the holders leave, and end every wait."""
        self.keeper.tell_closing(self.timing.release_timeout * _TO_ROLL_BACK)
        try:
            for _ in range(_TURNS_OF_A_LOSS):  # So that a holder who waits for a second lock learns only of this.
                await asyncio.sleep(0)
        finally:
            for queue in self.queues:
                queue.fail(lambda: ClientClosedError("closed"))
            await self.keeper.close(self.timing.release_timeout * _TO_LEAVE)
            self._card.take_away()

    async def _settled(self) -> None:
        """Wait until every acquire has ended and every command is answered."""
        await self._backend.drained()
        while self._acquiring or self._backend.pending:
            await asyncio.sleep(0)  # Those whose wait just ended give up what they may have been granted.
            await self._backend.drained()
