"""LockClient: where everything is put together."""

from collections.abc import Callable, Coroutine
from functools import partial
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, final

from redis.asyncio import Redis, RedisCluster

from aiolock._config import LockConfig
from aiolock._core.session import Sessions
from aiolock._keys import WRITER, LockKeys, stays_together
from aiolock._primitives.fair_lock import AsyncFairLock
from aiolock._primitives.handle import Handle, kept
from aiolock._primitives.latch import AsyncCountDownLatch
from aiolock._primitives.leader import AsyncLeader
from aiolock._primitives.member import Member
from aiolock._primitives.multi import AsyncMultiLock
from aiolock._primitives.once import AsyncOnce, Failures, Slot, slot_of
from aiolock._primitives.permits import AsyncPermitExpirableSemaphore
from aiolock._primitives.read_write import AsyncReadWriteLock
from aiolock._primitives.rlock import AsyncRLock, at_least_seconds
from aiolock._primitives.semaphore import AsyncSemaphore
from aiolock._primitives.synchronized import check_maker, synchronize
from aiolock._redis.backend import backend_of
from aiolock._scripts import read_all
from aiolock._types import ClientStatistics, Duration, number_of_permits, text

_SEVERAL = (list, tuple, set, frozenset)

P = ParamSpec("P")
R = TypeVar("R")


@final
class LockClient:
    """
    Makes locks on a Redis or Valkey server, or on a cluster of them.

    Borrows a `redis.asyncio.Redis` (also one that `Sentinel.master_for` made) or a `RedisCluster`: takes over its
    address and settings for a few connections of its own, uses none of its pool, and never closes it. Starts with the
    first use, or with ``async with``, and belongs to the event loop and the process in which it starts; after a fork,
    ``async with`` starts it anew in the child, under a new identity.

    Raises:
        TypeError: *redis* is none of those; the message says what to give. Or *config* is not a `LockConfig`.
    """

    def __init__(self, redis: "Redis | RedisCluster", *, config: LockConfig | None = None) -> None:
        if config is not None and not isinstance(config, LockConfig):
            raise TypeError(f"config must be a LockConfig, not {config!r}")
        self._redis = redis
        self._config = config or LockConfig()
        read_all()
        self._sessions = Sessions(backend_of(redis, self._config), self._config)
        self._owns_redis = False
        self._in_cluster = isinstance(redis, RedisCluster)

    @classmethod
    def from_url(cls, url: str, *, config: LockConfig | None = None, **settings: Any) -> Self:
        """
        A client for the server at *url* (``redis://``, ``rediss://`` or ``unix://``), with a `Redis` of its own.

        *settings* are those of `redis.asyncio.Redis.from_url`; no I/O happens here.

        Raises:
            TypeError, ValueError: the URL or a setting is none that redis-py knows.
        """
        client = cls(Redis.from_url(url, **settings), config=config)
        client._owns_redis = True
        return client

    def lock(self, name: str, *, owner: str | None = None) -> AsyncRLock:
        """
        The reentrant lock *name*, owned by the task that acquires it, or by the named *owner* of this client.

        A named owner is for work that acquires in one task and releases in another: whoever uses its name in this
        client acts as it. When several tasks do at once, `AsyncRLock.release` prefers what the calling task acquired.
        No I/O. The Redis key is `LockConfig.prefix` and *name*, nothing else.

        Raises:
            TypeError, ValueError: *name* or *owner* is not a non-empty `str`, or the key would be one that aiolock
                needs for itself (``aiolock_token:...``, ``aiolock_client:...``, ``aiolock_once:...``). Or, in a
                cluster, *name* has braces that would put its keys into several slots.
        """
        keys = LockKeys.of(self._checked(name), self._config.prefix)
        return AsyncRLock(self._sessions, keys, None if owner is None else text(owner, "owner"))

    def fair_lock(self, name: str, *, owner: str | None = None) -> AsyncFairLock:
        """
        The reentrant lock *name*, granted in the order in which it was asked for, by whatever client and task.

        It costs more than `lock`, of which it is the same lock otherwise: two of one name exclude each other, but those
        who wait for the plain one are not told while somebody waits for the fair one. No I/O.

        Raises:
            TypeError, ValueError: *name* or *owner* is refused as `lock` does.
        """
        keys = LockKeys.of_fair(self._checked(name), self._config.prefix)
        return AsyncFairLock(self._sessions, keys, None if owner is None else text(owner, "owner"))

    def read_write_lock(self, name: str, *, owner: str | None = None) -> AsyncReadWriteLock:
        """
        The lock *name* that many may have to read, or one to write, for the task that does, or for the named *owner*.

        No I/O. The Redis key is `LockConfig.prefix` and *name*; another lock must not have the same.

        Raises:
            TypeError, ValueError: *name* or *owner* is refused as `lock` does; or *owner* ends with ``:write``, which
                is how a writer is told from a reader in Redis.
        """
        keys = LockKeys.of_read_write(self._checked(name), self._config.prefix)
        if owner is not None and text(owner, "owner").endswith(WRITER):
            raise ValueError(f"owner must not end with {WRITER!r}: {owner!r}")
        return AsyncReadWriteLock(self._sessions, keys, owner)

    def permit_expirable_semaphore(
        self, name: str, permits: int | None = None, *, owner: str | None = None
    ) -> AsyncPermitExpirableSemaphore:
        """
        The semaphore *name* whose permits expire, for the task that acquires them, or for the named *owner*.

        The first acquire lets there be so many *permits*, if nobody has said so before; ``None`` leaves that to others
        (`AsyncPermitExpirableSemaphore.set_permits`, a Java service), and until then there are none. No I/O. The Redis
        key is `LockConfig.prefix` and *name*; a lock must not have the same.

        Raises:
            TypeError, ValueError: *name* or *owner* is refused as `lock` does; or *permits* is no whole number, or is
                below zero.
        """
        keys = LockKeys.of_permits(self._checked(name), self._config.prefix)
        number = None if permits is None else number_of_permits(permits, least=0)
        return AsyncPermitExpirableSemaphore(
            self._sessions, keys, number, None if owner is None else text(owner, "owner")
        )

    def semaphore(self, name: str, permits: int | None = None) -> AsyncSemaphore:
        """
        The semaphore *name*, which counts permits and knows nobody who has them.

        The first acquire lets there be so many *permits*, if nobody has said so before; ``None`` leaves that to others
        (`AsyncSemaphore.try_set_permits`, a Java service), and until then there are none. No I/O. The Redis key is
        `LockConfig.prefix` and *name*; a lock must not have the same.

        Raises:
            TypeError, ValueError: *name* is refused as `lock` does; or *permits* is no whole number, or is below zero.
        """
        keys = LockKeys.of_semaphore(self._checked(name), self._config.prefix)
        return AsyncSemaphore(self._sessions, keys, None if permits is None else number_of_permits(permits, least=0))

    def count_down_latch(self, name: str) -> AsyncCountDownLatch:
        """
        The count-down latch *name*. No I/O. The Redis key is `LockConfig.prefix` and *name*; a lock must not have it.

        Raises:
            TypeError, ValueError: *name* is refused as `lock` does.
        """
        return AsyncCountDownLatch(self._sessions, LockKeys.of_latch(self._checked(name), self._config.prefix))

    def once(
        self, key: str, *, keep: Duration, wait: Duration | None = None, failures: Failures = "release"
    ) -> AsyncOnce:
        """
        What is done once per *key* in the whole fleet, while *keep* lasts: seconds from when it has been done.

        ``await locks.once("report:7", keep=3600).run(make_report)``, or ``async with locks.once(...) as turn: if turn:
        ...``. Who comes while another does it waits for that, *wait* seconds at most: ``None`` for as long as it takes,
        0 skips it. When who does it fails, is cancelled or dies, the next one does it; if *failures* are to
        "remember", nobody does while *keep* lasts. No I/O. A lock may have the same name.

        Raises:
            TypeError, ValueError: *key* is refused as `lock` does its name; or a duration or *failures* is none.
        """
        keys = LockKeys.of_once(self._checked(key), self._config.prefix)
        return AsyncOnce(self._sessions, keys, keep, wait, failures)

    async def slot(self, name: str, *, every: Duration) -> Slot:
        """
        Which slot of so many seconds it is, by the server's clock: a name for `once` that all processes agree about.

        Slots are counted from the epoch, so that those of a day begin at midnight UTC. In a cluster, *name* says whose
        clock it is. Waits up to `LockConfig.command_timeout`; cancelling is harmless.

        Raises:
            TypeError, ValueError: *name* is refused as `lock` does, or *every* is no duration.
            BackendError: Redis failed.
            ClientClosedError: the client is closed, or belongs to another loop or process.
        """
        return await slot_of(self._sessions, LockKeys.of_once(self._checked(name), self._config.prefix), every)

    def leader(self, name: str, *, pause: Duration = 1) -> AsyncLeader:
        """
        The leader *name*: of all who stand for it, in all processes, one at a time leads.

        Who leads has the lock *name*, which `lock` gives, too. After a term, and when Redis has failed, *pause* seconds
        pass before this process stands again, so that others may go first. No I/O.

        Raises:
            TypeError, ValueError: *name* is refused as `lock` does, or *pause* is no duration.
        """
        return AsyncLeader(self.lock(name), pause)

    def multi(self, *locks: str | Member, owner: str | None = None) -> AsyncMultiLock:
        """
        Several locks as one, all of them or none: names, or locks, which may be of other clients and kinds.

        Of a read-write lock one half, of a semaphore whose permits expire as many as its handle takes
        (`AsyncPermitExpirableSemaphore.taking`). *owner* is whose the locks are that are given by name, as in `lock`; a
        lock keeps its own. No I/O.

        Raises:
            TypeError, ValueError: there is none; one has no lease, as a semaphore that only counts; a name is refused
                as `lock` does; two have one name, or one key in Redis, and are not the same lock.
        """
        return AsyncMultiLock(self.lock(each, owner=owner) if isinstance(each, str) else each for each in locks)

    def synchronized(
        self,
        name: str,
        *more: str,
        of: "Maker | None" = None,
        wait: Duration | None = None,
        lease: Duration | None = None,
        at_least: Duration | None = None,
    ) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], Callable[P, Coroutine[Any, Any, R]]]:
        """
        Decorate a coroutine function to run under the lock *name*, a template: ``"order:{order_id}"``.

        With *more* names it runs under all of them, as `multi` does. *of* makes something else than a lock of this
        client and a name: ``of=lambda locks, name: locks.read_write_lock(name).read``. The placeholders are parameters
        of the function, filled from its bound arguments, defaults included. *wait*, *lease* and *at_least* (seconds),
        errors and
        cancelling as in `AsyncRLock.hold`: a wait that ends raises `LockTimeoutError`.

        Raises:
            TypeError, ValueError: when decorating; the function is no coroutine function, or a placeholder is none
                of its parameters. When calling; the name that its arguments make is one that `lock` refuses, or *of*
                makes nothing that can be held so.
        """
        check_maker(of)
        make = partial(self._handle_of, of=of)
        if at_least is None:
            return synchronize((name, *more), make, wait, lease)
        if more:
            raise ValueError("at_least is for one lock, not for several as one")
        least = at_least_seconds(at_least, lease)
        return synchronize((name,), lambda name: kept(make(name), least), wait, lease)

    def _handle_of(self, names: object, of: "Maker | None" = None) -> Handle:
        """What *of* makes of one name, or of several as one; each of these may be several, too."""
        make: Maker = of or LockClient.lock
        if isinstance(names, str):
            return make(self, names)
        several = names if isinstance(names, _SEVERAL) else ()
        flat = [name for each in several for name in (each if isinstance(each, _SEVERAL) else (each,))]
        if not flat:
            raise TypeError(f"the name must be a str, or a list, tuple or set of them, not {names!r}")
        return AsyncMultiLock(make(self, name) for name in flat)

    def _checked(self, name: str) -> str:
        text(name, "name")
        if self._in_cluster and not stays_together(self._config.prefix + name):
            raise ValueError(
                f"name {name!r} would put its keys into several slots of the cluster: write it without braces, or with "
                "one part in braces, which then says the slot: '{shop}:order:7'"
            )
        return name

    async def ping(self) -> None:
        """
        Ask the server for an answer to a command like those of locks: for readiness checks; it changes nothing.

        Waits up to `LockConfig.command_timeout`. When the server has been out of reach for longer than that, it waits
        for one attempt only: a fifth of a second, or twice what a connection takes at best. Cancelling is harmless.
        In a cluster one server is asked.

        Raises:
            BackendError: there is no answer, or it is an error.
            ClientClosedError: the client is closed, or belongs to another loop or process.
        """
        await self._sessions.open().inspector.ping(self._config.prefix)

    def statistics(self) -> ClientStatistics:
        """What this client does right now, and has done since it started; no I/O, also after closing."""
        session = self._sessions.session
        return ClientStatistics() if session is None else session.statistics()

    async def __aenter__(self) -> Self:
        self._sessions.start_after_fork()
        self._sessions.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._sessions.can_leave(error):
            await self.aclose()

    async def aclose(self) -> None:
        """
        Close the client: waiters get `ClientClosedError`, holders `LeaseLostError`, and their locks are released.

        Blocks (``async with``) are cancelled, or were already, and have 0.6 of `LockConfig.release_timeout` to roll
        back under their locks. Takes that timeout at most, also when the server is gone. Cancelling does not stop it:
        it goes on by itself. Safe to call twice.
        """
        await self._sessions.here().aclose()
        if self._owns_redis:
            await self._redis.aclose()

    def __repr__(self) -> str:
        session = self._sessions.session
        state = "not started" if session is None else "closed" if session.closed else session.client
        return f"<LockClient {state}>"


Maker = Callable[[LockClient, str], Handle]
