"""Several locks as one, beside a RedissonMultiLock of the same names in the other order, and single locks of Java."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from redis.asyncio import Redis

from aiolock import AsyncMultiLock, AsyncRLock, LockClient
from aiolock._embedded_server import Server
from tests.interop.service import Redisson
from tests.interop.visits import Visits
from tests.support.observe import freed, until

NAMES = ["a", "b", "c"]
OTHER_ORDER = NAMES[::-1]


async def test_each_side_keeps_the_other_from_all_or_any(locks: LockClient, redisson: Redisson, redis: Redis) -> None:
    several = locks.multi(*NAMES)
    async with several:
        assert not await redisson.ask("tryLock", names=OTHER_ORDER)
        for name in NAMES:
            assert not await redisson.ask("tryLock", name)
    assert not await redis.exists(*NAMES)
    assert await redisson.ask("tryLock", names=OTHER_ORDER, lease=60)
    each: list[AsyncMultiLock | AsyncRLock] = [several, *map(locks.lock, NAMES)]
    for lock in each:
        assert await lock.try_lock() is None
    await redisson.ask("unlock", names=OTHER_ORDER)
    assert not await several.locked()


async def test_a_lock_that_the_other_side_has_leaves_no_hold_of_the_others(
    locks: LockClient, redisson: Redisson, redis: Redis
) -> None:
    for name in NAMES:
        await redisson.ask("lock", name)
        assert await locks.multi(*NAMES).try_lock() is None
        assert await locks.multi(*NAMES).try_lock(wait=0.05) is None
        assert await redis.exists(*NAMES) == 1
        await redisson.ask("unlock", name)
        async with locks.lock(name):
            assert not await redisson.ask("tryLock", names=OTHER_ORDER)
            assert await redis.exists(*NAMES) == 1


@pytest.mark.parametrize("how", [(NAMES, 2, 30), (OTHER_ORDER, 1, 0)], ids=["our order", "the other order"])
async def test_all_waiters_on_both_sides_get_their_turn(
    how: tuple[list[str], int, int], server: Server, redis: Redis, redisson: Redisson, tmp_path: Path
) -> None:
    """
    Threads and tasks take all locks, or one of them: there is no deadlock, and no two are inside at once. In the other
    order each side may have the lock that the other side waits for, until RedissonMultiLock gives its lock back after
    some seconds. Then one side may be the faster one many times in a row; but each has been inside in the end.
    """
    # The numbers are of threads and tasks of each kind, and of visits.
    order, each, least = how
    visits = Visits(tmp_path)

    def enough() -> bool:
        had = Counter(visit.who for visit in visits.all())
        return bool(had) and min(had["java"], had["python"]) >= least

    async with LockClient.from_url(server.url) as locks, asyncio.TaskGroup() as group:
        both: tuple[AsyncMultiLock, AsyncRLock] = (locks.multi(*NAMES), locks.lock("b"))
        mine = [lock for lock in both for _ in range(each)]
        tasks = [group.create_task(visits.visit_until_over(lock)) for lock in mine]
        its = [which for which in ({"names": order}, {"name": "b"}) for _ in range(each)]
        threads = [
            redisson.post("visit", thread=number, directory=str(tmp_path), **which) for number, which in enumerate(its)
        ]
        try:
            await until(enough, within=100)
        finally:
            visits.end()
        had = [(await thread).value for thread in threads] + [await task for task in tasks]
    assert visits.check() == sum(had)
    for name in NAMES:
        await freed(redis, name)
