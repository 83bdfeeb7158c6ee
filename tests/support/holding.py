"""Holders that record what happens to them, and other owners that take their lock away."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from redis.asyncio import Redis

from aiolock import AsyncRLock, Lease, LeaseLostError, LockClient, LockConfig
from tests.support.proxy import Proxy

ROLLBACK = 3


@asynccontextmanager
async def lock_client(url: str, **config: Any) -> AsyncIterator[LockClient]:
    """A client with these settings and short timeouts for a server that is gone."""
    patience: dict[str, Any] = {"release_timeout": 1, "command_timeout": 1}
    async with LockClient.from_url(url, config=LockConfig(**(patience | config))) as client:
        yield client


@asynccontextmanager
async def client_behind(proxy: Proxy, **config: Any) -> AsyncIterator[LockClient]:
    """Such a client behind a proxy, which passes everything on again before the client is closed."""
    async with lock_client(proxy.url, **config) as client:
        try:
            yield client
        finally:
            proxy.clear_rules()
            await proxy.heal()


async def seize(redis: Redis, key: str, *, redisson: bool = False) -> None:
    """Replace the lock by another owner's, as that owner's scripts would."""
    fields: dict[Any, Any] = {f"{uuid4()}:1": 1}
    if not redisson:
        fields |= {"aiolock:acquisition": f"{uuid4()}:1", "aiolock:token": 1, "aiolock:step": 1, "aiolock:renewal": 0}
    async with redis.pipeline(transaction=True) as pipeline:
        await pipeline.delete(key)
        await pipeline.hset(key, mapping=fields)
        await pipeline.pexpire(key, 60_000)
        await pipeline.execute()


async def foreign(redis: Redis, key: str, kind: str) -> None:
    """A key of that type which is neither a lock nor a number."""
    if kind == "list":
        await redis.rpush(key, "a")
    elif kind == "string":
        await redis.set(key, "text")
    else:
        await redis.hset(key, mapping={"name": "a", "age": 7})


class Holder:
    """
    A task that holds locks, nested in the order given, and counts the events in its innermost body.

    The body waits until it is cancelled or `leave` is set; then it rolls back, in several awaits. After a loss of the
    lock the task pauses, still as the owner, until `go_on`.
    """

    def __init__(self, *locks: AsyncRLock) -> None:
        self.leases: list[Lease] = []
        self.cancelled = 0
        self.rolled_back = 0
        self.error: LeaseLostError | None = None
        self.uncancelled = False
        self.after: list[type[Exception]] = []
        self.leave = asyncio.Event()
        self.go_on = asyncio.Event()
        self._locks = locks
        self._inside = asyncio.Event()
        self._told = asyncio.Event()
        self.task = asyncio.create_task(self._run(), name=f"holder of {[lock.name for lock in locks]}")

    async def lost(self, within: float = 5.0) -> LeaseLostError:
        """Wait until the task has left its scopes with the error of the loss."""
        await asyncio.wait_for(self._told.wait(), within)
        assert self.error is not None, "the scope was left without an error"
        return self.error

    async def _run(self) -> None:
        try:
            async with AsyncExitStack() as stack:
                for lock in self._locks:
                    self.leases.append(await stack.enter_async_context(lock))
                self._inside.set()
                await self._work()
        except LeaseLostError as error:
            self.error = error
        task = asyncio.current_task()
        # A remaining cancellation would raise here.
        await asyncio.sleep(0.01)
        self.uncancelled = task is not None and task.cancelling() == 0
        self._told.set()
        await self.go_on.wait()
        for lock in self._locks:
            try:
                await lock.release()
            except Exception as error:
                self.after.append(type(error))

    async def _work(self) -> None:
        try:
            await self._counting(self.leave.wait())
        finally:
            for _ in range(ROLLBACK):
                await self._counting(asyncio.sleep(0.005))
                self.rolled_back += 1

    async def _counting(self, waiting: Any) -> None:
        try:
            await waiting
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def __aenter__(self) -> Self:
        inside = asyncio.create_task(self._inside.wait())
        await asyncio.wait([inside, self.task], timeout=5, return_when=asyncio.FIRST_COMPLETED)
        inside.cancel()
        assert self._inside.is_set(), f"no lock: {self.task!r}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave.set()
        self.go_on.set()
        if error is not None:
            self.task.cancel()
        await asyncio.wait([self.task])
        if error is None:
            self.task.result()


async def client_of_another_loop(url: str) -> LockClient:
    """A client that has been used in another event loop, and closed there."""
    locks = LockClient.from_url(url)

    async def use() -> None:
        async with locks, locks.lock("elsewhere"):
            pass

    await asyncio.to_thread(asyncio.run, use())
    return locks
