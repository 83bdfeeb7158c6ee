"""LockClient: where everything is put together."""

from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, final

from redis.asyncio import Redis, RedisCluster

from aiolock._config import LockConfig
from aiolock._core.session import Sessions
from aiolock._keys import WRITER, LockKeys
from aiolock._primitives.fair_lock import AsyncFairLock
from aiolock._primitives.latch import AsyncCountDownLatch
from aiolock._primitives.multi import AsyncMultiLock, Member
from aiolock._primitives.permits import AsyncPermitExpirableSemaphore
from aiolock._primitives.read_write import AsyncReadWriteLock
from aiolock._primitives.rlock import AsyncRLock
from aiolock._primitives.semaphore import AsyncSemaphore
from aiolock._primitives.synchronized import synchronize
from aiolock._redis.backend import backend_of
from aiolock._scripts import read_all
from aiolock._types import ClientStatistics, Duration, LockActivity, number_of_permits, text

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
                needs for itself (``aiolock_token:...``, ``aiolock_client:...``,
                ``aiolock_mark:...``).
        """
        keys = LockKeys.of(text(name, "name"), self._config.prefix)
        return AsyncRLock(self._sessions, keys, None if owner is None else text(owner, "owner"))

    def fair_lock(self, name: str, *, owner: str | None = None) -> AsyncFairLock:
        """
        The reentrant lock *name*, granted in the order in which it was asked for, by whatever client and task.

        It costs more than `lock`, of which it is the same lock otherwise: two of one name exclude each other, but those
        who wait for the plain one are not told while somebody waits for the fair one. No I/O.

        Raises:
            TypeError, ValueError: *name* or *owner* is refused as `lock` does.
        """
        keys = LockKeys.of_fair(text(name, "name"), self._config.prefix)
        return AsyncFairLock(self._sessions, keys, None if owner is None else text(owner, "owner"))

    def read_write_lock(self, name: str, *, owner: str | None = None) -> AsyncReadWriteLock:
        """
        The lock *name* that many may have to read, or one to write, for the task that does, or for the named *owner*.

        No I/O. The Redis key is `LockConfig.prefix` and *name*; another lock must not have the same.

        Raises:
            TypeError, ValueError: *name* or *owner* is refused as `lock` does; or *owner* ends with ``:write``, which
                is how a writer is told from a reader in Redis.
        """
        keys = LockKeys.of_read_write(text(name, "name"), self._config.prefix)
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
        keys = LockKeys.of_permits(text(name, "name"), self._config.prefix)
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
        keys = LockKeys.of_semaphore(text(name, "name"), self._config.prefix)
        return AsyncSemaphore(self._sessions, keys, None if permits is None else number_of_permits(permits, least=0))

    def count_down_latch(self, name: str) -> AsyncCountDownLatch:
        """
        The count-down latch *name*. No I/O. The Redis key is `LockConfig.prefix` and *name*; a lock must not have it.

        Raises:
            TypeError, ValueError: *name* is refused as `lock` does.
        """
        return AsyncCountDownLatch(self._sessions, LockKeys.of_latch(text(name, "name"), self._config.prefix))

    def multi(self, *locks: str | Member, owner: str | None = None) -> AsyncMultiLock:
        """
        Several locks as one, all of them or none: names, or locks, which may be of other clients and kinds.

        *owner* is whose the locks are that are given by name, as in `lock`; a lock keeps its own. No I/O.

        Raises:
            TypeError, ValueError: there is none; a name is refused as `lock` does; two have one name, or one key in
                Redis, and are not the same lock.
        """
        return AsyncMultiLock(self.lock(each, owner=owner) if isinstance(each, str) else each for each in locks)

    def synchronized(
        self, name: str, *more: str, wait: Duration | None = None, lease: Duration | None = None
    ) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], Callable[P, Coroutine[Any, Any, R]]]:
        """
        Decorate a coroutine function to run under the lock *name*, a template: ``"order:{order_id}"``.

        With *more* names it runs under all of them, as `multi` does. The placeholders are parameters of the function,
        filled from its bound arguments, defaults included. *wait* and *lease* (seconds), errors and cancelling as in
        `AsyncRLock.hold`: a wait that ends raises `LockTimeoutError`.

        Raises:
            TypeError, ValueError: when decorating; the function is no coroutine function, or a placeholder is none
                of its parameters. When calling; the name that its arguments make is one that `lock` refuses.
        """
        return synchronize((name, *more), self._lock_of, wait, lease)

    def _lock_of(self, names: object) -> AsyncRLock | AsyncMultiLock:
        """The lock of one name, or of several as one; each of these may be several, too."""
        if isinstance(names, str):
            return self.lock(names)
        several = names if isinstance(names, _SEVERAL) else ()
        flat = [name for each in several for name in (each if isinstance(each, _SEVERAL) else (each,))]
        if not flat:
            raise TypeError(f"the name must be a str, or a list, tuple or set of them, not {names!r}")
        return self.multi(*flat)

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

    def activity(self) -> list[LockActivity]:
        """
        Who of this client holds what and waits for what right now, by name; no I/O, empty before the first use.

        A name appears once for each kind of lock that is used under it. What other clients do is not in it: ask
        `AsyncRLock.holder`. What is acquired without an owner, as by `AsyncSemaphore.acquire`, is nobody's.
        """
        session = self._sessions.session
        return [] if session is None else session.activity()

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
