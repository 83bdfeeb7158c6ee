"""
The index of one client: the holds, acquires and waiters by name, and the holds by owner.

The index decides nothing: holds report their grants and their ends to it.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from weakref import WeakSet

from aiolock._backend import Call, Notifier
from aiolock._config import Timing
from aiolock._core.behind import Behind
from aiolock._core.commands import Commands
from aiolock._core.held import LOST
from aiolock._core.hold import BaseLease, Hold
from aiolock._core.owners import OwningTask, is_named
from aiolock._core.place import Place
from aiolock._core.queue import Queue
from aiolock._core.report import Reporter
from aiolock._errors import BackendError
from aiolock._identity import owner_of
from aiolock._keys import LockKeys
from aiolock._scripts import Claim, Want
from aiolock._scripts.replies import Changed, Refused
from aiolock._types import quoted

# Lost holds that are remembered, so that a late release can raise the reason of the loss.
REMEMBERED_LOSSES = 1024


class Entry:
    """The entry of one name in one client: holds, acquires under way, and the queue of waiters."""

    # Invariant: a name has an entry exactly while it has a hold, an acquire or a queue.

    __slots__ = ("_entries", "acquires", "asked", "forced", "holds", "keys", "leads", "queue")

    def __init__(self, keys: LockKeys, entries: "Entries") -> None:
        self.keys: LockKeys = keys
        self._entries = entries
        # The live holds, by the `key` of their claims; an exclusive lock has one at most.
        self.holds: dict[str, Hold] = {}
        self.acquires: int = 0
        # Acquires whose first try is on its way; tasks that come meanwhile take places in the queue.
        self.asked: int = 0
        self.queue: Queue | None = None
        # The time at which this client last freed the lock by force.
        self.forced: float = 0.0
        # False if the server keeps a line, and has said that the next in line is of another client.
        self.leads: bool = True

    @property
    def hold(self) -> Hold | None:
        """The live hold that was granted first."""
        return next(iter(self.holds.values()), None)

    def join(self, place: Place, want: Want, refusal: Refused | None, *, first: bool) -> Queue:
        """
        Put *place*, of a task that asks for *want*, into the queue, at its beginning if *first* is true.

        *refusal* is the last refusal of the place. Without one, the answer to an acquire on its way will say how long
        the holder has the lock.
        """
        scripts = want.scripts
        if self.queue is None:
            own = (self.keys.channel_of(self._entries.unique),) if scripts.line else ()
            channels = (self.keys.channel, *own)
            entries = self._entries
            self.queue = Queue(self.keys.name, channels, entries.notifier, scripts, self._emptied)
            entries.waiting[self.queue] = None
            if scripts.exclusive and self.hold is not None:
                self.queue.probe_in(self.hold.expires - monotonic())
            elif refusal is not None:
                self.queue.probe_in(refusal.left)
        self.queue.join(place, first)
        self.queue.lacks_number = self.queue.lacks_number and not want.tells_number
        return self.queue

    def look_again(self) -> None:
        """Wake the head: the lock may be free without a release, after a loss or a failed hand-off."""
        if self.queue is not None:
            self.queue.look_again()

    def look_later(self, left: float, *, handed: bool) -> None:
        """Note that the holder has the lock for *left* seconds: waiters try again then, or after a message."""
        if self.queue is not None:
            self.queue.probe_in(left)
            # A try that was sent together with a release may have run before the release.
            if handed:
                self.queue.look_again()

    def answered(self, call: Call) -> None:
        """Pass on the answer to *call*, which took nothing, to every task that waited when it was sent."""
        if self.queue is not None:
            self.queue.answered(call)

    def failed(self, error: BaseException) -> None:
        """Note that a first try has failed: if the server cannot be reached, all waits fail; else let the head try."""
        if isinstance(error, BackendError):
            self.fail(error.copy)
        else:
            self.look_again()

    def fail(self, make_error: Callable[[], Exception]) -> None:
        """End every wait for the lock; *make_error* makes an error for each."""
        if self.queue is not None:
            self.queue.fail(make_error)

    def drop_if_empty(self) -> None:
        """Drop the entry if it has nothing."""
        if not (self.holds or self.acquires) and self.queue is None:
            del self._entries[self.keys.entry]

    def _emptied(self) -> None:
        assert self.queue is not None
        del self._entries.waiting[self.queue]
        self.queue = None
        self.drop_if_empty()


class Entries(dict[str, Entry]):
    """The entries of one client, whose id has the *unique* part, by `LockKeys.entry`."""

    def __init__(self, unique: str, notifier: Notifier) -> None:
        super().__init__()
        self.unique: str = unique
        self.notifier: Notifier = notifier
        # The queues of all entries: each has a waiter.
        self.waiting: dict[Queue, None] = {}

    def of(self, keys: LockKeys) -> Entry:
        """The entry of a name, made if there is none; the caller has to add something to a new one."""
        entry = self.get(keys.entry)
        if entry is None:
            entry = self[keys.entry] = Entry(keys, self)
        return entry

    def in_the_way(self, keys: LockKeys) -> Hold | None:
        """The hold of this client that keeps others from the lock with these *keys*, if there is one."""
        entries = (self.get(keys.entry), self.get(keys.other))
        return next((entry.hold for entry in entries if entry is not None and entry.hold is not None), None)

    def refuse_upgrade(self, keys: LockKeys, owner: str) -> None:
        """Raise if *owner* would wait for itself with these *keys*: it reads, or has the lock of the other kind."""
        other, same = self.get(keys.other), self.get(keys.entry)
        if other is None or owner not in other.holds or (same is not None and owner in same.holds):
            return
        if keys.record is None:
            kind = other.holds[owner].kind.replace("_", " ")
            raise RuntimeError(
                f"lock {quoted(keys.name)}: this owner has it as a {kind}, and would wait for itself; acquire it with "
                "that handle, or release it before"
            )
        raise RuntimeError(
            f"lock {quoted(keys.name)}: its reader cannot get the write lock, because it would wait for itself; "
            "release the read lock before, or acquire the write lock first and then the read lock"
        )

    def all(self) -> list[Entry]:
        """A copy of the list of all entries."""
        return list(self.values())

    @property
    def has_acquires(self) -> bool:
        """Whether an acquire is under way; closing waits for its end."""
        return any(entry.acquires for entry in self.all())

    def holds(self) -> list[Hold]:
        """A new list of all live holds."""
        return [hold for entry in self.values() for hold in entry.holds.values()]


class Leases:
    """Keeps the holds of one client: a `Keeper`."""

    # Invariant: a hold is in the entry of its name, and in `_owned` by its owner, from its grant to its end. A lost
    # hold is in `_lost` until its owner has given it back, got the lock again or ended, or later losses replace it.

    def __init__(self, entries: Entries, commands: Commands, timing: Timing, report: Reporter) -> None:
        self.entries: Entries = entries
        self.commands: Commands = commands
        self.timing: Timing = timing
        self.report: Reporter = report
        self.patient_until: float | None = None
        self.body_ended: asyncio.Event | None = None
        self.behind: Behind = Behind(entries.notifier)
        self._owned: dict[str, dict[Hold, None]] = {}
        self._lost: OrderedDict[tuple[str, str], Hold] = OrderedDict()
        # The holds that were lost while a body ran under each.
        self._lost_in_use: WeakSet[Hold] = WeakSet()

    def keep(self, hold: Hold) -> bool:
        """Add *hold*, which was granted; returns ``False`` if a later grant, which is known already, excludes it."""
        claim = hold.claim
        keys, key = claim.want.keys, claim.key
        # The acquire that was granted is still under way: the entry stays.
        entry = self.entries[keys.entry]
        excluded = self.entries.get(keys.other)
        # If the server had kept these holds, it would not have granted this one.
        if (entry.holds or excluded is not None) and (lost := _replaced_by(claim, entry, excluded)):
            if any(other.token > hold.token for other in lost):
                return False
            for other in lost:
                other.lose("expired" if other.owner == hold.owner else "taken", gone=True)
        entry.holds[key] = hold
        if entry.forced >= hold.confirmed_at:
            # The hold may have been granted before the lock was freed by force: the watchdog asks at once.
            hold.watch.doubted = entry.forced
        self._owned.setdefault(claim.owner, {})[hold] = None
        if self._lost:
            self._lost.pop((key, keys.entry), None)
        return True

    def get(self, keys: LockKeys, owner: str) -> Hold | None:
        """The live hold of *owner*."""
        entry = self.entries.get(keys.entry)
        return None if entry is None else entry.holds.get(owner)

    def last_lease(self, keys: LockKeys, owner: str, task: OwningTask) -> BaseLease | None:
        """The lease that the next release of *owner* in *task* gives back, lost or not; later holds come first."""
        if (hold := self.get(keys, owner)) is not None:
            return _last_lease(hold, task)
        lost = [hold for hold in self._lost.values() if hold.owner == owner]
        holds = [hold for hold in (*lost, *self._owned.get(owner, ())) if hold.keys == keys]
        leases = [lease for hold in reversed(holds) if (lease := _last_lease(hold, task)) is not None]
        return next((lease for lease in leases if not lease._scoped), leases[0] if leases else None)

    def held_here(self, want: Want) -> str | None:
        """The holder in this client that excludes *want*, as a text; ``None`` for permits, which have many holders."""
        return next((who for name in self._keeping_out(want) if (who := self._held_by(name)) is not None), None)

    def has_another(self, want: Want, owner: str) -> bool:
        """Whether another owner of this client than *owner* excludes *want*."""
        entries = [self.entries.get(name) for name in self._keeping_out(want)]
        return any(hold.owner != owner for entry in entries if entry is not None for hold in entry.holds.values())

    def _keeping_out(self, want: Want) -> tuple[str, ...]:
        """The names of the entries whose holds exclude *want*."""
        # Readers do not exclude each other. Fair locks are not `exclusive`, so that waiters can join the line.
        keeps_out = want.scripts.exclusive or want.scripts.line
        return (want.keys.entry, want.keys.other) if keeps_out else (want.keys.other,)

    def _held_by(self, name: str) -> str | None:
        """The holder in this client of the entry *name*, and the lock that this holder waits for, as a text."""
        entry = self.entries.get(name)
        hold = None if entry is None else entry.hold
        if hold is None or not hold.leases or not hold.claim.want.scripts.reentrant:
            return None
        record = hold.leases[0]._record
        task, other = record.task(), record.waits_for
        if is_named(hold.owner):
            return f"owner {quoted(owner_of(hold.owner).text)}"
        if task is None:
            return None
        return f"task {task.get_name()!r}" + ("" if other is None else f", which waits for {other!r},")

    def task_ended(self, task: OwningTask) -> None:
        """Note the end of *task*: it orphans the holds that the task owns."""
        for key in [key for key, hold in self._lost.items() if hold.owner == task.owner]:
            del self._lost[key]
        for hold in list(self._owned.get(task.owner, ())):
            if not hold.ended:
                hold.orphan(task.name)

    # The methods of a `Keeper`.

    def ended(self, hold: Hold) -> None:
        _ = self._remove(hold)

    def given_back(self, hold: Hold, release: Call[Changed], in_a_row: int, *, behind: bool) -> None:
        if behind:
            self.behind.add(hold.keys, release, in_a_row)
        entry = self._remove(hold)
        if entry.queue is not None and entry.leads:
            entry.queue.hand_off(release, in_a_row)

    @property
    def rolling_back(self) -> list[Hold]:
        """The lost holds that the server may still have, because a body of each has not left."""
        return [hold for hold in self._lost_in_use if hold.state is LOST and hold.in_use and hold.may_be_kept]

    def lost(self, hold: Hold) -> None:
        if hold.in_use:
            self._lost_in_use.add(hold)
        if hold.leases and hold.orphan_of is None:
            self._lost[hold.claim.key, hold.keys.entry] = hold
            if len(self._lost) > REMEMBERED_LOSSES:
                self._lost.popitem(last=False)
        if (entry := self.entries.get(hold.keys.entry)) is not None:
            entry.look_again()

    def lost_given_back(self, hold: Hold) -> None:
        key = hold.claim.key, hold.keys.entry
        if self._lost.get(key) is hold:
            del self._lost[key]

    def _remove(self, hold: Hold) -> Entry:
        """Remove *hold*; returns the entry of its name."""
        claim = hold.claim
        owned = self._owned[claim.owner]
        del owned[hold]
        if not owned:
            del self._owned[claim.owner]
        entry = self.entries[hold.keys.entry]
        del entry.holds[claim.key]
        entry.drop_if_empty()
        return entry

    # Closing.

    def tell_closing(self, patience: float) -> None:
        """
        Tell every holder that the client is being closed.

        For *patience* seconds, a body that the user has cancelled is not cancelled again.
        """
        self.patient_until = monotonic() + patience
        for hold in self.entries.holds():
            hold.tell_early("closed")

    async def close(self, patience: float) -> None:
        """
        Free every lock: at once if it has no body, else when the body has left, or after *patience* seconds.

        The server may still have a lock that is lost, because its body has not left.
        """
        try:
            for hold in self.entries.holds():
                if not hold.has_body:
                    hold.lose("closed")
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await self._bodies_left()
        finally:
            for hold in self.entries.holds():
                hold.lose("closed")
            for hold in self.rolling_back:
                hold.free()

    async def _bodies_left(self) -> None:
        """Wait until every body has left, or its task has ended."""
        holds = [*self.entries.holds(), *self.rolling_back]
        while holds:
            if holds[-1].has_body:
                self.body_ended = asyncio.Event()
                await self.body_ended.wait()
            else:
                holds.pop()


def _replaced_by(claim: Claim, entry: Entry, excluded: Entry | None) -> list[Hold]:
    """
    The holds that the server has lost, because it granted *claim*.

    In the *excluded* entry these are the holds of other owners, for a writer may read as well; in the claim's own
    *entry* all of them, if one owner at a time may have the lock, else that of the same owner.
    """
    scripts = claim.want.scripts
    others = [] if excluded is None else [hold for hold in excluded.holds.values() if hold.owner != claim.owner]
    if scripts.exclusive or scripts.line:
        return [*entry.holds.values(), *others]
    same = entry.holds.get(claim.key)
    return others if same is None else [same, *others]


def _last_lease(hold: Hold, task: OwningTask) -> BaseLease | None:
    """
    The lease of *hold* that a release by handle in *task* gives back: the last one that was granted.

    Other tasks may act as the same owner. So leases that no block gives back come first, and of these the leases that
    the task has acquired.
    """
    granted = [lease for lease in hold.leases if lease._granted]
    free = [lease for lease in granted if not lease._scoped]
    own = [lease for lease in free if lease._record is task]
    return next(reversed(own or free or granted), None)
