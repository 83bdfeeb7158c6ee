"""What becomes of a hold once it is granted: given back, renewed, or lost."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import suppress
from time import monotonic
from typing import Protocol

from aiolock._call import Call
from aiolock._commands import Commands
from aiolock._config import Timing
from aiolock._errors import BackendError, LossReason, NotALockError, NotHeldError, ReplicationError
from aiolock._holds import Holds
from aiolock._inspect import Inspector
from aiolock._lease import Hold, Lease
from aiolock._owner import OwningTask, is_named
from aiolock._queue import Queues
from aiolock._report import Reporter
from aiolock._scripts import EXPIRED, FORCED, LOST, TAKEN
from aiolock._types import Duration, LockKeys, lease_seconds
from aiolock._usage import Usage
from aiolock._watchdog import Watchdog

REASONS: dict[int, LossReason] = {EXPIRED: "expired", TAKEN: "taken", FORCED: "forced"}


class Blocks(Protocol):
    """The `async with` blocks of the client."""

    def enter(self, lease: Lease) -> object: ...

    def leave_lease(self, lease: Lease, error: BaseException | None) -> Coroutine[object, object, None]: ...

    def task_destroyed(self, task: OwningTask) -> None: ...


class HoldKeeper:
    """Keeps the holds of one client."""

    def __init__(
        self,
        *,
        usage: Usage,
        commands: Commands,
        inspector: Inspector,
        queues: Queues,
        timing: Timing,
        report: Reporter,
    ) -> None:
        self.holds: Holds = Holds()
        self.blocks: Blocks  # Of this client; set as it starts.
        self._usage = usage
        self._commands = commands
        self._inspector = inspector
        self._queues = queues
        self._timing = timing
        self._report = report
        self._watchdog = Watchdog(self, timing.renew_interval)
        self._taken_back = asyncio.Event()  # Closing waits for bodies to leave.

    def check_place(self) -> None:
        """Raise unless called where the client belongs."""
        self._usage.check_place()

    def keep(self, hold: Hold, call: Call, left: float) -> None:
        """*call* granted *hold*, or one more lease of it; the key had *left* seconds."""
        assert not hold.ended
        other = self.holds.on(hold.keys.lock)
        if other is not hold:
            if other is not None:  # The server would not have granted it to a second owner of ours.
                self.lose(other, "taken", gone=True)
            self.holds.add(hold)
        self._extend(hold, call, left)
        self._watchdog.watch(hold)

    def enter(self, lease: Lease) -> None:
        """An ``async with`` of *lease* begins."""
        self._usage.check_place()
        self.refuse_if_over(lease._hold)
        if lease.given_back:
            raise NotHeldError.of_lease(lease.name, lease._hold.owner)
        if lease._scoped:
            raise RuntimeError(f"lock {lease.name!r}: this lease is in an `async with` already, which gives it back")
        self.blocks.enter(lease)

    def leave(self, lease: Lease, error: BaseException | None) -> Coroutine[object, object, None]:
        """The ``async with`` of *lease* is left by *error*."""
        return self.blocks.leave_lease(lease, error)

    def held_by(self, keys: LockKeys) -> str | None:
        """Who of this client holds the lock, for people."""
        hold = self.holds.on(keys.lock)
        if hold is None or not hold.leases:
            return None
        task = hold.leases[0]._task()
        return "a named owner" if is_named(hold.owner) else None if task is None else f"task {task.get_name()!r}"

    # Given back.

    async def release(self, keys: LockKeys, owner: str) -> None:
        """Give the last lease of *owner* back; as `AsyncRLock.release`."""
        hold = self.holds.get(owner, keys.lock) or self.holds.lost(owner, keys.lock)
        lease = None if hold is None else hold.last_lease()
        if lease is None:
            self._usage.check_open()
            raise await self._not_held(keys, owner)
        await self.give_back(lease)

    async def give_back(self, lease: Lease) -> None:
        """Give the hold of *lease* back; as `Lease.release`."""
        self._usage.check_place()
        hold = lease._hold
        if lease.given_back:
            raise NotHeldError.of_lease(lease.name, hold.owner)
        self.notice_end(hold)
        call = self.take_back(lease)
        if call is None:
            raise hold.error()
        left = len(hold.leases)
        status, why, _ = await call
        if status == LOST:
            self.lose(hold, REASONS[why], gone=True)
            raise hold.error()
        if not left:
            self._commands.freed(hold, call)
        self._report.released(hold, left)

    def take_back(self, lease: Lease) -> Call | None:
        """Take *lease* from its hold and tell the server; ``None`` when the lock is lost, so that nothing answers."""
        hold = lease._hold
        lease.given_back = True
        hold.remove(lease)
        self._taken_back.set()
        if hold.ended:
            if not hold.leases:
                self.holds.forget_lost(hold)
                self._free(hold)
            return None
        if hold.leases:
            return self._commands.release(hold)
        self._end(hold)
        call = self._commands.release(hold)
        self._queues.hand_off(hold.keys, call, hold.in_a_row)
        return call

    def task_ended(self, task: OwningTask) -> None:
        """*task* is no more; what it still holds is nobody's, but in a forked child its parent's."""
        if self._usage.forked:
            return
        self.holds.forget_lost_by(task.owner)
        for hold in self.holds.owned_by(task.owner):
            self._report.orphaned(hold, task.name)
            if not all(body.has_lost_its_task for body in hold.bodies):
                self.lose(hold, "forced")  # Another task was given a lease, and runs under it.
            while hold.leases:
                self.take_back(hold.leases[-1])
        if not task.ended:
            self.blocks.task_destroyed(task)

    async def _not_held(self, keys: LockKeys, owner: str) -> NotHeldError:
        """The error for *owner*, who holds nothing; says who does, if the server says so."""
        try:
            return NotHeldError(keys.name, owner, await self._inspector.holder(keys))
        except (BackendError, NotALockError):
            return NotHeldError(keys.name, owner, None, "it is not known who does")

    def _end(self, hold: Hold) -> None:
        hold.ended = True
        self.holds.remove(hold)
        self._watchdog.forget(hold)

    # Renewed.

    def check(self, had: Callable[[str], bool]) -> None:
        """A server may have forgotten its locks: ask for each that it *had*, and tell the holder in time."""
        for hold in self.holds:
            if had(hold.keys.lock):
                self._watchdog.check(hold)

    def ask_renewals(self, holds: Sequence[Hold]) -> Iterator[tuple[Call, Sequence[Hold]]]:
        """Ask the server to renew *holds* by the watchdog's lease; if not watched, only for what is left of them."""
        for some in self._commands.together(holds):
            leases = []
            for hold in some:
                hold.unanswered += 1
                leases.append((hold, self._timing.lease if hold.watched else 0.0))
            yield self._commands.renew(leases, self._timing.renew_interval), some

    async def renew_lease(self, lease: Lease, duration: Duration | None) -> None:
        """Renew *lease*; as `Lease.renew`."""
        seconds = lease.lease if duration is None else lease_seconds(duration)
        self._usage.check_place()
        self._usage.check_open()
        hold = lease._hold
        self.refuse_if_over(hold)
        if lease.given_back:
            raise NotHeldError.of_lease(lease.name, hold.owner)
        # Redis counts whole milliseconds, and those that older servers spend within the script.
        enough = seconds - max(self._timing.margin(seconds), 0.002)
        try:
            while await self._renew(hold, seconds) < enough:
                self.refuse_if_over(hold)  # Else another renewal overtook this one, and it counted for nothing,
                if hold.ended:  # or a release did.
                    raise NotHeldError.of_lease(lease.name, hold.owner)
        except BackendError:
            self.refuse_if_over(hold)
            raise

    def late(self, hold: Hold, seconds: float) -> None:
        """A renewal is that far behind."""
        self._report.renewal_late(hold, seconds, hold.deadline - monotonic())

    async def _renew(self, hold: Hold, lease: float) -> float:
        hold.unanswered += 1
        patience = min(self._timing.command_timeout, hold.deadline - monotonic())  # It ends with the hold.
        call = self._commands.renew([(hold, lease)], patience)
        await call
        if call.short is not None:
            raise ReplicationError(hold.keys.name, *call.short)
        left = self._acknowledged(hold, call, 0)
        if not hold.ended:
            self._report.renewed(hold, hold.deadline - monotonic())
        return left

    def note_renewal(self, hold: Hold, call: Call, row: int) -> bool:
        """Take note of a *row* of the answer; ``False`` if too few replicas have it, so that it does not count."""
        if call.short is not None:
            return False
        if not hold.watched:
            self._still_has(hold, call, row)
        elif self._acknowledged(hold, call, row):
            self._report.renewed(hold, hold.deadline - monotonic())
        return True

    def _acknowledged(self, hold: Hold, call: Call, row: int) -> float:
        """The seconds that the server gives *hold*, by that *row* of the answer; 0 when it has ended."""
        if not self._still_has(hold, call, row):
            return 0.0
        hold.renewals += 1
        left: float = call.reply[row][2] / 1000
        self._extend(hold, call, left)
        return left

    def _still_has(self, hold: Hold, call: Call, row: int) -> bool:
        """Whether the server still has *hold*, by that *row* of the answer."""
        status, why, _ = call.reply[row]
        self.notice_end(hold)  # What was over once stays so, whatever the answer.
        if status == LOST and not hold.ended:
            self.lose(hold, REASONS[why], gone=True)
        hold.unanswered = 0
        return not hold.ended

    def _extend(self, hold: Hold, call: Call, left: float) -> None:
        hold.extend(call.sent, left, self._timing.margin(left), min(self._timing.renew_interval, left / 2))

    # Lost.

    def lose(self, hold: Hold, reason: LossReason, *, gone: bool = False) -> None:
        """The lock is lost; *gone* when the server said so. The holder is told first, then whoever waits."""
        told = hold.loss is not None
        if told and hold.ended:
            return
        if not hold.ended:
            self._end(hold)
        hold.gone = hold.gone or gone
        if hold.leases:
            self.holds.remember_lost(hold)
        if not told:
            self._tell(hold, reason)
        if reason != "closed" and (hold.renewal or hold.step > 1):
            self._free(hold)  # A renewal or a nested acquire, on its way or unheard of, could let the key live on.
        self._queues.look_again(hold.keys)

    def _tell(self, hold: Hold, reason: LossReason) -> None:
        hold.tell(reason)
        self._report.lost(hold, reason)

    def notice_end(self, hold: Hold) -> None:
        """Lose *hold* if its time is over, whether or not its timer has come to it."""
        if hold.expired:
            self.lose(hold, "expired")

    def refuse_if_over(self, hold: Hold) -> None:
        """Raise if *hold* is lost."""
        self.notice_end(hold)
        if hold.loss is not None:
            raise hold.error()

    # Closed.

    def tell_closing(self, patience: float) -> None:
        """
        Tell every holder that the client is being closed; their bodies are cancelled, and roll back under their locks.

        A body that is unwinding already is not broken into, for *patience* seconds.
        """
        for hold in self.holds:
            hold.patient_until = monotonic() + patience
            self._tell(hold, "closed")

    async def close(self, patience: float) -> None:
        """Free every lock: those without a body at once, the others when it has left, or after *patience* seconds."""
        try:
            self._free_all(hold for hold in self.holds if not hold.has_body)
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await self._bodies_left()
        finally:
            self._free_all(self.holds)
            self._watchdog.close()

    async def _bodies_left(self) -> None:
        """Wait until every body has left."""
        holds = list(self.holds)
        while holds:
            if holds[-1].has_body:
                self._taken_back.clear()
                await self._taken_back.wait()
            else:
                holds.pop()

    def _free_all(self, holds: Iterable[Hold]) -> None:
        for hold in holds:
            self.lose(hold, "closed")
            self._free(hold)

    def _free(self, hold: Hold) -> None:
        """Tell the server that the lost *hold* has ended, unless it told us so itself."""
        if not hold.gone:
            hold.gone = True
            self._commands.end(hold)
