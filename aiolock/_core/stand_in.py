"""
The thread that stands in for a client's event loop while this loop is late with renewals.

Rules:
1. The thread reads the holds. Nobody tells it when a lock is acquired or released, and it changes nothing but the
   `news` of holds; `covered` has the rules for that.
2. A hold whose renewal is late is renewed by the thread, in a task of its own, on connections of the thread, until the
   event loop has renewed it. Only lateness counts, because a loop that is blocked again and again may answer each
   question whether it runs, and still be late.
3. The thread asks the event loop whether it runs. If the loop has not answered for `LockConfig.max_stall`, the thread
   renews nothing: the locks of a process that hangs for good are free one lease later.
4. Between two looks the thread keeps nothing of the client alive. It ends with the client, with its event loop, and
   with the program. In a forked child it does not run, and the child never closes the thread's objects: closing them
   would remove the parent's connections from the selector that both processes share.
"""

import asyncio
import atexit
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from contextvars import Context
from math import inf
from time import monotonic
from weakref import ref

from aiolock._backend import Backend, Client
from aiolock._config import Timing
from aiolock._core.commands import Commands
from aiolock._core.covered import CoveredHold
from aiolock._core.held import Renewal
from aiolock._core.leases import Entries, Leases
from aiolock._core.renewer import Renewer
from aiolock._core.watchdog import grain_of
from aiolock._errors import ClientClosedError
from aiolock._helpers.loop_thread import LoopThread
from aiolock._log import log
from aiolock._scripts.replies import Lost
from aiolock._types import quoted

# Shares of the renewal interval: from one look to the next; from the due time until the thread connects; and from the
# due time until it renews. For each allowed interval, the renewal comes before the last third of the lease.
_LOOK, _PREPARE, _LATE = 1 / 12, 1 / 16, 1 / 8
# The thread keeps its connections for this many leases after the last late renewal.
_LINGER = 2
# Seconds for which the end of the program waits for a thread.
_AT_EXIT = 1.0

Connect = Callable[[Client], Backend]


class Rescue(Renewer[CoveredHold]):
    """The renewals and the connections of the thread, while there are late holds."""

    def __init__(self, connect: Connect, unique: str, timing: Timing, renewed: Callable[[CoveredHold], object]) -> None:
        super().__init__(Commands(unique, connect(Client()), timing), timing)
        self.until: float = inf
        """The time at which all tries of renewals end (monotonic clock)."""
        self._renewed = renewed
        self._tasks: dict[CoveredHold, asyncio.Task[None]] = {}

    def prepare(self, hold: CoveredHold) -> None:
        """Connect, because *hold* will be late soon."""
        self._commands.backend.prepare(hold.claim.keys)

    def renew(self, hold: CoveredHold) -> None:
        """Renew *hold*, which is late, in its task."""
        if hold not in self._tasks:
            name = f"aiolock: stand-in for lock {quoted(hold.keys.name)}"
            task = self._tasks[hold] = self._loop.create_task(self._keep(hold), name=name, context=self._context)
            task.add_done_callback(lambda _: self._tasks.pop(hold), context=self._context)

    async def aclose(self) -> None:
        """End the tasks, and close the connections."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._commands.backend.aclose()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being renewed."""
        return not self._tasks

    async def _keep(self, hold: CoveredHold) -> None:
        # After a failure the hold is still late, so the next look starts another task.
        if not hold.announce():
            return
        call, answer = await self._answer(hold)
        if answer is None or call.short is not None:
            hold.note_failure(call)
            return
        if isinstance(answer, Lost):
            hold.note_loss(answer.reason)
        else:
            hold.note_renewal(call.sent, answer.left)
        self._renewed(hold)

    def _next(self, hold: CoveredHold) -> Renewal:
        return Renewal(hold.claim, hold.number_renewal(), hold.renewable(self._timing.lease))

    def _patience(self, *, alone: bool) -> float:
        return min(super()._patience(alone=alone), self.until - monotonic())

    def _goes_alone(self, hold: CoveredHold) -> bool:
        return hold.news is not None and hold.news.failed is not None


class StandIn:
    """The thread of one client, which begins with it."""

    # Invariant: each attribute is written by one of the two threads only. The exception is `_asked`: the thread sets it
    # while it is `None`, and the event loop resets it.

    def __init__(self, connect: Connect, leases: Leases, unique: str) -> None:
        main = asyncio.get_running_loop()
        self._connect, self._unique, self._timing = connect, unique, leases.timing
        self._leases, self._main = ref(leases), ref(main)
        self._heard: float = monotonic()
        """The last time at which the event loop is known to have run."""
        self._asked: float | None = None
        """The time at which the event loop was asked whether it runs, if it has not answered yet."""
        self._news: deque[CoveredHold] = deque()
        """Holds with news for the event loop: an element for each renewal."""
        self._stood_still = 0.0
        """The longest time since the last report that the event loop took to say that it runs."""
        self._told = -inf
        """The time of the last report."""
        self._rescue: Rescue | None = None
        self._needed = -inf
        """The last time at which a renewal was late."""
        self._over = asyncio.Event()
        """Set in the event loop when the thread has closed its own loop, and does nothing any more."""
        self._stop = asyncio.Event()
        """Set in the thread when the thread is to end."""
        _running.add(self)
        self._thread = LoopThread(self._live, self._note_end)

    @property
    def connections(self) -> int:
        """The number of the thread's open connections."""
        rescue = self._rescue
        return 0 if rescue is None else rescue._commands.backend.statistics().connections

    # In the event loop.

    async def end(self, within: float) -> None:
        """End the thread, and wait *within* seconds at most for its end."""
        self.tell_end()
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._over.wait()
                # Setting `_over` was the last act of the thread, so this does not block the loop.
                self.join(_AT_EXIT)
        self._report()

    def _note_running(self) -> None:
        """Note that the event loop runs, and report what the thread has done meanwhile."""
        assert self._asked is not None
        asked, self._asked, self._heard = self._asked, None, monotonic()
        self._stood_still = max(self._stood_still, self._heard - asked)
        self._report()

    def _report(self) -> None:
        renewals = Counter[CoveredHold]()
        while self._news:
            renewals[self._news.popleft()] += 1
        leases = self._leases()
        if leases is None or not renewals:
            return
        kept = {hold: number for hold, number in renewals.items() if hold.news is None or hold.news.loss is None}
        again = monotonic() < self._told + self._timing.lease
        if kept:
            leases.report.renewed_by_thread(kept.items(), self._stood_still, most=self._timing.max_stall, again=again)
            self._told, self._stood_still = monotonic(), 0.0
        for hold in renewals:
            hold.notice_news()

    # In any thread.

    def tell_end(self) -> None:
        """Tell the thread to end, without waiting."""
        if self._thread.is_here:
            with suppress(ClientClosedError):
                self._thread.call(self._stop.set)

    def join(self, seconds: float) -> None:
        """Wait *seconds* at most for the end of the thread."""
        self._thread.join(seconds)

    # In the thread.

    async def _live(self) -> None:
        try:
            while not self._stop.is_set() and self._look():
                await self._close_if_idle()
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._timing.renew_interval * _LOOK):
                        await self._stop.wait()
        except Exception:
            log.exception("the thread of `max_stall` has failed: a blocked event loop loses its locks from now on")
        finally:
            if self._rescue is not None:
                await self._rescue.aclose()

    def _note_end(self) -> None:
        """Note that the loop of the thread is closed."""
        self._call(self._over.set)
        _running.discard(self)

    def _look(self) -> bool:
        """Renew the late holds; returns whether the client and its event loop still exist."""
        leases, main = self._leases(), self._main()
        if leases is None or main is None or main.is_closed():
            return False
        due = [(hold, at) for hold in _held(leases.entries) if (at := hold.renewal_due) < inf]
        if self._asked is None and (due or self._news):
            self._asked = monotonic()
            self._call(self._note_running)
        now, interval = monotonic(), self._timing.renew_interval
        limit = now - grain_of(interval)
        # While nothing was to be renewed, the event loop was not asked.
        until = max((self._heard, *(hold.heard for hold, _ in due))) + self._timing.max_stall
        helps = now < until and not leases.commands.has_faults
        late = [each for each in due if limit >= each[1] + interval * _PREPARE] if helps else ()
        for hold, at in late:
            self._help(hold, until, is_late=limit >= at + interval * _LATE)
        return True

    def _help(self, hold: CoveredHold, until: float, *, is_late: bool) -> None:
        self._needed = monotonic()
        if self._rescue is None:
            self._rescue = Rescue(self._connect, self._unique, self._timing, self._news.append)
        self._rescue.until = until
        if is_late:
            self._rescue.renew(hold)
        else:
            self._rescue.prepare(hold)

    async def _close_if_idle(self) -> None:
        rescue = self._rescue
        if rescue is not None and rescue.is_idle and monotonic() >= self._needed + _LINGER * self._timing.lease:
            self._rescue = None
            await rescue.aclose()

    def _call(self, function: Callable[[], object]) -> None:
        """Call *function* in the event loop, unless the loop is closed."""
        if (main := self._main()) is not None:
            with suppress(RuntimeError):
                main.call_soon_threadsafe(function, context=Context())


def _held(entries: Entries) -> Iterable[CoveredHold]:
    """The present holds. The event loop may change these dicts meanwhile, so each is copied in one step."""
    for entry in list(entries.values()):
        for hold in list(entry.holds.values()):
            if isinstance(hold, CoveredHold):
                yield hold


# In a forked child, it also keeps the objects of the threads alive: see rule 4.
_running: set[StandIn] = set()


def _end_all() -> None:
    """End the threads at the end of the program, which waits a moment for each."""
    for stand_in in list(_running):
        stand_in.tell_end()
    for stand_in in list(_running):
        stand_in.join(_AT_EXIT)


atexit.register(_end_all)
