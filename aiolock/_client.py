"""LockClient: where everything is put together."""

from collections.abc import Callable, Coroutine, Iterable
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, final

from redis.asyncio import Redis, RedisCluster

from aiolock._config import LockConfig
from aiolock._core.session import Sessions
from aiolock._keys import WRITER, LockKeys
from aiolock._primitives.latch import AsyncCountDownLatch
from aiolock._primitives.multi import AsyncMultiLock, Member
from aiolock._primitives.permits import AsyncPermitExpirableSemaphore
from aiolock._primitives.read_write import AsyncReadWriteLock
from aiolock._primitives.rlock import AsyncRLock
from aiolock._primitives.semaphore import AsyncSemaphore
from aiolock._primitives.synchronized import synchronize
from aiolock._redis.backend import backend_of
from aiolock._redis.quorum import quorum_of
from aiolock._types import ClientStatistics, Duration, lease_seconds, number_of_permits, seconds, text

_LONGEST_LEASE = 60.0  # Seconds, of a quorum, if nobody says more.
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
        self._config = _checked(config)
        self._sessions = Sessions(backend_of(redis, self._config), self._config)
        self._redis = redis
        self._quorum: tuple[Redis, ...] = ()  # All of them, where there are several.
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

    @classmethod
    def redlock(
        cls,
        redises: "Iterable[Redis]",
        *,
        config: LockConfig | None = None,
        longest_lease: Duration | None = None,
    ) -> Self:
        """
        A client whose locks are kept by several independent servers, and held by who has a majority of them (Redlock).

        Borrows three *redises* or more, better an odd number, each as `LockClient` does; none may replicate another. A
        lock can be had while most of them answer. A server that has lost its memory grants nothing for *longest_lease*
        (seconds; ``None`` means 60, or `LockConfig.lease` if that is longer), also a new one; no lease may be longer,
        and all clients must say the same. No I/O.

        Locks, read-write locks, multi locks and semaphores whose permits expire are kept so; what only counts is not.
        What most servers did not answer alike raises `QuorumError`, a `BackendError`. The algorithm is that of
        https://redis.io/docs/latest/develop/use/patterns/distributed-locks/, with a token that grows.

        Raises:
            TypeError, ValueError: one of *redises* is a `RedisCluster` or no client, there are fewer than three, or one
                is there twice; `LockConfig.replicas` is set; or *longest_lease* is shorter than `LockConfig.lease`.
        """
        config = _checked(config)
        lease = seconds(config.lease, "lease")
        longest = max(_LONGEST_LEASE, lease) if longest_lease is None else lease_seconds(longest_lease, "longest_lease")
        if longest < lease:
            raise ValueError(f"longest_lease must be at least the lease, {lease:g} s, not {longest_lease!r}")
        client = cls.__new__(cls)
        client._config = config
        client._quorum = tuple(redises)
        client._sessions = Sessions(quorum_of(client._quorum, config, longest), config, longest)
        client._redis = client._quorum[0]
        client._owns_redis = False
        return client

    def lock(self, name: str, *, owner: str | None = None) -> AsyncRLock:
        """
        The reentrant lock *name*, owned by the task that acquires it, or by the named *owner* of this client.

        A named owner is for work that acquires in one task and releases in another: whoever uses its name in this
        client acts as it. When several tasks do at once, `AsyncRLock.release` prefers what the calling task acquired.
        No I/O. The Redis key is `LockConfig.prefix` and *name*, nothing else.

        Raises:
            TypeError, ValueError: *name* or *owner* is not a non-empty `str`, or the key would be one that aiolock
                needs for itself (``aiolock_token:...``, ``aiolock_client:...``).
        """
        keys = LockKeys.of(text(name, "name"), self._config.prefix)
        return AsyncRLock(self._sessions, keys, None if owner is None else text(owner, "owner"))

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
            TypeError, ValueError: *name* is refused as `lock` does; or *permits* is no whole number, or is below zero;
                or this is a client of several servers (`redlock`).
        """
        self._refuse_in_quorum("a semaphore that only counts")
        keys = LockKeys.of_semaphore(text(name, "name"), self._config.prefix)
        return AsyncSemaphore(self._sessions, keys, None if permits is None else number_of_permits(permits, least=0))

    def count_down_latch(self, name: str) -> AsyncCountDownLatch:
        """
        The count-down latch *name*. No I/O. The Redis key is `LockConfig.prefix` and *name*; a lock must not have it.

        Raises:
            TypeError, ValueError: *name* is refused as `lock` does; or this is a client of several servers (`redlock`).
        """
        self._refuse_in_quorum("a count-down latch")
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

    def _refuse_in_quorum(self, what: str) -> None:
        if self._quorum:
            raise TypeError(
                f"{what} cannot be kept by several servers: a count of which each misses something else is nobody's; "
                "use a LockClient of one server, or permit_expirable_semaphore()"
            )

    async def ping(self) -> None:
        """
        Ask the server for an answer to a command like those of locks: for readiness checks; it changes nothing.

        Waits up to `LockConfig.command_timeout`. When the server has been out of reach for longer than that, it waits
        for one attempt only: a fifth of a second, or twice what a connection takes at best. Cancelling is harmless.
        In a cluster one server is asked; of several independent servers, most must answer.

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


def _checked(config: LockConfig | None) -> LockConfig:
    if config is not None and not isinstance(config, LockConfig):
        raise TypeError(f"config must be a LockConfig, not {config!r}")
    return config or LockConfig()
