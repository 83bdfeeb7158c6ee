"""Every primitive as the contract sees it: a test takes it, gives it back, is in its way, and looks at its keys."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from aiolock import LockClient
from aiolock._keys import LockKeys
from aiolock._scripts import COUNTING_SEMAPHORE, FAIR, LATCH, LOCK, ONCE, PERMIT, READ, WRITE, Script

NAME = "it"
LONG = 60.0
Remove = Callable[[], Awaitable[object]]


class Kind(ABC):
    """One primitive; the attributes and methods here are those of a lock, and other primitives override them."""

    expires = True
    """The grant ends with a lease, and the holder is told of the loss."""
    blocks = True
    """The handle is entered by ``async with``, as is its `hold`."""
    reentrant = True
    """The holder may take the primitive again."""
    most = 1
    """The number of holders at a time."""
    kept: tuple[str, ...] = ()
    """The keys of the user's names that remain after a release."""
    key = NAME
    """The key in Redis, which may have a foreign value."""
    of_ticket: Any = None
    """The kind of the ticket, where an adopter must name it."""
    asks: tuple[tuple[Any, ...], ...] = (("locked",), ("holders",), ("force_release",))
    """Further methods of the handle that look at the key, by name and arguments."""
    keys = LockKeys.of(NAME, "")
    scripts = LOCK

    def __repr__(self) -> str:
        return type(self).__name__.lower()

    @abstractmethod
    def of(self, client: LockClient, owner: str | None = None) -> Any:
        """The handle."""

    async def take(self, client: LockClient, wait: float | None = 0, owner: str | None = None) -> Any:
        """Take the primitive within *wait* seconds; return a true value if it was granted."""
        return await self.of(client, owner).try_acquire(wait)

    async def adopt(self, client: LockClient, ticket: str) -> Any:
        """Adopt a detached hold; `give` takes the result, as it takes that of `take`."""
        return await client.adopt(ticket, kind=self.of_ticket)

    async def give(self, client: LockClient, taken: Any) -> None:
        """Release the result of `take`."""
        await taken.release()

    async def visit(self, client: LockClient, wait: float | None = None) -> None:
        """Take the primitive for a moment, and give it back, also when cancelled, as a block does."""
        async with self.of(client) if wait is None else self.of(client).hold(wait=wait):
            await asyncio.sleep(0)

    async def obstruct(self, client: LockClient, lease: float = LONG) -> Remove:
        """Be in the way of others until the returned function is called or, if the kind expires, the *lease* ends."""
        remove: Remove = (await self.of(client).acquire(lease=lease)).release
        return remove

    @property
    def releases(self) -> tuple[Script, ...]:
        """The scripts that may give the primitive back."""
        return (self.scripts.release, self.scripts.release_clean)

    @property
    def rival(self) -> "Kind":
        """The handle that is refused to all others while there is a holder."""
        return self


ASKS_OF_ONE = (("locked",), ("holder",), ("hold_count",), ("remaining",), ("force_release",))


class Lock(Kind):
    asks = ASKS_OF_ONE

    def of(self, client: LockClient, owner: str | None = None) -> Any:
        return client.lock(NAME, owner=owner)


class Fair(Kind):
    asks = ASKS_OF_ONE
    keys = LockKeys.of_fair(NAME, "")
    scripts = FAIR

    def of(self, client: LockClient, owner: str | None = None) -> Any:
        return client.fair_lock(NAME, owner=owner)


class Multi(Kind):
    of_ticket = "multi_lock"

    def of(self, client: LockClient, owner: str | None = None) -> Any:
        return client.multi(f"{{{NAME}}}:a", NAME, f"{{{NAME}}}:b", owner=owner)

    async def obstruct(self, client: LockClient, lease: float = LONG) -> Remove:
        return (await client.lock(NAME).acquire(lease=lease)).release


class Reader(Kind):
    most = 1000
    keys = LockKeys.of_read_write(NAME, "")[0]
    scripts = READ

    def of(self, client: LockClient, owner: str | None = None) -> Any:
        return client.read_write_lock(NAME, owner=owner).read

    async def obstruct(self, client: LockClient, lease: float = LONG) -> Remove:
        return (await client.read_write_lock(NAME).write.acquire(lease=lease)).release

    @property
    def rival(self) -> Kind:
        return Writer()


class Writer(Kind):
    asks = ASKS_OF_ONE
    keys = LockKeys.of_read_write(NAME, "")[1]
    scripts = WRITE

    def of(self, client: LockClient, owner: str | None = None) -> Any:
        return client.read_write_lock(NAME, owner=owner).write

    async def obstruct(self, client: LockClient, lease: float = LONG) -> Remove:
        return (await client.read_write_lock(NAME).read.acquire(lease=lease)).release


class Permit(Kind):
    reentrant = False
    kept = (NAME,)
    asks = (("available",), ("acquired",), ("holders",), ("force_release",), ("set_permits", 3), ("add_permits", 1))
    keys = LockKeys.of_permits(NAME, "")
    scripts = PERMIT

    def of(self, client: LockClient, owner: str | None = None) -> Any:
        return client.semaphore(NAME, 1, owner=owner)


class Counted(Kind):
    expires = reentrant = False
    kept = (NAME,)
    asks = (("available",), ("drain",), ("release",), ("add_permits", 1), ("try_set_permits", 1))
    keys = LockKeys.of_counting_semaphore(NAME, "")
    scripts = COUNTING_SEMAPHORE

    def of(self, client: LockClient, owner: str | None = None) -> Any:
        return client.counting_semaphore(NAME, 1)

    async def give(self, client: LockClient, taken: Any) -> None:
        await self.of(client).release()

    async def obstruct(self, client: LockClient, lease: float = LONG) -> Remove:
        semaphore = self.of(client)
        await semaphore.acquire()
        remove: Remove = semaphore.release
        return remove


class Latch(Kind):
    """A latch has a count and no holder: a taker waits for it to open, and the rest of the count is in the way."""

    expires = blocks = reentrant = False
    asks = (("count",), ("count_down",), ("delete",), ("try_set_count", 1))
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

    async def obstruct(self, client: LockClient, lease: float = LONG) -> Remove:
        latch = client.count_down_latch(NAME)
        assert await latch.try_set_count(1)
        return latch.count_down


class _UndoneError(Exception):
    """The body did not complete: nothing is remembered, and the next caller may run the body."""


class Once(Kind):
    """
    A caller that runs the body has taken the primitive, and gives it back by failing, so that the next caller runs it.

    Its block has no `hold`, and no lease or owner of its own; `tests/test_once.py` is about the remembered outcome.
    """

    expires = blocks = reentrant = False
    asks = ()
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

    async def obstruct(self, client: LockClient, lease: float = LONG) -> Remove:
        """A task of its own runs the body until the body is told to end."""
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
each_kind = pytest.mark.parametrize("kind", KINDS, ids=repr)
each_had = pytest.mark.parametrize("kind", HAD, ids=repr)
each_block = pytest.mark.parametrize("kind", BLOCKS, ids=repr)
each_leased = pytest.mark.parametrize("kind", LEASED, ids=repr)
