"""Every primitive as the contract sees it: how it is taken and given back, who is in its way, what stays in Redis."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from aiolock import LockClient
from aiolock._keys import LockKeys
from aiolock._scripts import FAIR, LATCH, LOCK, ONCE, PERMIT, READ, SEMAPHORE, WRITE

NAME = "it"
LONG = 60.0  # Seconds of a lease that does not end in a test.
Remove = Callable[[], Awaitable[object]]


class Kind(ABC):
    """One primitive; what is not said otherwise is so for locks."""

    expires = True
    """What it grants ends with a lease, and whoever has it is told of the loss."""
    blocks = True
    """It can be had for an ``async with`` block, also for that of `hold`."""
    reentrant = True
    """Who has it may take it again."""
    most = 1
    """How many may have it at a time."""
    kept: tuple[str, ...] = ()
    """The keys of the user's that it leaves."""
    key = NAME
    """What may be something else in Redis."""
    keys = LockKeys.of(NAME, "")
    scripts = LOCK

    def __repr__(self) -> str:
        return type(self).__name__.lower()

    @abstractmethod
    def of(self, client: LockClient, owner: str | None = None) -> Any:
        """The handle."""

    async def take(self, client: LockClient, wait: float | None = 0, owner: str | None = None) -> Any:
        """Take it within so many seconds; something true if it was granted."""
        return await self.of(client, owner).try_lock(wait)

    async def give(self, client: LockClient, taken: Any) -> None:
        """Give back what `take` returned."""
        await taken.release()

    async def visit(self, client: LockClient, wait: float | None = None) -> None:
        """Have it for a moment, and give it back also when cancelled, as a block does."""
        async with self.of(client) if wait is None else self.of(client).hold(wait=wait):
            await asyncio.sleep(0)

    async def obstruct(self, client: LockClient) -> Remove:
        """Be in everybody else's way, until what is returned is called."""
        remove: Remove = (await self.of(client).acquire(lease=LONG)).release
        return remove


class Lock(Kind):
    def of(self, client: LockClient, owner: str | None = None) -> Any:
        return client.lock(NAME, owner=owner)


class Fair(Kind):
    keys = LockKeys.of_fair(NAME, "")
    scripts = FAIR

    def of(self, client: LockClient, owner: str | None = None) -> Any:
        return client.fair_lock(NAME, owner=owner)


class Multi(Kind):
    def of(self, client: LockClient, owner: str | None = None) -> Any:
        return client.multi(f"{{{NAME}}}:a", NAME, f"{{{NAME}}}:b", owner=owner)

    async def obstruct(self, client: LockClient) -> Remove:
        return (await client.lock(NAME).acquire(lease=LONG)).release


class Reader(Kind):
    most = 1000
    keys = LockKeys.of_read_write(NAME, "")[0]
    scripts = READ

    def of(self, client: LockClient, owner: str | None = None) -> Any:
        return client.read_write_lock(NAME, owner=owner).read

    async def obstruct(self, client: LockClient) -> Remove:
        return (await client.read_write_lock(NAME).write.acquire(lease=LONG)).release


class Writer(Kind):
    keys = LockKeys.of_read_write(NAME, "")[1]
    scripts = WRITE

    def of(self, client: LockClient, owner: str | None = None) -> Any:
        return client.read_write_lock(NAME, owner=owner).write

    async def obstruct(self, client: LockClient) -> Remove:
        return (await client.read_write_lock(NAME).read.acquire(lease=LONG)).release


class Permit(Kind):
    reentrant = False
    kept = (NAME,)
    keys = LockKeys.of_permits(NAME, "")
    scripts = PERMIT

    def of(self, client: LockClient, owner: str | None = None) -> Any:
        return client.permit_expirable_semaphore(NAME, 1, owner=owner)

    async def take(self, client: LockClient, wait: float | None = 0, owner: str | None = None) -> Any:
        return await self.of(client, owner).try_acquire(wait=wait)


class Counted(Kind):
    expires = reentrant = False
    kept = (NAME,)
    keys = LockKeys.of_semaphore(NAME, "")
    scripts = SEMAPHORE

    def of(self, client: LockClient, owner: str | None = None) -> Any:
        return client.semaphore(NAME, 1)

    async def take(self, client: LockClient, wait: float | None = 0, owner: str | None = None) -> Any:
        return await self.of(client, owner).try_acquire(wait=wait)

    async def give(self, client: LockClient, taken: Any) -> None:
        await self.of(client).release()

    async def obstruct(self, client: LockClient) -> Remove:
        semaphore = self.of(client)
        await semaphore.acquire()
        remove: Remove = semaphore.release
        return remove


class Latch(Kind):
    """Nothing to have: it is taken by whoever waited for it, and in the way is what is still to be counted down."""

    expires = blocks = reentrant = False
    keys = LockKeys.of_latch(NAME, "")
    scripts = LATCH

    def of(self, client: LockClient, owner: str | None = None) -> Any:
        return client.count_down_latch(NAME)

    async def take(self, client: LockClient, wait: float | None = 0, owner: str | None = None) -> Any:
        return await self.of(client).wait(wait)

    async def give(self, client: LockClient, taken: Any) -> None:
        pass

    async def visit(self, client: LockClient, wait: float | None = None) -> None:
        assert await self.take(client, wait)

    async def obstruct(self, client: LockClient) -> Remove:
        latch = client.count_down_latch(NAME)
        assert await latch.try_set_count(1)
        return latch.count_down


class _UndoneError(Exception):
    """What is to be done once was not done: nothing is remembered, and the next one may do it."""


class Once(Kind):
    """
    It is taken by whoever is to run the body, and given back by failing, after which the next one runs it.

    Its block has no `hold`, and no lease or owner of its own; what is remembered of it is in `tests/test_once.py`.
    """

    expires = blocks = reentrant = False
    keys = LockKeys.of_once(NAME, "")
    key = keys.lock
    scripts = ONCE

    def of(self, client: LockClient, owner: str | None = None, wait: float | None = None) -> Any:
        return client.once(NAME, keep=LONG, wait=wait)

    async def take(self, client: LockClient, wait: float | None = 0, owner: str | None = None) -> Any:
        once = self.of(client, wait=wait)
        if await once.__aenter__():
            return once
        await once.__aexit__(None, None, None)
        return None

    async def give(self, client: LockClient, taken: Any) -> None:
        await taken.__aexit__(_UndoneError, _UndoneError(), None)

    async def visit(self, client: LockClient, wait: float | None = None) -> None:
        with suppress(_UndoneError):
            async with self.of(client, wait=wait) as turn:
                assert turn
                await asyncio.sleep(0)
                raise _UndoneError

    async def obstruct(self, client: LockClient) -> Remove:
        """By a task of its own, which runs it."""
        begun, may_end = asyncio.Event(), asyncio.Event()

        async def body() -> None:
            begun.set()
            await may_end.wait()
            raise _UndoneError

        task = asyncio.create_task(self.of(client).run(body))
        await begun.wait()

        async def remove() -> None:
            may_end.set()
            with suppress(_UndoneError):
                await task

        return remove


KINDS: tuple[Kind, ...] = (Lock(), Fair(), Multi(), Reader(), Writer(), Permit(), Counted(), Latch(), Once())
HAD = tuple(kind for kind in KINDS if not isinstance(kind, Latch))
BLOCKS = tuple(kind for kind in KINDS if kind.blocks)
LEASED = tuple(kind for kind in KINDS if kind.expires)
