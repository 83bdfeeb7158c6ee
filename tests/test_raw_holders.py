"""A lock whose holder wrote bytes into Redis that are no text: it is somebody's all the same."""

import asyncio
import pickle

import pytest
from redis.asyncio import Redis

from aiolock import AsyncRLock, LockClient, LockTimeoutError, NotHeldError

NAME = "raw"
HOLDERS = [b"\xff\xfe:\xfd", b"\xff", b"caf\xe9:named:\xe9", b"\x00\r\n:\x00", b":", b""]


@pytest.fixture(params=HOLDERS, ids=repr)
async def field(request: pytest.FixtureRequest, redis: Redis) -> bytes:
    """The name of the holder; the lock is held twice, for a minute."""
    name: bytes = request.param
    await redis.hset(NAME, name, "2")
    await redis.pexpire(NAME, 60_000)
    return name


@pytest.fixture
def lock(locks: LockClient, field: bytes) -> AsyncRLock:
    return locks.lock(NAME)


async def test_it_is_locked_by_another_holder(lock: AsyncRLock) -> None:
    assert await lock.locked()
    assert not await lock.held()
    assert await lock.hold_count() == 0
    assert 50 < (await lock.remaining() or 0) <= 60


async def test_holder_shows_as_much_of_a_foreign_id_as_it_can(lock: AsyncRLock, field: bytes) -> None:
    holder = await lock.holder()
    assert holder is not None
    assert holder.holds == 2
    assert 50 < holder.remaining <= 60
    assert (holder.host, holder.pid, holder.client_name) == (None, None, None)
    client, _, owner = field.decode(errors="replace").partition(":")
    assert (holder.client, holder.owner) == (client, owner.removeprefix("named:"))


async def test_a_release_without_a_hold_names_the_holder(lock: AsyncRLock) -> None:
    with pytest.raises(NotHeldError, match="holds it") as refused:
        await lock.release()
    assert refused.value.holder is not None
    assert refused.value.holder.holds == 2
    str(refused.value).encode()
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)


async def test_it_is_waited_for_and_left_alone(lock: AsyncRLock, redis: Redis, field: bytes) -> None:
    assert await lock.try_lock() is None
    with pytest.raises(LockTimeoutError):
        async with lock.hold(wait=0.05):
            pytest.fail("entered")
    assert await redis.hgetall(NAME) == {field: b"2"}


async def test_it_is_granted_when_that_lease_is_over(lock: AsyncRLock, redis: Redis) -> None:
    await redis.pexpire(NAME, 200)
    async with asyncio.timeout(5), lock as lease:
        assert lease.holds == 1


async def test_it_can_be_released_by_force(lock: AsyncRLock, redis: Redis) -> None:
    assert await lock.force_release()
    assert not await redis.exists(NAME)
