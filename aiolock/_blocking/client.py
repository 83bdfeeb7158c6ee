"""The client of threads and of synchronous code."""

import functools
from asyncio import Task
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Final, Literal, ParamSpec, Self, TypeVar, final, overload

from redis.asyncio import Redis, RedisCluster

from aiolock._blocking.functions import called, check_plain
from aiolock._blocking.latch import CountDownLatch
from aiolock._blocking.leader import Leader
from aiolock._blocking.lease import Lease, MultiLease, lease_of
from aiolock._blocking.locks import (
    FairLock,
    MultiLock,
    ReadLock,
    ReadWriteLock,
    RLock,
    WriteLock,
)
from aiolock._blocking.once import Once
from aiolock._blocking.runner import Runner
from aiolock._blocking.section import Section
from aiolock._blocking.semaphores import CountingSemaphore, Semaphore
from aiolock._blocking.verbs import Handle, grant, part, plain, verb
from aiolock._client import LockClient as AsyncLockClient
from aiolock._config import LockConfig
from aiolock._core.lease import Lease as AsyncLease
from aiolock._core.ticket import TicketKind
from aiolock._primitives.multi.lease import MultiLease as AsyncMultiLease
from aiolock._primitives.section import Conduct
from aiolock._primitives.synchronized import check_maker, guard_of
from aiolock._types import BlockRelease, Duration, LockKind, OnBusy, OnUnavailable

P = ParamSpec("P")
R = TypeVar("R")

_OF_MUST = "of must return a lock, one half of a read-write lock, or a semaphore, of this client"

Member = RLock | FairLock | ReadLock | WriteLock | Semaphore


@final
class LockClient(Handle[AsyncLockClient]):
    """
    Makes locks for threads and synchronous code, on the same keys as `aiolock.LockClient`.

    It uses an `aiolock.LockClient`, whose event loop runs in a thread of its own from the first use on. The owner of a
    lock is the thread that acquires it; locks that a thread holds when it ends are released, with a warning. A forked
    child needs a client of its own, unless this client was never used. Locks that are held at the exit of the program
    are released, within `LockConfig.release_timeout`.

    Raises:
        TypeError: *redis* is not a client of `redis.asyncio`, or *config* is not a `LockConfig`.
    """

    __slots__ = ()

    def __init__(self, redis: "Redis | RedisCluster", *, config: LockConfig | None = None) -> None:
        self._put_together(AsyncLockClient(redis, config=config))

    def _put_together(self, client: AsyncLockClient) -> None:
        super().__init__(Runner(client.aclose, functools.partial(_let_go, client)), face_of=client)

    @classmethod
    def from_url(cls, url: str, *, config: LockConfig | None = None, **settings: Any) -> Self:
        """A client for the server at *url*; see `aiolock.LockClient.from_url`."""
        return cls._of(AsyncLockClient.from_url(url, config=config, **settings))

    @classmethod
    def redlock(
        cls,
        redises: "Iterable[Redis]",
        *,
        config: LockConfig | None = None,
        longest_lease: Duration | None = None,
    ) -> Self:
        """A client of several independent servers; see `aiolock.LockClient.redlock`."""
        return cls._of(AsyncLockClient.redlock(redises, config=config, longest_lease=longest_lease))

    @classmethod
    def _of(cls, client: AsyncLockClient) -> Self:
        made = cls.__new__(cls)
        made._put_together(client)
        return made

    lock: Final = part(AsyncLockClient.lock, RLock)
    fair_lock: Final = part(AsyncLockClient.fair_lock, FairLock)
    read_write_lock: Final = part(AsyncLockClient.read_write_lock, ReadWriteLock)
    semaphore: Final = part(AsyncLockClient.semaphore, Semaphore)
    counting_semaphore: Final = part(AsyncLockClient.counting_semaphore, CountingSemaphore)
    count_down_latch: Final = part(AsyncLockClient.count_down_latch, CountDownLatch)
    once: Final = part(AsyncLockClient.once, Once)
    leader: Final = part(AsyncLockClient.leader, Leader)
    slot: Final = verb(AsyncLockClient.slot)
    ping: Final = verb(AsyncLockClient.ping)
    statistics: Final = plain(AsyncLockClient.statistics)
    activity: Final = plain(AsyncLockClient.activity)

    def multi(self, *locks: str | Member, owner: str | None = None) -> MultiLock:
        """
        Several locks that are acquired as one, all of them or none; see `aiolock.LockClient.multi`.

        Raises:
            TypeError: one of the locks is neither a name nor a lock of a blocking client.
            ValueError: one of the locks is of another client, which has its own event loop.
        """
        must = "a multi lock of a blocking client has names, and locks of that client"
        members = (each if isinstance(each, str) else self._own(each, must) for each in locks)
        return MultiLock(self._runner, face_of=self._async.multi(*members, owner=owner))

    @overload
    def adopt(
        self,
        ticket: str,
        *,
        name: Sequence[str] | None = None,
        kind: Literal["multi_lock"],
        lease: Duration | None = None,
        owner: str | None = None,
    ) -> MultiLease: ...

    @overload
    def adopt(
        self,
        ticket: str,
        *,
        name: str | None = None,
        kind: LockKind | None = None,
        lease: Duration | None = None,
        owner: str | None = None,
    ) -> Lease: ...

    def adopt(
        self,
        ticket: str,
        *,
        name: str | Sequence[str] | None = None,
        kind: TicketKind | None = None,
        lease: Duration | None = None,
        owner: str | None = None,
    ) -> Lease | MultiLease:
        """
        Adopt a lock that another process or thread has detached, and wait for the answer; see `LockClient.adopt`.

        A ``with`` gives the lease back at its end: ``with locks.adopt(ticket) as lease:``.
        """
        return _adopt(self, ticket, name=name, kind=kind, lease=lease, owner=owner)

    @overload
    def synchronized(
        self,
        name: str,
        *more: str,
        of: "Maker | None" = None,
        wait: Duration | None = None,
        lease: Duration | None = None,
        at_least: Duration | None = None,
        release: BlockRelease | None = None,
        busy: Literal["raise"] = "raise",
        on_unavailable: OnUnavailable = "refuse",
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...

    @overload
    def synchronized(
        self,
        name: str,
        *more: str,
        of: "Maker | None" = None,
        wait: Duration | None = None,
        lease: Duration | None = None,
        at_least: Duration | None = None,
        release: BlockRelease | None = None,
        busy: Literal["skip"],
        on_unavailable: OnUnavailable = "refuse",
    ) -> Callable[[Callable[P, R]], Callable[P, R | None]]: ...

    def synchronized(
        self,
        name: str,
        *more: str,
        of: "Maker | None" = None,
        wait: Duration | None = None,
        lease: Duration | None = None,
        at_least: Duration | None = None,
        release: BlockRelease | None = None,
        busy: OnBusy = "raise",
        on_unavailable: OnUnavailable = "refuse",
    ) -> Callable[[Callable[P, R]], Callable[P, R | None]]:
        """
        Decorate a function to run under the lock *name*, a template: ``"order:{order_id}"``.

        It is like `aiolock.LockClient.synchronized`, but for plain functions; *of* makes a blocking lock.

        Raises:
            TypeError, ValueError: as in `aiolock.LockClient.synchronized`; or the function is a coroutine function or a
                generator function; or *of* returned a lock of another client.
        """
        check_maker(of)
        make = None if of is None else lambda _, name: self._own(of(self, name), _OF_MUST)
        conduct = Conduct.of(wait, lease, release, on_unavailable, busy)
        names = (name, *more)
        guard = guard_of(names, self._async._making(names, make, conduct, at_least), conduct)

        def decorate(function: Callable[P, R]) -> Callable[P, R | None]:
            check_plain(function, "what is synchronized")
            section_for = guard(function)

            @functools.wraps(function)
            def under_lock(*args: P.args, **kwargs: P.kwargs) -> R | None:
                with Section(self._runner, face_of=section_for(*args, **kwargs)) as runs:
                    return called(function, *args, **kwargs) if runs else None

            return under_lock

        return decorate

    def close(self) -> None:
        """
        Close the client: waiters get `ClientClosedError`, holders `LeaseLostError`, and their locks are released.

        Threads in a block have 60 % of `LockConfig.release_timeout` to leave it. Closing takes
        `LockConfig.release_timeout` at most, even if the server is gone. Safe to call twice.
        """
        self._runner.close()

    def __enter__(self) -> Self:
        self._runner.check()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A forked child that leaves the block of its parent has nothing to close.
        if not self._runner.forked:
            self.close()


Maker = Callable[[LockClient, str], Member | MultiLock | CountingSemaphore]


async def _adopted(client: AsyncLockClient, ticket: str, **how: Any) -> AsyncLease | AsyncMultiLease:
    adopted: AsyncLease | AsyncMultiLease = await client.adopt(ticket, **how)
    return adopted


_adopt: Callable[..., Lease | MultiLease] = grant(_adopted, lease_of)


def _let_go(client: AsyncLockClient, task: "Task[object]") -> None:
    """Do not wait for blocks of *task* when the *client* is closed."""
    session = client._sessions.session
    for hold in () if session is None else session.entries.holds():
        for lease in hold.leases:
            if lease._record.task() is task:
                lease._scoped = False
