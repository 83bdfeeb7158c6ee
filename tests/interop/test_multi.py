"""Several locks at once: each of them is a lock of Redisson, alone and within a multi lock of its own."""

from aiolock import LockClient
from tests.interop.service import Redisson
from tests.support.observe import until

ONE, TWO = "account:1", "account:2"


async def test_each_lock_of_several_is_one_of_redisson(locks: LockClient, redisson: Redisson) -> None:
    both = locks.multi(ONE, TWO)
    async with both:
        for name in (ONE, TWO):
            assert not await redisson.ask("tryLock", name)
        assert not await redisson.ask("tryLock", ONE, second=TWO)
    assert await redisson.ask("tryLock", TWO, second=ONE)
    for name in (ONE, TWO):
        assert await locks.lock(name).try_lock() is None
    assert await both.try_lock() is None
    await redisson.ask("unlock", TWO, second=ONE)
    assert await redisson.ask("tryLock", TWO)
    assert await both.try_lock() is None
    assert not await locks.lock(ONE).locked()


async def test_in_another_order_redisson_begins_again_and_nobody_deadlocks(
    locks: LockClient, redisson: Redisson
) -> None:
    first, both = locks.lock(ONE, owner="job"), locks.multi(ONE, TWO, owner="job")
    await first.acquire()
    locking = redisson.post("lock", TWO, second=ONE)
    await until(redisson.parked)
    lease = await both.acquire()  # Redisson has the second, waits for the first, and gives up first.
    await lease.release()
    await first.release()
    await locking
    assert await locks.lock(ONE).locked()
    assert await locks.lock(TWO).locked()
