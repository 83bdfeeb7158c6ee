"""LockClient: where everything is put together."""

from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, final

from redis.asyncio import Redis, RedisCluster

from aiolock._borrowed import check_borrowed
from aiolock._config import LockConfig
from aiolock._rlock import AsyncRLock
from aiolock._runtime import Runtime
from aiolock._synchronized import synchronize
from aiolock._types import ClientStatistics, Duration, LockKeys, text

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
        check_borrowed(redis)
        if config is not None and not isinstance(config, LockConfig):
            raise TypeError(f"config must be a LockConfig, not {config!r}")
        self._redis = redis
        self._config = config or LockConfig()
        self._runtime = Runtime(redis, self._config)
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
                needs for itself (``aiolock_token:...``, ``aiolock_client:...``).
        """
        keys = LockKeys.of(text(name, "name"), self._config.prefix)
        return AsyncRLock(self._runtime, keys, None if owner is None else text(owner, "owner"))

    def synchronized(
        self, name: str, *, wait: Duration | None = None, lease: Duration | None = None
    ) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], Callable[P, Coroutine[Any, Any, R]]]:
        """
        Decorate a coroutine function to run under the lock *name*, a template: ``"order:{order_id}"``.

        The placeholders are parameters of the function, filled from its bound arguments, defaults included. *wait*
        and *lease* (seconds), errors and cancelling as in `AsyncRLock.hold`: a wait that ends raises
        `LockTimeoutError`.

        Raises:
            TypeError, ValueError: when decorating; the function is no coroutine function, or a placeholder is none
                of its parameters. When calling; the name that its arguments make is one that `lock` refuses.
        """
        return synchronize(name, self.lock, wait, lease)

    async def ping(self) -> None:
        """
        Ask the server for an answer to a command like those of locks: for readiness checks; it changes nothing.

        Waits up to `LockConfig.command_timeout`; not at all when the server has been out of reach for longer than that.
        Cancelling is harmless. In a cluster one server is asked.

        Raises:
            BackendError: there is no answer, or it is an error.
            ClientClosedError: the client is closed, or belongs to another loop or process.
        """
        await self._runtime.open_core().inspector.ping(self._config.prefix)

    def statistics(self) -> ClientStatistics:
        """What this client does right now, and has done since it started; no I/O, also after closing."""
        return self._runtime.statistics()

    async def __aenter__(self) -> Self:
        self._runtime.start_after_fork()
        self._runtime.open_core()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._runtime.core_to_leave(error) is not None:
            await self.aclose()

    async def aclose(self) -> None:
        """
        Close the client: waiters get `ClientClosedError`, holders `LeaseLostError`, and their locks are released.

        Blocks (``async with``) are cancelled, or were already, and have half of `LockConfig.release_timeout` to roll
        back under their locks. Takes that timeout at most, also when the server is gone. Cancelling does not stop it:
        it goes on by itself. Safe to call twice.
        """
        await self._runtime.aclose()
        if self._owns_redis:
            await self._redis.aclose()

    def __repr__(self) -> str:
        return f"<LockClient {self._runtime.state}>"
