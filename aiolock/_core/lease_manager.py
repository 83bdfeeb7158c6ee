"""What becomes of a hold once it is granted: given back, renewed, or lost. See the states in `hold`."""

import asyncio
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from logging import DEBUG
from time import monotonic

from aiolock._backend import Call
from aiolock._config import Timing
from aiolock._core.commands import Commands
from aiolock._core.hold import Grant, Hold, State, margin
from aiolock._core.owners import OwningTask, is_named
from aiolock._core.queue import Entries, Entry
from aiolock._core.report import Reporter
from aiolock._errors import BackendError, LossReason, NotHeldError, ReplicationError
from aiolock._keys import LockKeys
from aiolock._log import logger
from aiolock._scripts import EXPIRED, FORCED, LOST, TAKEN

REASONS: dict[int, LossReason] = {EXPIRED: "expired", TAKEN: "taken", FORCED: "forced"}
REMEMBERED_LOSSES = 1024  # So that a late release can be told what became of its lock.


class LeaseManager:
    """Keeps the holds of one client."""

    # Invariant: a hold is in the entry of its name, and in `_owned` by its owner, from its grant until it has ended. A
    # lost one is in `_lost`, until its owner has given it back, got the lock anew or is no more, or others came after.

    def __init__(self, entries: Entries, commands: Commands, timing: Timing, report: Reporter) -> None:
        self._entries = entries
        self._commands = commands
        self._timing = timing
        self._report = report
        self._owned: dict[str, list[Hold]] = {}
        self._lost: OrderedDict[tuple[str, str], Hold] = OrderedDict()
        self._taken_back: asyncio.Event | None = None  # Closing waits for a body to leave.

    def keep(self, hold: Hold) -> Entry:
        """*hold* was granted."""
        entry = self._entries.get(hold.keys.entry) or self._entries.of(hold.keys)
        if entry.holds and hold.claim.want.scripts.exclusive:  # The server would not have granted it to two of ours.
            for other in list(entry.holds.values()):
                self.lose(other, "taken", gone=True)
            entry = self._entries.of(hold.keys)
        entry.holds[hold.claim.key] = hold
        self._owned.setdefault(hold.owner, []).append(hold)
        if self._lost:
            self._lost.pop((hold.claim.key, hold.keys.entry), None)
        return entry

    def get(self, keys: LockKeys, owner: str) -> Hold | None:
        """The live hold of *owner*."""
        entry = self._entries.get(keys.entry)
        return None if entry is None else entry.holds.get(owner)

    def held_by(self, name: str) -> str | None:
        """Who of this client holds what has an entry of that *name*, for people. Of permits, nobody: many have some."""
        entry = self._entries.get(name)
        hold = None if entry is None else entry.hold
        if hold is None or not hold.leases or not hold.claim.want.scripts.reentrant:
            return None
        task = hold.leases[0]._task()
        return "a named owner" if is_named(hold.owner) else None if task is None else f"task {task.get_name()!r}"

    # Given back.

    def last_lease(self, keys: LockKeys, owner: str) -> Grant | None:
        """What *owner* gives back next, also if it is lost; where each acquire is a hold, of the one acquired last."""
        if (hold := self.get(keys, owner)) is not None:
            return hold.last_lease()
        lost = [hold for hold in self._lost.values() if hold.owner == owner]
        holds = [hold for hold in (*lost, *self._owned.get(owner, ())) if hold.keys == keys]
        return next((lease for hold in reversed(holds) if (lease := hold.last_lease()) is not None), None)

    async def give_back(self, lease: Grant) -> None:
        """Give the hold of *lease* back; as `Lease.release`."""
        hold = lease._hold
        refuse_if_given_back(lease)
        ended = monotonic()
        if ended >= hold.deadline:
            self.notice_end(hold)
        call = self.take_back(lease)
        if call is None:
            raise hold.error()
        left = len(hold.leases)
        try:
            status, why, _ = await call
        except BaseException:
            self._report.released(hold, left, ended, confirmed=False)
            raise
        if status == LOST:
            self.lose(hold, REASONS[why], gone=True)
            raise hold.error()
        hold.unheard -= not call.repeated
        if not left and not hold.unheard:
            self._commands.may_forget(hold.keys, hold.claim.id)
        if self._report.on_event is not None or logger.isEnabledFor(DEBUG):
            self._report.released(hold, left, ended)

    def take_back(self, lease: Grant) -> Call | None:
        """Take *lease* from its hold and tell the server; ``None`` when the lock is lost, so that nothing answers."""
        hold = lease._hold
        lease.given_back = True
        hold.remove(lease)
        if self._taken_back is not None:
            self._taken_back.set()
        if hold.ended:
            if not hold.leases:
                if self._lost.get(key := (hold.claim.key, hold.keys.entry)) is hold:
                    del self._lost[key]
                self._free(hold)
            return None
        hold.unheard += 1
        if hold.leases:
            return self._commands.release(hold, len(hold.leases))
        hold.end(State.GIVEN_BACK if hold.loss is None else State.LOST)
        entry = self._forget(hold)
        call = self._commands.release(hold, 0)
        if entry.queue is not None and entry.leads:
            entry.queue.hand_off(call, hold.in_a_row)
        return call

    def task_ended(self, task: OwningTask) -> None:
        """*task* is no more; what it still holds is nobody's."""
        for key in [key for key, hold in self._lost.items() if hold.owner == task.owner]:
            del self._lost[key]
        for hold in list(self._owned.get(task.owner, ())):
            self._report.orphaned(hold, task.name)
            if not all(body.has_lost_its_task for body in hold.bodies):
                self.lose(hold, "forced")  # Another task was given a lease, and runs under it.
            while hold.leases:
                self.take_back(hold.leases[-1])

    def _forget(self, hold: Hold) -> Entry:
        """*hold* has ended; its name's entry."""
        owned = self._owned[hold.owner]
        owned.remove(hold)
        if not owned:
            del self._owned[hold.owner]
        entry = self._entries[hold.keys.entry]
        del entry.holds[hold.claim.key]
        entry.settle()
        return entry

    # Renewed.

    def ask_renewals(self, holds: Sequence[Hold]) -> Iterator[tuple[Call, Sequence[Hold]]]:
        """Ask the server to renew *holds* by the watchdog's lease; if not watched, only for what is left of them."""
        for some in self._commands.together(holds):
            leases = []
            for hold in some:
                hold.unanswered += 1
                leases.append((hold, self._timing.lease if hold.watched else 0.0))
            yield self._commands.renew(leases, self._timing.renew_interval), some

    async def renew_lease(self, lease: Grant, seconds: float) -> None:
        """Let *lease* live so many seconds from now; as `Lease.renew`."""
        hold = lease._hold
        self._timing.check_lease(seconds)
        self.refuse_if_over(hold)
        refuse_if_given_back(lease)
        # Redis counts whole milliseconds, and those that older servers spend within the script.
        enough = seconds - max(margin(seconds, self._timing), 0.002)
        try:
            while await self._renew(hold, seconds) < enough:
                self.refuse_if_over(hold)  # Else another renewal overtook this one, and it counted for nothing,
                if hold.ended:  # or a release did.
                    raise NotHeldError.of_lease(hold.keys.name, hold.owner)
        except BackendError:
            self.refuse_if_over(hold)
            raise

    async def _renew(self, hold: Hold, lease: float) -> float:
        hold.unanswered += 1
        patience = min(self._timing.command_timeout, hold.deadline - monotonic())  # It ends with the hold.
        call = self._commands.renew([(hold, lease)], patience)
        await call
        if call.short is not None:
            raise ReplicationError(hold.keys.name, *call.short)
        return self._acknowledged(hold, call, 0)

    def note_renewal(self, hold: Hold, call: Call, row: int) -> bool:
        """Take note of a *row* of the answer; ``False`` if too few replicas have it, so that it does not count."""
        if call.short is not None:
            return False
        if hold.watched:
            self._acknowledged(hold, call, row)
        else:
            self._still_has(hold, call, row)
        return True

    def _acknowledged(self, hold: Hold, call: Call, row: int) -> float:
        """The seconds that the server gives *hold*, by that *row* of the answer; 0 when it has ended."""
        if not self._still_has(hold, call, row):
            return 0.0
        hold.renewals += 1
        left: float = call.reply[row][2] / 1000
        hold.extend(call.sent, left)
        self._report.renewed(hold)
        return left

    def _still_has(self, hold: Hold, call: Call, row: int) -> bool:
        """Whether the server still has *hold*, by that *row* of the answer."""
        status, why, _ = call.reply[row]
        self.notice_end(hold)  # What was over once stays so, whatever the answer.
        if status == LOST and not hold.ended:
            self.lose(hold, REASONS[why], gone=True)
        hold.unanswered = 0
        return not hold.ended

    # Lost.

    def lose(self, hold: Hold, reason: LossReason, *, gone: bool = False) -> None:
        """The lock is lost; *gone* when the server said so. The holder is told first, then whoever waits."""
        if hold.state is State.LOST:
            return
        told = hold.loss is not None
        if not hold.ended:
            hold.end(State.LOST)
            self._forget(hold)
        hold.state = State.LOST
        hold.gone = hold.gone or gone
        if hold.leases:
            self._remember_lost(hold)
        if not told:
            self._tell(hold, reason)
        if reason == "closed" or hold.renewal or hold.step > 1:
            self._free(hold)  # Else the key ends by itself: nothing on its way, or unheard of, could let it live on.
        if (entry := self._entries.get(hold.keys.entry)) is not None:
            entry.look_again()

    def _remember_lost(self, hold: Hold) -> None:
        self._lost[hold.claim.key, hold.keys.entry] = hold
        if len(self._lost) > REMEMBERED_LOSSES:
            self._lost.popitem(last=False)

    def _tell(self, hold: Hold, reason: LossReason) -> None:
        hold.tell(reason)
        self._report.lost(hold, reason)

    def tell_early(self, hold: Hold) -> None:
        """Tell the holder of a loss that is to come, so that what runs under the lock ends before; then it is free."""
        if hold.loss is None and not hold.ended:
            hold.state = State.CLOSING
            self._tell(hold, "unreachable" if hold.unanswered else "expired")

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
        for hold in self._entries.holds():
            hold.state = State.CLOSING
            hold.patient_until = monotonic() + patience
            self._tell(hold, "closed")

    async def close(self, patience: float) -> None:
        """Free every lock: those without a body at once, the others when it has left, or after *patience* seconds."""
        try:
            for hold in self._entries.holds():
                if not hold.has_body:
                    self.lose(hold, "closed")
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await self._bodies_left()
        finally:
            for hold in self._entries.holds():
                self.lose(hold, "closed")

    async def _bodies_left(self) -> None:
        """Wait until every body has left."""
        holds = list(self._entries.holds())
        while holds:
            if holds[-1].has_body:
                self._taken_back = asyncio.Event()
                await self._taken_back.wait()
            else:
                holds.pop()

    def _free(self, hold: Hold) -> None:
        """Tell the server that the lost *hold* has ended, unless it told us so itself."""
        if not hold.gone:
            hold.gone = True
            _ = self._commands.release(hold, 0)  # Nobody waits for the answer.


def refuse_if_given_back(lease: Grant) -> None:
    """Raise if *lease* was released."""
    if lease.given_back:
        raise NotHeldError.of_lease(lease._hold.keys.name, lease._hold.owner)
