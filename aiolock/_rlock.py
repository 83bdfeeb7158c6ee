"""AsyncRLock: a reentrant lock, owned by one asyncio task or by a named owner."""

import asyncio
import sys
import warnings
from collections.abc import Coroutine
from time import monotonic
from types import CodeType, TracebackType
from typing import final

from aiolock._blocks import Blocks, current_task
from aiolock._core import Acquisition, Core
from aiolock._errors import LockTimeoutError
from aiolock._lease import Lease
from aiolock._owner import running_task
from aiolock._runtime import Runtime
from aiolock._scope import Place, Scope, place_of
from aiolock._scripts import LOCK
from aiolock._types import Duration, Holder, LockKeys, LockStatistics, lease_seconds, seconds


@final
class AsyncRLock:
    """
    A reentrant distributed lock; made by `LockClient.lock`.

    A handle without state of its own: cheap, may be shared by tasks, and equal in effect to any other of the same
    name. The owner is the running task, unless the lock was made for a named owner. The owner may acquire again, and
    the lock is free after as many releases. Follows Redisson's ``RLock``, with which it shares its layout in Redis.
    """

    __slots__ = ("__weakref__", "_keys", "_named", "_runtime")

    def __init__(self, runtime: Runtime, keys: LockKeys, named: str | None) -> None:
        self._runtime = runtime
        self._keys = keys
        self._named = named

    @property
    def name(self) -> str:
        """The name that the lock was made with."""
        return self._keys.name

    async def acquire(self, *, lease: Duration | None = None) -> Lease:
        """
        Wait as long as it takes until the owner holds the lock.

        Waits in a FIFO with the other tasks of this client; an unlock message wakes the first. *lease* is in seconds:
        exactly that long, never renewed; ``None`` means the configured lease, renewed by the watchdog until release.
        A nested acquire never shortens the lease. Cancelling leaves nothing behind: a grant that was on its way is
        given back.

        Raises:
            LeaseLostError: the owner held the lock already, and it is lost.
            NotALockError: the key is something else.
            BackendError: Redis failed for longer than `LockConfig.command_timeout`.
            ReplicationError: fewer replicas than `LockConfig.replicas` have it; the grant was undone.
            ClientClosedError: the client is closed, or belongs to another loop or process.
            RuntimeError: it is the whole of a task, which would own the lock and be gone.
        """
        granted = await self._acquire(self._runtime.open_core(), running_task(), None, lease)
        assert granted is not None  # A wait without end ends with a grant.
        return granted

    async def try_lock(self, wait: Duration | None = 0, lease: Duration | None = None) -> Lease | None:
        """
        Take the lock if that is possible within *wait* seconds, else return ``None``.

        ``wait=0`` asks Redis once; ``wait=None`` waits for ever. *lease*, cancelling and errors as in `acquire`.
        When Redis does not answer, the error may come up to `LockConfig.command_timeout` after the wait has ended.
        """
        return await self._acquire(self._runtime.open_core(), running_task(), wait, lease)

    async def release(self) -> None:
        """
        Give one hold of the current owner back, the last that it acquired.

        Waits for the server's answer, up to `LockConfig.release_timeout`. Cancelling stops the waiting only: the
        release is sent all the same.

        Raises:
            NotHeldError: the owner holds nothing; says who does.
            LeaseLostError: it did, and the lock is lost.
            BackendError: no answer in time; the release is tried on for as long as there can be something to free.
        """
        core = self._runtime.core()
        await core.keeper.release(self._keys, self._owner(core, running_task()))

    def hold(self, wait: Duration | None = None, lease: Duration | None = None) -> "HeldLock":
        """
        The lock for an ``async with`` block, bounded: ``async with lock.hold(wait=2, lease=10) as lease:``.

        *wait* and *lease* are in seconds, as in `try_lock`, but a wait that ends raises `LockTimeoutError`. When the
        lock is lost the block is cancelled, once, and `LeaseLostError` raised.
        """
        return HeldLock(self, wait, lease)

    def __aenter__(self) -> Coroutine[object, object, Lease]:
        return self._enter(None, None, place_of(sys._getframe(1)))

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Coroutine[object, object, None]:
        # The lock is shared, so that only the caller's frame tells which of its blocks this is.
        return self._runtime.leave(sys._getframe(1), self._keys, self._named, error)

    async def locked(self) -> bool:
        """
        Whether anyone holds the lock, by Redis.

        Waits for the server's answer, up to `LockConfig.command_timeout`, and changes nothing; cancelling is harmless.
        `held`, `hold_count`, `remaining` and `holder` do the same.

        Raises:
            NotALockError: the key is something else.
            BackendError: Redis failed.
            ClientClosedError: the client is closed, or belongs to another loop or process.
        """
        return (await self._runtime.open_core().inspector.look(self._keys)).locked

    async def held(self) -> bool:
        """Whether the current owner holds the lock, by Redis; waits and raises as `locked`."""
        return await self.hold_count() > 0

    async def hold_count(self) -> int:
        """How many holds the current owner has, by Redis; waits and raises as `locked`."""
        core = self._runtime.open_core()
        return (await core.inspector.look(self._keys, self._owner(core, running_task()))).holds

    async def remaining(self) -> float | None:
        """Seconds until the lease of whoever holds the lock ends, by Redis; ``None`` if free. Waits as `locked`."""
        sight = await self._runtime.open_core().inspector.look(self._keys)
        return sight.left if sight.locked else None

    async def holder(self) -> Holder | None:
        """Who holds the lock, by Redis; ``None`` if nobody does. Waits and raises as `locked`."""
        return await self._runtime.open_core().inspector.holder(self._keys)

    async def force_release(self) -> bool:
        """
        Free the lock whoever holds it, and wake a waiter; whether anyone held it.

        For operators: the holder learns of it with its next renewal or release, and not before, unless it is of this
        client. Cancelling leaves it done or not done. Raises `NotALockError` and `BackendError`.
        """
        return await self._runtime.open_core().force_release(self._keys)

    def statistics(self) -> LockStatistics:
        """What this client does with the name right now; no I/O."""
        return self._runtime.statistics_of(self._keys)

    def __repr__(self) -> str:
        owner = "" if self._named is None else f" owner={self._named!r}"
        return f"<AsyncRLock {self._keys.name!r}{owner}>"

    def _owner(self, core: Core, task: asyncio.Task[object]) -> str:
        return core.owners.of(task) if self._named is None else core.owners.named(self._named)

    def _acquire(
        self, core: Core, task: asyncio.Task[object], wait: Duration | None, lease: Duration | None
    ) -> Coroutine[object, object, Lease | None]:
        most = None if wait is None else seconds(wait, "wait", zero=True)
        length = None if lease is None else lease_seconds(lease)
        if self._named is None:
            _refuse_whole(task)
        owner = self._owner(core, task)
        if (scope := core.blocks.innermost(task, self._keys, owner)) is not None:
            core.keeper.refuse_if_over(scope.hold)
        return core.acquire(Acquisition(core, self._keys, LOCK, owner, task, lease=length), most)

    async def _enter(self, wait: Duration | None, lease: Duration | None, place: Place) -> Lease:
        return (await self._block(wait, lease, place))[1].lease

    async def _block(self, wait: Duration | None, lease: Duration | None, place: Place | None) -> tuple[Blocks, Scope]:
        """Enter a block, and where it is to be left."""
        started = monotonic()
        core, task = self._runtime.open_core(), running_task()
        granted = await self._acquire(core, task, wait, lease)
        if granted is None:
            raise LockTimeoutError(self._keys.name, monotonic() - started, core.keeper.held_by(self._keys))
        return core.blocks, core.blocks.enter(granted, place)


@final
class HeldLock:
    """What `AsyncRLock.hold` returns, for one ``async with`` at a time."""

    __slots__ = ("_blocks", "_lease", "_lock", "_unused", "_wait")

    def __init__(self, lock: AsyncRLock, wait: Duration | None, lease: Duration | None) -> None:
        self._unused = False
        self._lock = lock
        self._wait = None if wait is None else seconds(wait, "wait", zero=True)
        self._lease = None if lease is None else lease_seconds(lease)
        self._unused = True
        self._blocks: list[tuple[Place, Blocks, Scope]] = []  # Those that were entered, the last one last.

    def __del__(self) -> None:
        if self._unused:
            text = f"lock {self._lock.name!r}: hold() was never entered; write `async with lock.hold(...)`"
            warnings.warn(text, RuntimeWarning, stacklevel=2, source=self)

    def __aenter__(self) -> Coroutine[object, object, Lease]:
        self._unused = False
        return self._enter(place_of(sys._getframe(1)))

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Coroutine[object, object, None]:
        if not self._blocks:
            raise RuntimeError(f"lock {self._lock.name!r}: this `async with` was not entered, or was left before")
        place, task = place_of(sys._getframe(1)), current_task()
        here = [each for each in self._blocks if each[0] == place]
        mine = [each for each in self._blocks if each[2].task is task]
        block = (here or mine or self._blocks)[-1]
        self._blocks.remove(block)
        _, blocks, scope = block
        return blocks.leave(scope, error)

    async def _enter(self, place: Place) -> Lease:
        blocks, scope = await self._lock._block(self._wait, self._lease, None)
        self._blocks.append((place, blocks, scope))
        return scope.lease


def _refuse_whole(task: asyncio.Task[object]) -> None:
    """Refuse an acquire that *task* consists of: it would be the owner, and end as it is granted."""
    if getattr(task.get_coro(), "cr_code", None) in _ACQUIRES:
        raise RuntimeError(
            "this acquire is the whole of a task (create_task, gather, or wait_for on Python 3.11), which would own "
            "the lock and end at once. Await it inside of the task that does the work; for a time limit use "
            "try_lock(wait=...), hold(wait=...) or asyncio.timeout(); to acquire here and release elsewhere, a named "
            "owner: locks.lock(name, owner=...)"
        )


_ACQUIRES: frozenset[CodeType] = frozenset(
    coroutine.__code__ for coroutine in (AsyncRLock.acquire, AsyncRLock.try_lock, AsyncRLock._enter, HeldLock._enter)
)
