"""Holds: what a client remembers of the locks it lost, and for how long."""

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

import aiolock._core.leases
from aiolock import LeaseLostError, LockClient, NotHeldError
from tests.support.inside import session_of
from tests.support.observe import until


@pytest.fixture
async def locks(redis: Redis) -> AsyncIterator[LockClient]:
    async with LockClient(redis) as locks:
        yield locks


async def lose(locks: LockClient, owner: str, name: str = "a") -> None:
    """Let a named owner acquire a lock and lose it."""
    lease = await locks.lock(name, owner=owner).acquire()
    assert await locks.lock(name).force_release()
    assert lease.lost.is_set()


async def release_error(locks: LockClient, owner: str, name: str = "a") -> type[Exception]:
    with pytest.raises((LeaseLostError, NotHeldError)) as raised:
        await locks.lock(name, owner=owner).release()
    return raised.type


async def test_a_loss_is_remembered_until_it_is_given_back(locks: LockClient) -> None:
    await lose(locks, "worker", "a")
    await lose(locks, "worker", "b")
    assert await release_error(locks, "another", "a") is NotHeldError
    assert await release_error(locks, "worker", "a") is LeaseLostError
    assert await release_error(locks, "worker", "a") is NotHeldError
    assert await release_error(locks, "worker", "b") is LeaseLostError
    assert not session_of(locks).leases._lost


async def test_a_grant_makes_an_earlier_loss_of_its_owner_forgotten(locks: LockClient) -> None:
    await lose(locks, "worker")
    await locks.lock("a", owner="worker").acquire()
    await locks.lock("a", owner="worker").release()
    assert await release_error(locks, "worker") is NotHeldError


async def test_a_grant_to_another_owner_tells_that_the_earlier_hold_is_lost(redis: Redis, locks: LockClient) -> None:
    lost = await locks.lock("a", owner="worker").acquire(lease=20)
    await redis.flushdb()
    held = await locks.lock("a", owner="another").try_lock(lease=20)
    assert held is not None
    assert lost.lost.is_set()
    assert locks.statistics().held == 1
    await held.release()
    assert await release_error(locks, "worker") is LeaseLostError


async def test_giving_an_earlier_loss_back_leaves_a_later_one_remembered(locks: LockClient) -> None:
    earlier = await locks.lock("a", owner="worker").acquire()
    await locks.lock("a").force_release()
    await lose(locks, "worker")
    with pytest.raises(LeaseLostError):
        await earlier.release()
    assert await release_error(locks, "worker") is LeaseLostError


async def test_the_oldest_losses_are_forgotten_when_there_are_too_many(
    locks: LockClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aiolock._core.leases, "REMEMBERED_LOSSES", 3)
    for number in range(6):
        await lose(locks, f"worker {number}")
    errors = [await release_error(locks, f"worker {number}") for number in range(6)]
    assert errors == [NotHeldError] * 3 + [LeaseLostError] * 3


async def test_nothing_is_known_of_a_name_that_nobody_uses(locks: LockClient) -> None:
    for number in range(5):
        async with locks.lock(f"name {number}"):
            pass
    await lose(locks, "worker")
    await until(lambda: locks.statistics().pending == 0)
    assert list(session_of(locks).entries) == []
