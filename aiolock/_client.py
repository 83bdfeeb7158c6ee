"""LockClient: the place where all parts are put together."""

from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from math import inf
from types import TracebackType
from typing import Any, Literal, ParamSpec, Self, TypeVar, final, overload

from redis.asyncio import Redis, RedisCluster

from aiolock._config import LockConfig
from aiolock._core.activity import activity_of
from aiolock._core.session import Session, Sessions
from aiolock._otel.marks import observed_by
from aiolock._primitives.factories import Factories
from aiolock._primitives.handle import Handle, kept
from aiolock._primitives.multi.lock import AsyncMultiLock
from aiolock._primitives.rlock import at_least_seconds, refuse_behind
from aiolock._primitives.section import Conduct
from aiolock._primitives.synchronized import check_maker, synchronize
from aiolock._redis.address import where
from aiolock._redis.backend import backend_of
from aiolock._redis.quorum.backend import quorum_of, servers_of
from aiolock._scripts import read_all
from aiolock._types import (
    BlockRelease,
    ClientStatistics,
    Duration,
    LockActivity,
    OnBusy,
    OnUnavailable,
    checked_url,
    lease_seconds,
    seconds,
)

# Seconds: the default of `longest_lease` for a quorum.
_LONGEST_LEASE = 60.0
_SEVERAL = (list, tuple, set, frozenset)

P = ParamSpec("P")
R = TypeVar("R")


@final
class LockClient(Factories):
    """
    Makes locks on a Redis or Valkey server, or on a cluster of them.

    Borrows a `redis.asyncio.Redis` (also one that `Sentinel.master_for` made) or a `RedisCluster`: opens a few
    connections of its own with the same address and settings, takes none from the pool, and never closes *redis*. The
    client starts at its first use, or with ``async with``, and belongs to the event loop and the process in which it
    starts: a forked child needs a client of its own. If your program drops a client without closing it, Python shows a
    `ResourceWarning`, and the client closes itself once it holds nothing.

    Raises:
        TypeError: *redis* is neither a `Redis` nor a `RedisCluster`; the message says what to pass. Or *config* is not
            a `LockConfig`.
    """

    def __init__(self, redis: "Redis | RedisCluster", *, config: LockConfig | None = None) -> None:
        config = _config_or_default(config)
        begin = partial(Session, backend_of(redis, config), config, inf, observed_by(config.telemetry))
        self._put_together(redis, config, Sessions(begin))

    def _put_together(
        self, redis: "Redis | RedisCluster", config: LockConfig, sessions: Sessions, quorum: tuple[Redis, ...] = ()
    ) -> None:
        read_all()
        self._config = config
        self._sessions = sessions
        self._redis = redis
        # All servers of a quorum; empty for one server or a cluster.
        self._quorum: tuple[Redis, ...] = quorum
        self._owns_redis = False
        self._in_cluster = isinstance(redis, RedisCluster)

    @classmethod
    def from_url(cls, url: str, *, config: LockConfig | None = None, **settings: Any) -> Self:
        """
        A client for the server at *url* (``redis://``, ``rediss://`` or ``unix://``), with a `Redis` of its own.

        *settings* are those of `redis.asyncio.Redis.from_url`, such as a *client_name* for the server's list of
        clients; the name that `holder()` shows is `LockConfig.client_name`. No I/O happens here.

        Raises:
            TypeError, ValueError: *url* is not a non-empty `str`, or redis-py refuses the URL or a setting.
        """
        client = cls(Redis.from_url(checked_url(url), **settings), config=config)
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
        A client whose locks are kept by several independent servers; a holder needs a majority of them (Redlock).

        Borrows three *redises* or more, preferably an odd number, each as `LockClient` does; none may replicate
        another. A lock can be acquired while a majority of them answers. A new server, and a server that has lost its
        data, grants nothing for *longest_lease* (seconds; ``None`` means 60, or `LockConfig.lease` if that is longer);
        no lease may be longer, and all clients must have the same *longest_lease*. No I/O.

        Locks, multi locks and leaders work with it. Read-write locks, fair locks, semaphores of both kinds, `once` and
        latches do not: their factories raise `TypeError`. If no majority of the servers gives the same answer,
        `QuorumError`, a `BackendError`, is raised. The algorithm is that of
        https://redis.io/docs/latest/develop/use/patterns/distributed-locks/, with growing fencing tokens in addition.

        Raises:
            TypeError, ValueError: one of *redises* is a `RedisCluster`, behind Sentinels, or not a client; there are
                fewer than three, or one is given twice; `LockConfig.replicas` is set; or *longest_lease* is shorter
                than `LockConfig.lease`.
        """
        config = _config_or_default(config)
        lease = seconds(config.lease, "lease")
        longest = max(_LONGEST_LEASE, lease) if longest_lease is None else lease_seconds(longest_lease, "longest_lease")
        if longest < lease:
            raise ValueError(f"longest_lease must be at least the lease, {lease:g} s, not {longest_lease!r}")
        quorum = servers_of(redises)
        begin = partial(Session, quorum_of(quorum, config, longest), config, longest, observed_by(config.telemetry))
        client = cls.__new__(cls)
        client._put_together(quorum[0], config, Sessions(begin), quorum)
        return client

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
    ) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], Callable[P, Coroutine[Any, Any, R]]]: ...

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
    ) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], Callable[P, Coroutine[Any, Any, R | None]]]: ...

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
    ) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], Callable[P, Coroutine[Any, Any, R | None]]]:
        """
        Decorate a coroutine function to run under the lock *name*, a template: ``"order:{order_id}"``.

        With *more* names the function runs under all of these locks, as with `multi`. *of* is a function of this client
        and a name that makes another primitive: ``of=lambda locks, name: locks.read_write_lock(name).read``. The
        placeholders are parameters of the function, filled from its bound arguments, defaults included. *wait*, *lease*
        and *at_least* (seconds), *release*, errors and cancellation are as in `AsyncRLock.hold`: a wait that ends
        raises `LockTimeoutError`.

        With *busy* ``"skip"``, a call returns ``None`` instead, and the function does not run; then the default of
        *wait* is 0. With *on_unavailable* ``"run"``, the function runs without its lock if the acquire fails with
        `BackendError` or `ReplicationError`: see `Bypassed`. Then nothing keeps two processes apart; but the function
        does not run while another task of this client holds the lock. If only the release fails so, the call still
        returns the function's result.

        Raises:
            TypeError, ValueError: when decorating: the function is not a coroutine function, or a placeholder is not
                one of its parameters. When calling: the arguments make no name, or one with a set or an address, which
                is another name in another process; or `lock` refuses the name; or *of* returned something that is not a
                lock or a semaphore.
        """
        conduct = Conduct.of(wait, lease, release, on_unavailable, busy)
        names = (name, *more)
        return synchronize(names, self._making(names, of, conduct, at_least), conduct)

    def _making(
        self, names: Sequence[str], of: "Maker | None", conduct: Conduct, at_least: Duration | None
    ) -> Callable[[str | Sequence[str]], Handle]:
        """The function that makes the handle for one call, from *names* whose templates are filled in."""
        check_maker(of)
        make = partial(self._handle_of, of=of)
        if at_least is None:
            return make
        if len(names) > 1:
            raise ValueError("at_least is for one lock, not for several as one")
        refuse_behind(conduct.terms.release)
        least = at_least_seconds(at_least, conduct.terms.lease)
        return lambda name: kept(make(name), least)

    def _handle_of(self, names: object, of: "Maker | None" = None) -> Handle:
        """A handle for one name, or one multi lock for several names; each of the names may be a list of names, too."""
        make: Maker = of or LockClient.lock
        if isinstance(names, str):
            return make(self, names)
        several = names if isinstance(names, _SEVERAL) else ()
        flat = [name for each in several for name in (each if isinstance(each, _SEVERAL) else (each,))]
        if not flat:
            raise TypeError(f"the name must be a str, or a list, tuple or set of them, not {names!r}")
        return AsyncMultiLock(members=(make(self, name) for name in flat))

    async def ping(self) -> None:
        """
        Check that the server answers and accepts the commands of locks; changes nothing. For readiness checks.

        A server that refuses writes is not ready: its disk or its memory is full, or it has too few replicas. Then the
        error is raised at once. If the server is a replica, `ping` asks again, on new connections, which may lead to
        the new primary.

        Waits up to `LockConfig.command_timeout`. If the server has been out of reach for longer than that, `ping` makes
        one attempt only: it waits for a fifth of a second, or for twice the time of the quickest connection so far.
        Cancelling is harmless. In a cluster one server is asked; of several independent servers, a majority must
        answer.

        Raises:
            BackendError: there is no answer, or an error; the message contains the server's text.
            ClientClosedError: the client is closed, or belongs to another loop or process.
        """
        await self._sessions.open().commands.ping(self._config.prefix)

    def statistics(self) -> ClientStatistics:
        """The numbers of this client at the moment, and its totals since it started; no I/O, even after closing."""
        session = self._sessions.session
        return ClientStatistics() if session is None else session.statistics()

    def activity(self) -> list[LockActivity]:
        """
        The tasks of this client that hold or wait for a lock at the moment, by name; no I/O, empty before the first
        use.

        A name appears once for each kind of lock that is used under it. Other clients are not included: ask
        `AsyncRLock.holder`. Permits that `AsyncCountingSemaphore.acquire` has taken have no holder, and do not appear
        either.
        """
        session = self._sessions.session
        return [] if session is None else activity_of(session.entries, session.owners)

    async def __aenter__(self) -> Self:
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

        Open ``async with`` blocks are cancelled, unless they were before, and have 60 % of `LockConfig.release_timeout`
        to roll back while their locks are still held. Closing takes `LockConfig.release_timeout` at most, even if the
        server is gone. Cancelling the caller does not stop it: closing goes on in the background. Safe to call twice.
        """
        await self._sessions.here().aclose()
        if self._owns_redis:
            await self._redis.aclose()

    def _where(self) -> str:
        """The server or servers, for people: without user and password."""
        return ", ".join(map(where, self._quorum or (self._redis,)))

    def __repr__(self) -> str:
        session = self._sessions.session
        state = "not started" if session is None else "closed" if session.closed else session.client
        return f"<LockClient {state}>"


Maker = Callable[[LockClient, str], Handle]


def _config_or_default(config: LockConfig | None) -> LockConfig:
    if config is not None and not isinstance(config, LockConfig):
        raise TypeError(f"config must be a LockConfig, not {config!r}")
    return config or LockConfig()
