"""
The session of a client: its parts, the process and event loop where it may be used, and its end.

A client has one session, from its first use until it is closed.
"""

import asyncio
import sys
import warnings
from collections.abc import Callable, Coroutine, Iterator, Sized
from contextlib import contextmanager, suppress
from contextvars import Context
from dataclasses import replace
from time import monotonic
from types import FrameType
from typing import Any, TypeVar

import anyio

from aiolock._backend import Argument, Backend, Client
from aiolock._config import LockConfig, Timing
from aiolock._core.blocks import Blocks, Task, nothing_to_give_back, refuse_to_leave
from aiolock._core.commands import Commands
from aiolock._core.covered import CoveredHold
from aiolock._core.hold import Hold
from aiolock._core.leases import Entries, Leases
from aiolock._core.owners import Owners, OwningTask, running_task
from aiolock._core.report import Observer, Reporter
from aiolock._core.stand_in import StandIn
from aiolock._core.watchdog import Watchdog
from aiolock._errors import BackendError, ClientClosedError, NotALockError
from aiolock._identity import new_id, random_part
from aiolock._keys import LockKeys
from aiolock._process import Lineage, Unique
from aiolock._scripts import Script, Want
from aiolock._scripts.replies import Applied, Changed, NotALock
from aiolock._types import ClientStatistics, LockStatistics, quoted

# Turns of the loop: one cancels a body, the next delivers the cancellation, and the third is a reserve.
_TURNS_OF_A_LOSS = 3

# Seconds between two checks whether a client that the program has dropped still holds anything.
_LOOK_AGAIN = 0.5

B = TypeVar("B", bound=Backend)
# Begins to observe one client.
Observe = Callable[[Entries, Commands, Timing], Observer]

# Shares of the release timeout, when the client is closed: after the first, bodies that the user has cancelled are
# cancelled again; after the second, all locks are freed; the third is the time for the thread of `max_stall` to end.
_TO_ROLL_BACK, _TO_LEAVE, _TO_END = 0.5, 0.6, 0.1


class Session(Client, Unique):
    """The parts of a started client."""

    def __init__(
        self, connect: Callable[[Client], Backend], config: LockConfig, longest_lease: float, observe: Observe | None
    ) -> None:
        self._loop = running_task().get_loop()
        # Loads anyio's backend now, and not when a lock has to be released.
        anyio.CancelScope()
        self.client: str = new_id(config.client_name)
        self.timing: Timing = Timing.of(config, longest_lease)
        self.closed: bool = False
        self._forks = Lineage.forks
        self._closing: asyncio.Task[None] | None = None
        backend, unique = connect(self), random_part(self.client)
        self.entries: Entries = Entries(unique, backend.notifier)
        self.waiting: Sized = self.entries.waiting
        self.commands: Commands = Commands(unique, backend, self.timing)
        observer = None if observe is None else observe(self.entries, self.commands, self.timing)
        self.report: Reporter = Reporter(self.client, config.on_event, observer)
        self.leases: Leases = Leases(self.entries, self.commands, self.timing, self.report)
        self.watchdog: Watchdog = Watchdog(self.commands, self.report, self.timing)
        self.owners: Owners = Owners(self.client, self._task_ended)
        self.blocks: Blocks = Blocks(self.owners, self.report, self.can_leave, config.release)
        self.stand_in: StandIn | None = None
        if self.timing.max_stall:
            self.stand_in = StandIn(connect, self.leases, unique)
        self.new_hold: type[Hold] = Hold if self.stand_in is None else CoveredHold
        if config.telemetry is not None:
            config.telemetry.started(self.client, self.statistics)

    # Its process and loop.

    @property
    def forked(self) -> bool:
        """Whether this process is a forked child of the process in which the session began."""
        return Lineage.forks != self._forks

    def check_place(self) -> None:
        """Raise unless this is the session's process and event loop."""
        if Lineage.forks != self._forks:
            raise ClientClosedError("other process")
        loop: asyncio.AbstractEventLoop | None
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            loop = None
        if loop is not self._loop:
            raise ClientClosedError("other loop")

    def check_open(self) -> None:
        """Raise if the session is closed: this is then the reason why calls fail."""
        if self.closed:
            raise ClientClosedError("closed")

    def can_leave(self, error: BaseException | None) -> bool:
        """
        Whether a block can be left here; raises like `check_place` in another loop, unless *error* leaves the block.

        A forked child that leaves a block of its parent has nothing to give back, and gets no error.
        """
        try:
            self.check_place()
        except ClientClosedError as misplaced:
            if self.forked:
                return False
            if error is None:
                raise
            error.add_note(f"aiolock: {misplaced}")
            return False
        return True

    # Changes of its locks.

    async def force_release(self, want: Want, token: int | None = None) -> bool:
        """Free the lock from any holder, or only from the holder with *token*; see `AsyncRLock.force_release`."""
        before = self._holds_of(want.keys)
        call = self.commands.force_release(want, token=token)
        freed = self._number(want.keys, await call)
        for hold in self._holds_of(want.keys) if freed else ():
            if hold in before:
                hold.lose("forced", gone=True)
            else:
                # Only the server knows whether it was granted before the lock was freed, or after that.
                self.watchdog.check(hold)
        for name in (want.keys.entry, want.keys.other) if freed else ():
            if (entry := self.entries.get(name)) is not None:
                entry.forced = monotonic()
        return bool(freed)

    async def change(self, script: Script[Changed], keys: LockKeys, *how: Argument, frees: bool = False) -> int | None:
        """
        Change a primitive by *script*; returns the count of the answer, or ``None`` if the change is refused.

        If the script *frees* something, the acquire of the first waiter is sent along. A command that is sent twice
        counts once.
        """
        call = self.commands.change(script, keys, how, frees=frees)
        entry = self.entries.get(keys.entry)
        if frees and entry is not None and entry.queue is not None:
            entry.queue.hand_off(call, entry.queue.in_a_row)
        number = self._number(keys, await call)
        if not call.repeated:
            request = call.args[0]
            self.commands.may_forget(keys, str(request))
        return number

    def _number(self, keys: LockKeys, answer: Changed) -> int | None:
        """The count in the *answer* to a change; ``None`` if the change was refused."""
        if isinstance(answer, NotALock):
            raise NotALockError(keys.name)
        return answer.number if isinstance(answer, Applied) else None

    def _holds_of(self, keys: LockKeys) -> list[Hold]:
        """The holds of the lock in Redis that has these *keys*; a plain and a fair lock are the same one."""
        return [hold for hold in self.entries.holds() if (hold.keys.all, hold.keys.record) == (keys.all, keys.record)]

    def check_holds(self, had: Callable[[str], bool]) -> None:
        """Check each lock that the server *had*, because the server may have lost it, so that holders learn in time."""
        for hold in self.entries.holds():
            if hold.claim.want.scripts.expires and had(hold.keys.lock):
                self.watchdog.check(hold)

    def _task_ended(self, task: OwningTask) -> None:
        """Note the end of *task*, which loses its holds; in a forked child, the holds are the parent's."""
        if self.forked:
            return
        self.leases.task_ended(task)
        self.blocks.task_ended(task)

    def is_in_use(self) -> bool:
        """Whether a task holds a lock that it has yet to release."""
        return any(hold.is_awaited for hold in self.entries.holds())

    def statistics(self) -> ClientStatistics:
        """The result of `LockClient.statistics`."""
        of_backend = self.commands.backend.statistics()
        of_thread = 0 if self.stand_in is None else self.stand_in.connections
        return replace(
            of_backend,
            connections=of_backend.connections + of_thread,
            held=sum(len(entry.holds) for entry in self.entries.all()),
            parked=sum(map(len, tuple(self.entries.waiting))),
            subscriptions=self.entries.notifier.subscriptions,
            renewals=self.report.renewals,
            losses=self.report.losses,
            hand_offs=self.report.hand_offs,
            losses_behind=self.report.losses_behind,
            renewals_by_thread=self.report.renewals_by_thread,
        )

    def statistics_of(self, keys: LockKeys) -> LockStatistics:
        """The result of `AsyncRLock.statistics`."""
        entry = self.entries.get(keys.entry)
        hold = None if entry is None else entry.hold
        queue = None if entry is None else entry.queue
        return LockStatistics(
            held=0 if entry is None else len(entry.holds),
            parked=0 if queue is None else len(queue),
            subscriptions=int(self.entries.notifier.watches(keys.channel)),
            renewals=0 if hold is None else hold.watch.acknowledged,
            hand_offs=0 if queue is None else queue.hand_offs,
        )

    # Its end.

    async def aclose(self) -> None:
        """Close the session; goes on in the background if the caller is cancelled. Spares the caller's own blocks."""
        self.blocks.let_go()
        closing = self._begin_to_close()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([closing])
        # The end of the loop may cancel the closing, which is over then, too.
        if not closing.cancelled():
            closing.result()

    def abandon(self) -> bool:
        """
        Close the session as soon as it holds nothing, because the program has dropped the client.

        Returns whether there is anything to close: not after the end of the loop, which ends everything. Python calls
        this at any moment, in any thread.
        """
        if self.forked or self._closing is not None or self._loop.is_closed():
            return False
        # The loop may have been closed just now.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._look_later, True, context=Context())
        return True

    def _look_later(self, first: bool) -> None:
        # Not at once: the loop may be about to end, which ends the connections, too.
        self._loop.call_later(_LOOK_AGAIN, self._close_if_unused, first, context=Context())

    def _close_if_unused(self, first: bool) -> None:
        """Close, or look again later: the user may have kept a lease, which still has to be released."""
        names = sorted({hold.keys.name for hold in (*self.entries.holds(), *self.leases.rolling_back)})
        if names and first:
            self.report.abandoned(names)
        if names or self.entries.has_acquires:
            self._look_later(False)
        else:
            _ = self._begin_to_close()

    def _begin_to_close(self) -> asyncio.Task[None]:
        if self._closing is None:
            self._closing = self._loop.create_task(self._close(), context=Context())
        return self._closing

    async def _close(self) -> None:
        """Close within the release timeout; locks that the server was not told about end with their leases."""
        ends = self._loop.time() + self.timing.release_timeout
        try:
            await self._end_all()
            async with asyncio.timeout_at(ends):
                await self._drained()
        except (TimeoutError, BackendError):
            self.report.closed_in_doubt(self.commands.backend.statistics().pending)
        finally:
            await self.commands.backend.aclose()
            self.report.closed()

    async def _end_all(self) -> None:
        """Let the holders leave, and end every parked wait; a try on its way ends with its answer."""
        try:
            # With eager tasks, this runs before the caller has stored the task.
            await asyncio.sleep(0)
            self.leases.tell_closing(self.timing.release_timeout * _TO_ROLL_BACK)
            # A holder that asks for a second lock learns of its loss first, and not that the client is closed.
            for _ in range(_TURNS_OF_A_LOSS):
                await asyncio.sleep(0)
        finally:
            self.closed = True
            # Locks may have been granted in these turns.
            self.leases.tell_closing(self.timing.release_timeout * _TO_ROLL_BACK)
            for entry in self.entries.all():
                entry.fail(lambda: ClientClosedError("closed"))
            try:
                await self.leases.close(self.timing.release_timeout * _TO_LEAVE)
            finally:
                # Until then its thread renews the locks of blocks that still roll back.
                if self.stand_in is not None:
                    await self.stand_in.end(self.timing.release_timeout * _TO_END)

    async def _drained(self) -> None:
        """Wait until every acquire has ended and every command is answered."""
        backend = self.commands.backend
        await backend.drained()
        while self.entries.has_acquires or backend.statistics().pending:
            # Acquires whose wait has just ended give up possible grants.
            await asyncio.sleep(0)
            await backend.drained()


class Sessions(Unique):
    """Begins the session of a client at its first use."""

    # An interrupt may come before `__init__`.
    session: Session | None = None

    def __init__(self, begin: Callable[[], Session]) -> None:
        self._begin = begin

    def __del__(self, is_exiting: Callable[[], bool] = sys.is_finalizing) -> None:
        session = self.session
        if session is not None and not is_exiting() and session.abandon():
            text = (
                f"unclosed <LockClient {session.client}>: its connections end when it holds nothing any more. "
                "Use `async with LockClient(...)`, or call aclose()"
            )
            warnings.warn(text, ResourceWarning, stacklevel=2, source=self)

    def here(self) -> Session:
        """The session, which may begin now; raises `ClientClosedError` in another loop or process than its own."""
        if self.session is None:
            self.session = self._begin()
        self.session.check_place()
        return self.session

    def open(self) -> Session:
        """The session, as in `here`; also raises `ClientClosedError` if it is closed."""
        session = self.here()
        session.check_open()
        return session

    @contextmanager
    def through(self, wrap: Callable[[Backend], B]) -> Iterator[B]:
        """During the block, send all commands through the backend that *wrap* makes from the session's backend."""
        commands = self.open().commands
        backend = commands.backend
        commands.backend = wrapped = wrap(backend)
        try:
            yield wrapped
        finally:
            commands.backend = backend

    def can_leave(self, error: BaseException | None) -> bool:
        """Whether the client can be left here for *error*; see `Session.can_leave`."""
        return self.session is None or self.session.can_leave(error)

    def leave(
        self, here: FrameType, running: Task | None, want: Want, named: str | None, error: BaseException | None
    ) -> Coroutine[Any, Any, None]:
        """
        Leave a block from the frame *here*, with *error* or without.

        Any task may be *running*, and the thread may be another one: Python may destroy a block at any moment.
        """
        session = self.session
        leaving = None if session is None else session.blocks.leave_handle(here, running, want, named, error)
        if leaving is not None:
            return leaving
        if self.can_leave(error):
            refuse_to_leave(f"lock {quoted(want.keys.name)}", error)
        return nothing_to_give_back()
