"""One key, two kinds of locks: the plain and the fair lock of a name, or the halves of a read-write lock."""

import asyncio
from collections.abc import Callable

import pytest

from aiolock import AsyncReadLock, AsyncRLock, AsyncWriteLock, LockClient, LockTimeoutError, NotHeldError

NAME = "orders"
SOON = 5.0
Lock = AsyncRLock | AsyncReadLock | AsyncWriteLock
OF: dict[str, Callable[[LockClient, str | None], Lock]] = {
    "plain": lambda locks, owner: locks.lock(NAME, owner=owner),
    "fair": lambda locks, owner: locks.fair_lock(NAME, owner=owner),
    "read": lambda locks, owner: locks.read_write_lock(NAME, owner=owner).read,
    "write": lambda locks, owner: locks.read_write_lock(NAME, owner=owner).write,
}
EXCLUSIVE = [("plain", "fair"), ("fair", "plain")]


@pytest.mark.parametrize(("first", "second"), [*EXCLUSIVE, ("read", "write"), ("write", "read")])
async def test_a_grant_tells_the_holder_of_the_other_kind_that_its_lock_is_lost(
    locks: LockClient, other: LockClient, first: str, second: str
) -> None:
    lost = await OF[first](locks, "first").acquire()
    assert await OF[first](other, None).force_release()
    held = await OF[second](locks, "second").acquire()
    async with asyncio.timeout(SOON):
        assert await lost.lost == "taken"
    held.check()
    await held.release()
    assert locks.statistics().held == 0


async def test_a_writer_that_reads_keeps_both(locks: LockClient) -> None:
    async with OF["write"](locks, None) as writing, OF["read"](locks, None) as reading:
        writing.check()
        reading.check()


@pytest.mark.parametrize(("first", "second"), EXCLUSIVE)
async def test_an_owner_that_would_wait_for_itself_is_refused(locks: LockClient, first: str, second: str) -> None:
    async with OF[first](locks, None) as lease:
        for wait in (0, None):
            with pytest.raises(RuntimeError, match=r"this owner has it as a (fair )?lock, and would wait"):
                await OF[second](locks, None).try_lock(wait)
        with pytest.raises(NotHeldError, match="the server has it for this owner"):
            await OF[second](locks, None).release()
        lease.check()
    async with OF[second](locks, None):
        pass


@pytest.mark.parametrize(("first", "second"), EXCLUSIVE)
async def test_a_wait_that_ends_names_the_holder_of_the_other_kind(locks: LockClient, first: str, second: str) -> None:
    async with OF[first](locks, "first"):
        with pytest.raises(LockTimeoutError) as late:
            async with OF[second](locks, "second").hold(wait=0.1):
                pass
    assert late.value.held_here == "owner 'first'"
