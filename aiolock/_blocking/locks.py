"""The locks of threads, reentrant: the owner is the thread, or a named one."""

from typing import Any, Final, Generic, TypeVar, cast, final

from aiolock._blocking.blocks import Entered
from aiolock._blocking.lease import Lease, MultiLease, lease_of
from aiolock._blocking.runner import Runner
from aiolock._blocking.verbs import Handle, grant, part, perhaps, plain, verb
from aiolock._primitives import base
from aiolock._primitives.base import Single
from aiolock._primitives.fair_lock import AsyncFairLock
from aiolock._primitives.held_block import HeldBlock
from aiolock._primitives.multi.lock import AsyncMultiLock
from aiolock._primitives.read_write import AsyncReadLock, AsyncReadWriteLock, AsyncWriteLock
from aiolock._primitives.rlock import AsyncRLock
from aiolock._words import tell_its_maker

S = TypeVar("S", bound=Single)
K = TypeVar("K", bound=base.Lock)
R = TypeVar("R", bound=AsyncRLock)
L = TypeVar("L", bound=Lease | MultiLease)


class Held(Entered[HeldBlock[Any], L]):
    """The result of `hold`: a block with its own wait and lease."""

    __slots__ = ()

    def __enter__(self) -> L:
        # Also if the enter is refused.
        self._async._unused = False
        return super().__enter__()

    async def _begin(self) -> tuple[L, L]:
        granted = lease_of(self._runner, face_of=await self._async._acquire())
        lease = cast("L", granted._in_block(self._async._terms.release))
        return lease, lease


@final
class HeldLock(Held[Lease]):
    """The result of `RLock.hold`, for one ``with`` at a time."""

    __slots__ = ()


@final
class HeldMultiLock(Held[MultiLease]):
    """The result of `MultiLock.hold`, for one ``with`` at a time."""

    __slots__ = ()


class One(Entered[S, Lease], Generic[S]):
    """A primitive with one name that is held for a lease."""

    __slots__ = ()

    statistics: Final = plain(Single.statistics)

    @property
    def name(self) -> str:
        """The name that was given to the factory."""
        return self._async.name

    async def _begin(self) -> tuple[Lease, Lease]:
        lease = Lease(self._runner, face_of=await self._async._acquire_or_raise(None, None))
        return lease._in_block(), lease


class Lock(One[K]):
    """The verbs that all locks have."""

    __slots__ = ()

    acquire: Final = grant(base.Lock.acquire, Lease)
    release: Final = verb(base.Lock.release)
    locked: Final = verb(base.Lock.locked)
    held: Final = verb(base.Lock.held)
    hold_count: Final = verb(base.Lock.hold_count)
    remaining: Final = verb(base.Lock.remaining)


class _Exclusive(Lock[R]):
    __slots__ = ()

    try_lock: Final = perhaps(AsyncRLock.try_lock, Lease)
    try_acquire: Final = try_lock
    hold: Final = part(AsyncRLock.hold, HeldLock)
    force_release: Final = verb(AsyncRLock.force_release)
    holder: Final = verb(AsyncRLock.holder)


@final
class RLock(_Exclusive[AsyncRLock]):
    """A reentrant lock, owned by the thread that acquires it; made by `LockClient.lock`. See `AsyncRLock`."""

    __slots__ = ()


@final
class FairLock(_Exclusive[AsyncFairLock]):
    """A reentrant lock that is granted in the order of the requests; made by `LockClient.fair_lock`."""

    __slots__ = ()


class _Half(Lock[K]):
    __slots__ = ()

    try_lock: Final = perhaps(base.Lock.try_lock, Lease)
    try_acquire: Final = try_lock
    hold: Final = part(base.Lock.hold, HeldLock)
    force_release: Final = verb(base.Lock.force_release)


@final
class ReadLock(_Half[AsyncReadLock]):
    """The half of a `ReadWriteLock` that many owners may hold at a time: `ReadWriteLock.read`."""

    __slots__ = ()

    holders: Final = verb(AsyncReadLock.holders)


@final
class WriteLock(_Half[AsyncWriteLock]):
    """The half of a `ReadWriteLock` that one owner may hold at a time: `ReadWriteLock.write`."""

    __slots__ = ()

    holder: Final = verb(AsyncWriteLock.holder)


@final
class ReadWriteLock(Handle[AsyncReadWriteLock]):
    """A reentrant lock for many readers or one writer; made by `LockClient.read_write_lock`."""

    __slots__ = ("_read", "_write")

    def __init__(self, runner: Runner, *, face_of: AsyncReadWriteLock) -> None:
        super().__init__(runner, face_of=face_of)
        self._read = ReadLock(runner, face_of=face_of.read)
        self._write = WriteLock(runner, face_of=face_of.write)

    locked: Final = verb(AsyncReadWriteLock.locked)
    holders: Final = verb(AsyncReadWriteLock.holders)
    force_release: Final = verb(AsyncReadWriteLock.force_release)
    statistics: Final = plain(AsyncReadWriteLock.statistics)

    @property
    def name(self) -> str:
        """The name that was given to the factory."""
        return self._async.name

    @property
    def read(self) -> ReadLock:
        """The lock that many owners may hold at a time, while no other owner writes."""
        return self._read

    @property
    def write(self) -> WriteLock:
        """The lock that one owner may hold at a time, while no other owner reads."""
        return self._write


tell_its_maker(ReadWriteLock, "ReadWriteLock")


@final
class MultiLock(Entered[AsyncMultiLock, MultiLease]):
    """Several locks as one, all of them or none; made by `LockClient.multi`."""

    __slots__ = ()

    acquire: Final = grant(AsyncMultiLock.acquire, MultiLease)
    try_lock: Final = perhaps(AsyncMultiLock.try_lock, MultiLease)
    try_acquire: Final = try_lock
    release: Final = verb(AsyncMultiLock.release)
    hold: Final = part(AsyncMultiLock.hold, HeldMultiLock)
    locked: Final = verb(AsyncMultiLock.locked)
    held: Final = verb(AsyncMultiLock.held)
    hold_count: Final = verb(AsyncMultiLock.hold_count)
    remaining: Final = verb(AsyncMultiLock.remaining)
    holders: Final = verb(AsyncMultiLock.holders)
    force_release: Final = verb(AsyncMultiLock.force_release)
    statistics: Final = plain(AsyncMultiLock.statistics)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the locks, in the order in which an acquire waits for them."""
        return self._async.names

    @property
    def name(self) -> str:
        """The names of the locks, as a text for people."""
        return self._async.name

    async def _begin(self) -> tuple[MultiLease, MultiLease]:
        lease = MultiLease(self._runner, face_of=await self._async._acquire_or_raise(None, None))
        return lease._in_block(), lease
