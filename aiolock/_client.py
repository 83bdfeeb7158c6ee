"""LockClient: where everything is put together."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from contextvars import Context
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, final
from uuid import uuid4

import anyio
from redis.asyncio import Redis

from aiolock._backend import RedisBackend
from aiolock._config import LockConfig, Timing
from aiolock._core import Core
from aiolock._link import Connector
from aiolock._notifier import Notifier
from aiolock._rlock import AsyncRLock
from aiolock._synchronized import synchronize
from aiolock._types import ClientStatistics, Duration, LockKeys, LockStatistics, text

P = ParamSpec("P")
R = TypeVar("R")


@final
class LockClient:
    """
    Makes locks on a Redis or Valkey server.

    Borrows a `redis.asyncio.Redis`: takes over its address and settings for a few connections of its own, uses none
    of its pool, and never closes it. Starts with the first use, or with ``async with``, and belongs to the event loop
    and the process in which it starts; after a fork, ``async with`` starts it anew in the child, under a new identity.

    Raises:
        TypeError: *redis* is not a `redis.asyncio.Redis`, or *config* not a `LockConfig`.
    """

    def __init__(self, redis: "Redis", *, config: LockConfig | None = None) -> None:
        if not isinstance(redis, Redis):
            kind = type(redis)
            raise TypeError(f"LockClient needs a redis.asyncio.Redis, not a {kind.__module__}.{kind.__qualname__}")
        if config is not None and not isinstance(config, LockConfig):
            raise TypeError(f"config must be a LockConfig, not {config!r}")
        self._redis = redis
        self._config = config or LockConfig()
        self._core: Core | None = None
        self._closing: asyncio.Task[None] | None = None
        self._owns_redis = False
        self._inherited: list[Core] = []  # What a fork left here belongs to the parent: kept, never used.

    @classmethod
    def from_url(cls, url: str, *, config: LockConfig | None = None, **settings: Any) -> Self:
        """
        A client for the server at *url* (``redis://``, ``rediss://`` or ``unix://``), with a `Redis` of its own.

        *settings* are those of `redis.asyncio.Redis.from_url`; no I/O happens here.
        """
        client = cls(Redis.from_url(url, **settings), config=config)
        client._owns_redis = True
        return client

    def lock(self, name: str, *, owner: str | None = None) -> AsyncRLock:
        """
        The reentrant lock *name*, owned by the task that acquires it, or by the named *owner* of this client.

        A named owner is for work that acquires in one task and releases in another: whoever uses its name in this
        client acts as it. No I/O. The Redis key is `LockConfig.prefix` and *name*, nothing else.

        Raises:
            TypeError, ValueError: *name* or *owner* is not a non-empty `str`.
        """
        keys = LockKeys.of(text(name, "name"), self._config.prefix)
        return AsyncRLock(self, keys, None if owner is None else text(owner, "owner"))

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
                of its parameters.
        """
        return synchronize(name, self.lock, wait, lease)

    def statistics(self) -> ClientStatistics:
        """What this client does right now, and has done since it started; no I/O."""
        return ClientStatistics() if self._core is None else self._core.statistics()

    def statistics_of(self, keys: LockKeys) -> LockStatistics:
        """What this client does with one name; asked through `AsyncRLock.statistics`."""
        return LockStatistics() if self._core is None else self._core.lock_statistics(keys)

    def core(self) -> Core:
        """The core, started if it is not; raises `ClientClosedError` in another loop or process than its own."""
        if self._core is None:
            self._core = self._start()
        self._core.usage.check_place()
        return self._core

    async def __aenter__(self) -> Self:
        if self._core is not None and self._core.usage.process != os.getpid():
            self._inherited.append(self._core)
            self._core = self._closing = None
        self.core().usage.check_open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """
        Close the client: waiters get `ClientClosedError`, holders `LeaseLostError`, and their locks are released.

        Takes `LockConfig.release_timeout` at most, also when the server is gone. Cancelling does not stop it: it
        goes on by itself. Safe to call twice.
        """
        core = self.core()
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close(core), context=Context())
        with anyio.CancelScope(shield=True):
            await asyncio.shield(self._closing)

    async def _close(self, core: Core) -> None:
        await core.aclose()
        if self._owns_redis:
            await self._redis.aclose()

    def _start(self) -> Core:
        timing = Timing.of(self._config)
        connect = Connector(self._redis, self._config.client_name)
        backend = RedisBackend(connect, command_timeout=timing.command_timeout, renew_interval=timing.renew_interval)
        notifier = Notifier(connect, patience=timing.command_timeout / 3)
        return Core(str(uuid4()), backend, notifier, self._config)

    def __repr__(self) -> str:
        state = "not started" if self._core is None else "closed" if self._core.usage.closed else self._core.client
        return f"<LockClient {state}>"
