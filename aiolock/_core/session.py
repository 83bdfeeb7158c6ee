"""
One life of a client: what it consists of, where it may be used, and how it ends.

A session belongs to one process and one event loop, and is used until it is closed.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context
from dataclasses import asdict
from types import FrameType
from typing import TypeVar
from uuid import uuid4

import anyio

from aiolock._backend import Argument, Backend, Client, Reply
from aiolock._config import LockConfig, Timing
from aiolock._core.blocks import Blocks, nothing_to_give_back
from aiolock._core.card import Card
from aiolock._core.commands import Commands
from aiolock._core.hold import Hold
from aiolock._core.inspect import Inspector
from aiolock._core.lease_manager import LeaseManager
from aiolock._core.marks import Marks
from aiolock._core.owners import Owners, OwningTask
from aiolock._core.queue import Entries
from aiolock._core.report import Reporter
from aiolock._core.watchdog import Watchdog
from aiolock._errors import BackendError, ClientClosedError, NotALockError
from aiolock._keys import LockKeys
from aiolock._process import Lineage, Unique
from aiolock._scripts import NOT_A_LOCK, Script, Want
from aiolock._types import LONGEST, ClientStatistics, LockStatistics

_TURNS_OF_A_LOSS = 3  # Of the loop: for the cancellation of a body, for that to be delivered, and one to be sure.

B = TypeVar("B", bound=Backend)

# When the client is closed: the shares of the release timeout after which bodies that still unwind by a cancellation of
# the user's own are cancelled once more, and after which their locks are freed.
_TO_ROLL_BACK, _TO_LEAVE = 0.5, 0.6


class Session(Unique):
    """What a started client runs on."""

    def __init__(self, connect: Callable[[Client], Backend], config: LockConfig, longest_lease: float) -> None:
        anyio.CancelScope()  # Loads anyio's backend now, not when a body has failed and its lock waits for release.
        self.client: str = str(uuid4())
        self.timing: Timing = Timing.of(config, longest_lease)
        self.closed: bool = False
        self._loop = asyncio.get_running_loop()
        self._forks = Lineage.forks
        self._closing: asyncio.Task[None] | None = None
        self.acquiring: int = 0  # Acquires under way; closing lets them end.
        backend = connect(self)
        self.entries: Entries = Entries(self.client, backend.notifier)
        self.commands: Commands = Commands(self.client, backend, self.timing)
        self.inspector: Inspector = Inspector(self.commands)
        telemetry = config.telemetry
        marks = None if telemetry is None else Marks(telemetry, self.entries, self.commands, self.timing)
        self.report: Reporter = Reporter(self.client, self.entries, config.on_event, marks)
        self.leases: LeaseManager = LeaseManager(self.entries, self.commands, self.timing, self.report)
        self.watchdog: Watchdog = Watchdog(self.leases, self.report, self.timing.renew_interval)
        self.owners: Owners = Owners(self.client, self._task_ended)
        self.blocks: Blocks = Blocks(self.entries, self.leases, self.owners, self.report, self.can_leave)
        self.card: Card = Card(config.client_name, self.commands, self.entries.holds)
        if telemetry is not None:
            telemetry.started(self.client, self.statistics)

    # Where it may be used.

    @property
    def forked(self) -> bool:
        """Whether this is a child of the process in which it was started."""
        return Lineage.forks != self._forks

    def check_place(self) -> None:
        """Raise unless called in that process and its loop."""
        if Lineage.forks != self._forks:
            raise ClientClosedError("other process")
        loop: asyncio.AbstractEventLoop | None
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            loop = None
        if loop is not self._loop:
            # A forked child that goes on in a coroutine of its parent has no loop, and may have used the client since.
            raise ClientClosedError("other process" if loop is None and Lineage.forks else "other loop")

    def check_open(self) -> None:
        """Raise if it is closed."""
        if self.closed:
            raise ClientClosedError("closed")

    def can_leave(self, error: BaseException | None) -> bool:
        """
        Whether a block can be left here; raises, as `check_place`, if it cannot and no *error* leaves it.

        A forked child that leaves a block of its parent has nothing to give back, and its own exception counts.
        """
        try:
            self.check_place()
        except ClientClosedError as misplaced:
            if error is None:
                raise
            if misplaced.reason == "other loop":
                error.add_note(f"aiolock: {misplaced}")
            return False
        return True

    # What happens to its locks.

    async def force_release(self, want: Want) -> bool:
        """Free the lock whoever holds it; as `AsyncRLock.force_release`."""
        before = self._holds_of(want.keys)
        call = self.commands.force_release(want)
        status, freed, _ = await call
        if status == NOT_A_LOCK:
            raise NotALockError(want.keys.name)
        for hold in self._holds_of(want.keys) if freed else ():
            if hold in before or hold.heard < call.sent:  # Else it was granted after the others were freed.
                self.leases.lose(hold, "forced", gone=True)
        return bool(freed)

    async def change(self, script: Script, keys: LockKeys, *how: Argument, frees: bool = False) -> Reply:
        """
        Let a *script* of one primitive's own change it; sent twice, it counts once.

        When it *frees* something, the acquire of the first who waits is sent along.
        """
        call = self.commands.change(script, keys, how, frees=frees)
        entry = self.entries.get(keys.entry)
        if frees and entry is not None and entry.queue is not None:
            entry.queue.hand_off(call, entry.queue.in_a_row)
        reply = await call
        if reply[0] == NOT_A_LOCK:
            raise NotALockError(keys.name)
        if not call.repeated:
            self.commands.may_forget(keys, str(call.args[0]))  # By that it is told from others.
        return reply

    def _holds_of(self, keys: LockKeys) -> list[Hold]:
        """Those of this lock in Redis, which a plain and a fair one share."""
        return [hold for hold in self.entries.holds() if (hold.keys.all, hold.keys.record) == (keys.all, keys.record)]

    def doubt(self, had: Callable[[str], bool]) -> None:
        """A server may have forgotten its locks: ask for each that it *had*, and tell the holder in time."""
        for hold in self.entries.holds():
            if hold.claim.want.scripts.expires and had(hold.keys.lock):
                self.watchdog.check(hold)

    def _task_ended(self, task: OwningTask) -> None:
        """*task* is no more; what it still holds is nobody's, but in a forked child its parent's."""
        if self.forked:
            return
        self.leases.task_ended(task)
        self.blocks.task_ended(task)

    def is_in_use(self) -> bool:
        """Whether something is held by a task that is yet to release it."""
        return any(hold.is_awaited for hold in self.entries.holds())

    def statistics(self) -> ClientStatistics:
        """What `LockClient.statistics` says."""
        return ClientStatistics(
            held=sum(len(entry.holds) for entry in self.entries.all()),
            parked=sum(len(queue) for entry in self.entries.all() if (queue := entry.queue) is not None),
            subscriptions=self.entries.notifier.subscriptions,
            **asdict(self.commands.backend.statistics()),
            renewals=self.report.renewals,
            losses=self.report.losses,
            hand_offs=self.report.hand_offs,
        )

    def statistics_of(self, keys: LockKeys) -> LockStatistics:
        """What `AsyncRLock.statistics` says."""
        entry = self.entries.get(keys.entry)
        hold = None if entry is None else entry.hold
        queue = None if entry is None else entry.queue
        return LockStatistics(
            held=0 if entry is None else len(entry.holds),
            parked=0 if queue is None else len(queue),
            subscriptions=int(self.entries.notifier.watches(keys.channel)),
            renewals=0 if hold is None else hold.renewals,
            hand_offs=0 if queue is None else queue.hand_offs,
        )

    # How it ends.

    async def aclose(self) -> None:
        """Close it; goes on by itself when cancelled. The caller is not told of it by a cancellation."""
        self.blocks.let_go()
        if self._closing is None:
            self._closing = self._loop.create_task(self._close(), context=Context())
        with anyio.CancelScope(shield=True):
            await asyncio.wait([self._closing])
        if not self._closing.cancelled():  # By the end of the loop: then it was cut short, and is over all the same.
            self._closing.result()

    async def _close(self) -> None:
        """Close within the release timeout; what could not be told the server by then ends with its lease."""
        ends = self._loop.time() + self.timing.release_timeout
        self.closed = True
        try:
            await asyncio.sleep(0)  # An eager task must not tell of the closing before its caller knows of it.
            await self._end_all()
            async with asyncio.timeout_at(ends):
                await self._settled()
        except (TimeoutError, BackendError):
            self.report.closed_in_doubt(self.commands.backend.statistics().pending)
        finally:
            await self.commands.backend.aclose()
            self.report.closed()

    async def _end_all(self) -> None:
        """Let the holders leave, and end every wait."""
        self.leases.tell_closing(self.timing.release_timeout * _TO_ROLL_BACK)
        try:
            for _ in range(_TURNS_OF_A_LOSS):  # So that a holder who waits for a second lock learns only of this.
                await asyncio.sleep(0)
        finally:
            for entry in self.entries.all():
                entry.fail(lambda: ClientClosedError("closed"))
            await self.leases.close(self.timing.release_timeout * _TO_LEAVE)
            self.card.take_away()

    async def _settled(self) -> None:
        """Wait until every acquire has ended and every command is answered."""
        backend = self.commands.backend
        await backend.drained()
        while self.acquiring or backend.statistics().pending:
            await asyncio.sleep(0)  # Those whose wait just ended give up what they may have been granted.
            await backend.drained()


class Sessions(Unique):
    """The lives of a client: begun by its first use, and anew in a forked child."""

    def __init__(
        self, connect: Callable[[Client], Backend], config: LockConfig, longest_lease: float = LONGEST
    ) -> None:
        self._connect = connect
        self._config = config
        self._longest_lease = longest_lease
        self.session: Session | None = None
        self._inherited: list[Session] = []  # What a fork left here belongs to the parent: kept, never used.

    def here(self) -> Session:
        """The session, begun if it is not; raises `ClientClosedError` in another loop or process than its own."""
        if self.session is None:
            self.session = Session(self._connect, self._config, self._longest_lease)
        self.session.check_place()
        return self.session

    def open(self) -> Session:
        """The session, as `here`; raises `ClientClosedError` also when it is closed."""
        session = self.here()
        if session.closed:
            raise ClientClosedError("closed")
        return session

    @contextmanager
    def through(self, wrap: Callable[[Backend], B]) -> Iterator[B]:
        """Send all commands through what *wrap* makes of the session's backend, for the time of the block."""
        commands = self.open().commands
        backend = commands.backend
        commands.backend = wrapped = wrap(backend)
        try:
            yield wrapped
        finally:
            commands.backend = backend

    def can_leave(self, error: BaseException | None) -> bool:
        """Whether the client can be left here for *error*; as `Session.can_leave`."""
        return self.session is None or self.session.can_leave(error)

    def leave(
        self, frame: FrameType, keys: LockKeys, named: str | None, error: BaseException | None
    ) -> Coroutine[object, object, None]:
        """A block is left by *frame*, for *error*; anywhere, as Python may destroy it at any moment."""
        session = self.session
        scope = None if session is None else session.blocks.at(frame, keys, named)
        if session is not None and scope is not None:
            return session.blocks.leave(scope, error)
        if error is not None or (session is not None and not session.can_leave(error)):
            return nothing_to_give_back()
        raise RuntimeError(f"lock {keys.name!r}: this `async with` was not entered, or was left before")

    def start_after_fork(self) -> None:
        """In a forked child: leave what is the parent's alone, so that the next use begins a session of the child's."""
        if self.session is not None and self.session.forked:
            self._inherited.append(self.session)
            self.session = None
