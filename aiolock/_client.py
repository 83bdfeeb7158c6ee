"""LockClient: where everything is put together."""

from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, final

from redis.asyncio import Redis, RedisCluster

from aiolock._config import LockConfig
from aiolock._core.activity import activity_of
from aiolock._core.session import Sessions
from aiolock._primitives.factories import Factories
from aiolock._primitives.handle import Handle, kept
from aiolock._primitives.multi import AsyncMultiLock
from aiolock._primitives.rlock import at_least_seconds
from aiolock._primitives.synchronized import check_maker, synchronize
from aiolock._redis.backend import backend_of
from aiolock._redis.quorum import quorum_of
from aiolock._scripts import read_all
from aiolock._types import ClientStatistics, Duration, LockActivity, lease_seconds, seconds

_LONGEST_LEASE = 60.0  # Seconds, of a quorum, if nobody says more.
_SEVERAL = (list, tuple, set, frozenset)

P = ParamSpec("P")
R = TypeVar("R")


@final
class LockClient(Factories):
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
        config = _config_or_default(config)
        self._put_together(redis, config, Sessions(backend_of(redis, config), config))

    def _put_together(
        self, redis: "Redis | RedisCluster", config: LockConfig, sessions: Sessions, quorum: tuple[Redis, ...] = ()
    ) -> None:
        read_all()
        self._config = config
        self._sessions = sessions
        self._redis = redis
        self._quorum: tuple[Redis, ...] = quorum  # All of them, where there are several.
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

        Locks, read-write locks, multi locks, semaphores whose permits expire and leaders are kept so. A fair lock,
        `once`, a semaphore that only counts and a latch are not: they raise `TypeError` when they are made. What most
        servers did not answer alike raises `QuorumError`, a `BackendError`. The algorithm is that of
        https://redis.io/docs/latest/develop/use/patterns/distributed-locks/, with a token that grows.

        Raises:
            TypeError, ValueError: one of *redises* is a `RedisCluster`, behind Sentinels, or no client; there are fewer
                than three, or one is there twice; `LockConfig.replicas` is set; or *longest_lease* is shorter than
                `LockConfig.lease`.
        """
        config = _config_or_default(config)
        lease = seconds(config.lease, "lease")
        longest = max(_LONGEST_LEASE, lease) if longest_lease is None else lease_seconds(longest_lease, "longest_lease")
        if longest < lease:
            raise ValueError(f"longest_lease must be at least the lease, {lease:g} s, not {longest_lease!r}")
        quorum = tuple(redises)
        sessions = Sessions(quorum_of(quorum, config, longest), config, longest)
        client = cls.__new__(cls)
        client._put_together(quorum[0], config, sessions, quorum)
        return client

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
        errors and cancelling as in `AsyncRLock.hold`: a wait that ends raises `LockTimeoutError`.

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

    def activity(self) -> list[LockActivity]:
        """
        Who of this client holds what and waits for what right now, by name; no I/O, empty before the first use.

        A name appears once for each kind of lock that is used under it. What other clients do is not in it: ask
        `AsyncRLock.holder`. What is acquired without an owner, as by `AsyncSemaphore.acquire`, is nobody's.
        """
        session = self._sessions.session
        return [] if session is None else activity_of(session.entries, session.owners)

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


def _config_or_default(config: LockConfig | None) -> LockConfig:
    if config is not None and not isinstance(config, LockConfig):
        raise TypeError(f"config must be a LockConfig, not {config!r}")
    return config or LockConfig()
