"""AsyncRLock and the client that it comes from, call by call."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

import pytest
from redis.asyncio import Redis

from aiolock import AsyncRLock, LeaseLostError, LockClient, LockConfig, LockTimeoutError, NotHeldError
from aiolock._embedded_server import Server
from tests.support.observe import until

T = TypeVar("T")


async def elsewhere(ask: Callable[[], Awaitable[T]]) -> T:
    """The answer in a task of its own: that of another owner."""

    async def asking() -> T:
        return await ask()

    return await asyncio.create_task(asking())


async def count_in(redis: Redis, name: str = "orders") -> list[int]:
    """The hold counts that the server has, of any owner."""
    fields: dict[Any, Any] = await redis.hgetall(name)
    return [int(value) for field, value in fields.items() if not field.startswith(b"aiolock:")]


async def test_the_lock_is_reentrant_and_its_count_lives_in_redis(lock: AsyncRLock, redis: Redis) -> None:
    leases = [await lock.acquire() for _ in range(3)]
    assert await count_in(redis) == [3]
    assert len({lease.token for lease in leases}) == 1, "one acquisition, one token"
    for left in (2, 1):
        await lock.release()
        assert await count_in(redis) == [left]
        assert await elsewhere(lock.try_lock) is None
    await lock.release()
    assert not await lock.locked()


async def test_another_task_is_another_owner(lock: AsyncRLock) -> None:
    async with lock:
        assert await elsewhere(lock.try_lock) is None
        assert (await elsewhere(lock.held), await elsewhere(lock.hold_count)) == (False, 0)
        assert await elsewhere(lock.locked)


async def test_every_handle_of_a_name_is_the_same_lock(locks: LockClient, lock: AsyncRLock) -> None:
    async with lock:
        assert await locks.lock("orders").hold_count() == 1
        async with locks.lock("orders"):
            assert await lock.hold_count() == 2
        assert await elsewhere(locks.lock("orders").try_lock) is None
        assert await elsewhere(lambda: locks.lock("orders:2").locked()) is False


@pytest.mark.parametrize("wait", [0, 0.05, timedelta(milliseconds=50)])
async def test_try_lock_gives_none_when_the_wait_ends(locks: LockClient, lock: AsyncRLock, wait: Any) -> None:
    async with locks.lock("orders", owner="somebody"):
        assert await lock.try_lock(wait) is None
        assert await lock.try_lock(wait=wait, lease=1) is None
    assert lock.statistics().parked == 0


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((), {}),
        ((1, 2), {}),
        ((1, timedelta(seconds=2)), {}),
        ((None, 2.0), {}),
        ((), {"wait": timedelta(seconds=1), "lease": 2}),
        ((), {"wait": None}),
        ((1,), {"lease": None}),
    ],
)
async def test_try_lock_takes_a_free_lock(lock: AsyncRLock, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    lease = await lock.try_lock(*args, **kwargs)
    assert lease is not None
    fixed = (*args, None)[1] if len(args) == 2 else kwargs.get("lease")
    assert lease.lease == (30.0 if fixed is None else 2.0)
    assert lease.watched == (fixed is None)
    assert lease.lease - 1 < lease.remaining < lease.lease
    remaining = await lock.remaining()
    assert remaining is not None
    assert lease.lease - 1 < remaining <= lease.lease
    await lease.release()


@pytest.mark.parametrize("lease", [3, 3.0, timedelta(seconds=3)])
async def test_acquire_with_a_lease_of_its_own(lock: AsyncRLock, redis: Redis, lease: Any) -> None:
    held = await lock.acquire(lease=lease)
    assert (held.lease, held.watched) == (3.0, False)
    assert 2_000 < await redis.pttl("orders") <= 3_000
    await held.release()


async def test_hold_is_scoped_and_bounded(locks: LockClient, lock: AsyncRLock) -> None:
    async with lock.hold(wait=1, lease=timedelta(seconds=9)) as lease:
        assert (lease.lease, lease.watched) == (9.0, False)
    assert not await lock.locked()
    async with locks.lock("orders", owner="somebody"):
        with pytest.raises(LockTimeoutError, match="lock 'orders' was not granted within") as caught:
            async with lock.hold(0.02):
                pytest.fail("entered")
        # uvloop rounds its timers to milliseconds.
        assert 0.01 < caught.value.waited < 5
    async with lock.hold() as lease:
        assert lease.watched


async def test_a_hold_may_be_entered_again_and_nested(lock: AsyncRLock) -> None:
    hold = lock.hold(lease=5)
    async with hold, hold as lease:
        assert lease.holds == 2
    async with hold as lease:
        assert lease.holds == 1


async def test_questions_about_a_free_lock(lock: AsyncRLock) -> None:
    assert not await lock.locked()
    assert not await lock.held()
    assert await lock.hold_count() == 0
    assert await lock.remaining() is None
    assert await lock.holder() is None
    assert await lock.force_release() is False


async def test_holder_names_the_client_the_process_and_the_owner(redis: Redis) -> None:
    async with LockClient(redis, config=LockConfig(client_name="web-1", prefix="shop:")) as locks:
        lock = locks.lock("orders")
        async with lock, lock:
            holder = await elsewhere(lock.holder)
            assert holder is not None
            assert f"{holder.client}:{holder.owner}".encode() in await redis.hgetall("shop:orders")
            assert holder.holds == 2
            assert 29 < holder.remaining <= 30
            assert (holder.host, holder.pid, holder.client_name) == (socket.gethostname(), os.getpid(), "web-1")


async def test_holder_of_an_older_client_is_known_by_its_id_alone(redis: Redis, lock: AsyncRLock) -> None:
    older = str(UUID(int=7))
    fields: dict[Any, Any] = {
        f"{older}:named:job": 2,
        "aiolock:acquisition": f"{older}:3",
        "aiolock:token": 1,
        "aiolock:step": 1,
    }
    await redis.hset("orders", mapping=fields)
    await redis.pexpire("orders", 5_000)
    holder = await lock.holder()
    assert holder is not None
    assert (holder.client, holder.owner, holder.holds) == (older, "job", 2)
    assert (holder.host, holder.pid, holder.client_name) == (None, None, None)


async def test_holder_of_a_foreign_client_is_known_by_its_id_alone(lock: AsyncRLock, redis: Redis) -> None:
    await redis.hset("orders", "3f0e7bd4-uuid:52", "2")
    await redis.pexpire("orders", 5_000)
    holder = await lock.holder()
    assert holder is not None
    assert (holder.client, holder.owner, holder.holds) == ("3f0e7bd4-uuid", "52", 2)
    assert (holder.host, holder.pid, holder.client_name) == (None, None, None)


async def test_a_foreign_holder_is_waited_for_until_its_lease_ends(lock: AsyncRLock, redis: Redis) -> None:
    await redis.hset("orders", "3f0e7bd4-uuid:52", "1")
    await redis.pexpire("orders", 200)
    assert await lock.try_lock() is None
    lease = await lock.try_lock(wait=10)
    assert lease is not None
    await lease.release()


@pytest.mark.parametrize("kind", ["lock", "fair_lock"])
async def test_force_release_with_a_token_leaves_a_later_holder_alone(
    locks: LockClient, other: LockClient, kind: str
) -> None:
    lock: AsyncRLock = getattr(locks, kind)("orders")
    theirs = other.lock("orders")
    earlier = await lock.acquire()
    await lock.release()
    lease = await lock.acquire()
    assert await theirs.force_release(token=earlier.token) is False
    assert await lock.held()
    assert await theirs.force_release(token=lease.token) is True
    assert await theirs.force_release(token=lease.token) is False
    with pytest.raises(LeaseLostError, match="by force"):
        await lease.release()


@pytest.mark.parametrize("kind", ["lock", "fair_lock"])
@pytest.mark.parametrize("token", [None, 0, "1", True, 1.5])
async def test_force_release_with_a_wrong_token_frees_no_lock(locks: LockClient, kind: str, token: int) -> None:
    lock: AsyncRLock = getattr(locks, kind)("orders")
    async with lock:
        with pytest.raises(ValueError if token == 0 else TypeError, match="leave it out to free the lock"):
            await lock.force_release(token=token)
        assert await lock.held()


@pytest.mark.parametrize("holder", [None, "task", "named", "redisson"])
async def test_a_release_by_another_task_names_the_holder(
    locks: LockClient, lock: AsyncRLock, redis: Redis, holder: str | None
) -> None:
    match holder:
        case "task":
            await lock.acquire()
        case "named":
            await locks.lock("orders", owner="job-17").acquire()
        case "redisson":
            await redis.hset("orders", "3f0e7bd4:52", "1")
            await redis.pexpire("orders", 5_000)
    before = await redis.hgetall("orders")

    with pytest.raises(NotHeldError) as caught:
        await elsewhere(lock.release)

    assert await redis.hgetall("orders") == before
    found = caught.value.holder
    if holder is None:
        assert found is None
        assert "nobody holds it" in str(caught.value)
    else:
        assert found is not None
        assert f"owner {found.owner!r} of client {found.client!r} holds it" in str(caught.value)
        assert {"named": "job-17", "redisson": "52"}.get(holder, found.owner) == found.owner


async def test_the_prefix_is_put_before_every_name(redis: Redis) -> None:
    async with LockClient(redis, config=LockConfig(prefix="shop:")) as locks, locks.lock("orders") as lease:
        assert lease.name == "orders"
        assert await redis.exists("shop:orders", "aiolock_token:{shop:orders}") == 2
        assert await redis.exists("orders") == 0


async def test_all_keys_have_an_end(locks: LockClient, redis: Redis) -> None:
    async with locks.lock("a"), locks.lock("{b}"), locks.lock("c").hold(lease=5):
        keys = await redis.keys("*")
        assert len(keys) == 6
        assert all([await redis.pttl(key) > 0 for key in keys])


@pytest.mark.parametrize("address", ["url", "unix_url"])
async def test_from_url_owns_its_redis_and_closes_it(server: Server, redis: Redis, address: str) -> None:
    config = LockConfig(client_name="ours")
    client = LockClient.from_url(getattr(server, address), config=config, decode_responses=True, db=3)
    async with client as locks, locks.lock("orders"):
        names = [each["name"] for each in await redis.client_list()]
        assert "ours" in names
        assert (await redis.info("keyspace"))["db3"]["keys"] >= 2
    await until(lambda: _gone(redis))
    await redis.flushall()


async def _gone(redis: Redis) -> bool:
    return "ours" not in [each["name"] for each in await redis.client_list()]


async def test_a_client_starts_with_its_first_use(redis: Redis) -> None:
    locks = LockClient(redis)
    assert "not started" in repr(locks)
    async with locks.lock("orders"):
        assert locks.statistics().held == 1
    await locks.aclose()
    await locks.aclose()
    assert "closed" in repr(locks)


async def test_reprs_tell_name_and_state(locks: LockClient, lock: AsyncRLock) -> None:
    assert repr(lock) == "<AsyncRLock 'orders'>"
    assert repr(locks.lock("orders", owner="job-17")) == "<AsyncRLock 'orders' owner='job-17'>"
    assert lock.name == "orders"
    async with lock as lease:
        assert repr(lease).startswith(f"<Lease of 'orders', token {lease.token}, ")
        assert repr(lease.lost) == "<Loss not set>"
    assert "given back" in repr(lease)


async def test_a_wait_that_ends_names_the_task_of_this_client_that_holds_the_lock(lock: AsyncRLock) -> None:
    async def child() -> None:
        async with lock.hold(wait=0.01):
            pytest.fail("entered")

    async def parent() -> None:
        async with lock:
            await asyncio.create_task(child())

    with pytest.raises(LockTimeoutError, match="task 'parent' of this client holds it") as ended:
        await asyncio.create_task(parent(), name="parent")
    assert ended.value.held_here == "task 'parent'"
