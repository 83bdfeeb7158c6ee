"""What everything can do that can be acquired: be held for a block, in whatever frame that is left."""

import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterable
from dataclasses import astuple
from time import monotonic
from types import CodeType, FrameType, TracebackType
from typing import Generic, TypeVar, final

from aiolock._core.acquire import Acquisition
from aiolock._core.hold import Grant
from aiolock._core.lease import Lease
from aiolock._core.owners import running_task
from aiolock._core.scope import Place, place_of
from aiolock._core.session import Sessions
from aiolock._errors import LockTimeoutError, NotHeldError
from aiolock._keys import LockKeys
from aiolock._primitives.entered import Entered
from aiolock._primitives.multi_lease import MultiLease
from aiolock._process import Unique
from aiolock._scripts import Want
from aiolock._types import Duration, LockStatistics, lease_seconds, seconds

G = TypeVar("G", bound=Lease | MultiLease)  # What its user has of it.

# A task that consists of such a coroutine would be the owner, and end as it is granted.
ACQUIRES: set[CodeType] = set()
_VERBS = ("acquire", "try_lock", "try_acquire")


class Named:
    """What a client knows by one name: a handle without state of its own."""

    __slots__ = ("__weakref__", "_keys", "_sessions")

    def __init__(self, sessions: Sessions, keys: LockKeys) -> None:
        self._sessions = sessions
        self._keys = keys

    @property
    def name(self) -> str:
        """The name that it was made with."""
        return self._keys.name

    def statistics(self) -> LockStatistics:
        """What this client does with it right now; no I/O."""
        session = self._sessions.session
        return LockStatistics() if session is None else session.statistics_of(self._keys)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


class Lockable(ABC, Generic[G]):
    """Whatever can be acquired, by the running task or by an owner that is named."""

    __slots__ = ()

    @property
    @abstractmethod
    def name(self) -> str:
        """The name that the lock was made with."""

    def __init_subclass__(cls) -> None:
        ACQUIRES.update(verb.__code__ for name in _VERBS if (verb := vars(cls).get(name)))

    def __aenter__(self) -> Coroutine[object, object, G]:
        return self._enter(place_of(sys._getframe(1)))

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Coroutine[object, object, None]:
        # The lock is shared, so that only the caller's frame tells which of its blocks this is.
        return self._leave(sys._getframe(1), error)

    async def _enter(self, place: Place) -> G:
        granted = await self._acquire(None, None)
        assert granted is not None  # A wait without end ends with a grant.
        granted._open_block(place)
        return granted

    @abstractmethod
    def _acquire(self, wait: Duration | None, lease: Duration | None) -> Coroutine[object, object, G | None]:
        """Acquire it within *wait* seconds; ``None`` for ever, or for the watchdog's *lease*."""

    @abstractmethod
    async def _acquire_or_raise(self, wait: Duration | None, lease: Duration | None) -> G:
        """The same, but a wait that ends raises `LockTimeoutError`."""

    @abstractmethod
    def _leave(self, frame: FrameType, error: BaseException | None) -> Coroutine[object, object, None]:
        """The block that *frame* is in is left by *error*."""


class Single(Named, Lockable[Lease]):
    """
    What is known by one name, and is acquired as *want* says.

    The owner is the running task, unless it was made for an owner that is *named*.
    """

    __slots__ = ("_named", "_want")

    def __init__(self, sessions: Sessions, want: Want, named: str | None) -> None:
        super().__init__(sessions, want.keys)
        self._want = want
        self._named = named

    def __repr__(self) -> str:
        owner = "" if self._named is None else f" owner={self._named!r}"
        return f"<{type(self).__name__} {self._keys.name!r}{owner}>"

    def _acquire(self, wait: Duration | None, lease: Duration | None) -> Coroutine[object, object, Lease | None]:
        most = None if wait is None else seconds(wait, "wait", zero=True)
        return self._acquisition(None if lease is None else lease_seconds(lease)).run(most)

    def _acquisition(self, lease: float | None) -> Acquisition:
        """An acquire by the owner, who may be refused at once."""
        session = self._sessions.open()
        if lease is not None or self._want.at_least:
            session.timing.check_lease(max(lease or 0.0, self._want.at_least))
        owner, task = session.owners.acting(self._named)
        if self._named is None and getattr(task.get_coro(), "cr_code", None) in ACQUIRES:
            raise RuntimeError(_WHOLE)
        entry = session.entries.get(self._keys.entry)
        if entry is not None and entry.scopes and self._want.scripts.reentrant:
            session.blocks.refuse_in_lost(task, self._keys, owner)
        return Acquisition(session, self._want, owner, task, lease)

    def _is_same(self, other: "Single") -> bool:
        """Whether *other* is a handle of the same lock, for the same owner."""
        return (self._sessions, self._want, self._named) == (other._sessions, other._want, other._named)

    def _last_lease(self) -> Grant | None:
        """What the owner gives back next."""
        session = self._sessions.here()
        owner, _ = session.owners.acting(self._named)
        return session.leases.last_lease(self._keys, owner)

    async def _acquire_or_raise(self, wait: Duration | None, lease: Duration | None) -> Lease:
        started = monotonic()
        granted = await self._acquire(wait, lease)
        if granted is None:
            raise self._timeout(monotonic() - started)
        return granted

    def _timeout(self, waited: float) -> LockTimeoutError:
        """A wait of so many seconds has ended without the lock."""
        return LockTimeoutError(self._keys.name, waited, self._sessions.here().leases.held_by(self._keys.entry))

    def _leave(self, frame: FrameType, error: BaseException | None) -> Coroutine[object, object, None]:
        return self._sessions.leave(frame, self._keys, self._named, error)


def added_up(parts: Iterable[Single]) -> LockStatistics:
    """What this client does with all of them."""
    each = [astuple(part.statistics()) for part in parts]
    return LockStatistics(*map(sum, zip(*each, strict=True)))


class BaseLock(Single):
    """A lock, of whatever kind *want* makes it."""

    __slots__ = ()

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
        granted = await self._acquire(None, lease)
        assert granted is not None  # A wait without end ends with a grant.
        return granted

    async def try_lock(self, wait: Duration | None = 0, lease: Duration | None = None) -> Lease | None:
        """
        Take the lock if that is possible within *wait* seconds, else return ``None``.

        ``wait=0`` asks Redis once; ``wait=None`` waits for ever. *lease*, cancelling and errors as in `acquire`.
        When Redis does not answer, the error may come up to `LockConfig.command_timeout` after the wait has ended.
        """
        return await self._acquire(wait, lease)

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
        lease = self._last_lease()
        if lease is None:
            raise await self._not_held()
        await self._sessions.here().leases.give_back(lease)

    def hold(self, wait: Duration | None = None, lease: Duration | None = None) -> "HeldLock":
        """
        The lock for an ``async with`` block, bounded: ``async with lock.hold(wait=2, lease=10) as lease:``.

        *wait* and *lease* are in seconds, as in `try_lock`, but a wait that ends raises `LockTimeoutError`. When the
        lock is lost the block is cancelled, once, and `LeaseLostError` raised.
        """
        return HeldLock(self, wait, lease)

    @abstractmethod
    def _not_held(self) -> Coroutine[object, object, NotHeldError]:
        """The error for the owner, who has nothing to give back."""


class Held(Unique, Entered[G]):
    """What `hold` returns, for one ``async with`` at a time."""

    __slots__ = ("_lease", "_lock", "_unused", "_wait")

    def __init__(self, lock: Lockable[G], wait: Duration | None, lease: Duration | None) -> None:
        super().__init__()
        self._unused = False
        self._lock = lock
        self._wait = None if wait is None else seconds(wait, "wait", zero=True)
        self._lease = None if lease is None else lease_seconds(lease)
        self._unused = True

    def __del__(self) -> None:
        if self._unused:
            text = f"lock {self._lock.name!r}: hold() was never entered; write `async with lock.hold(...)`"
            warnings.warn(text, RuntimeWarning, stacklevel=2, source=self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._lock.name!r}>"

    @property
    def _acts_as_one(self) -> bool:
        return isinstance(self._lock, Single) and self._lock._named is not None

    async def _begin(self) -> tuple[G, G]:
        self._unused = False
        granted = await self._lock._acquire_or_raise(self._wait, self._lease)
        granted._open_block(None)
        return granted, granted


@final
class HeldLock(Held[Lease]):
    """What `AsyncRLock.hold` returns, for one ``async with`` at a time."""

    __slots__ = ()


async def taken_by_nobody(sessions: Sessions, want: Want, wait: Duration | None, what: str = "wait") -> bool:
    """Acquire, within *wait* seconds, what has no owner; whether that was granted."""
    most = None if wait is None else seconds(wait, what, zero=True)
    session = sessions.open()
    acquisition = Acquisition(session, want, session.client, running_task(), None, kept=False)
    return await acquisition.run(most) is not None


ACQUIRES.update(enter.__code__ for enter in (Lockable._enter, Entered._enter))
_WHOLE = (
    "this acquire is the whole of a task (create_task, gather, or wait_for on Python 3.11), which would own "
    "the lock and end at once. Await it inside of the task that does the work; for a time limit use "
    "try_lock(wait=...), hold(wait=...) or asyncio.timeout(); to acquire here and release elsewhere, a named "
    "owner: locks.lock(name, owner=...)"
)
