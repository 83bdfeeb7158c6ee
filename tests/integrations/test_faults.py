"""The faults of `aiolock.testing`: each does what it says, and nothing of it is left."""

import asyncio

import pytest
from redis.asyncio import Redis

from aiolock import BackendError, LeaseLostError, LockClient, NotHeldError
from aiolock._server import Server
from aiolock.testing import delayed_renewals, failing_commands, lose
from tests.support.holding import Holder, lock_client
from tests.support.observe import until

LEASE = 1.5


async def test_a_lock_is_lost_and_its_holder_told(locks: LockClient, redis: Redis) -> None:
    async with Holder(locks.lock("a")) as holder:
        await lose(locks, "a")
        assert not await redis.exists("a")
        assert holder.leases[0].lost.is_set()
        error = await holder.lost()
        assert (error.name, error.reason, holder.cancelled) == ("a", "expired", 1)
    async with locks.lock("a"):
        pass


async def test_the_next_in_line_has_it_then(locks: LockClient) -> None:
    async def next_in_line() -> int:
        async with locks.lock("a") as lease:
            return lease.token

    lease = await locks.lock("a").acquire()
    waiter = asyncio.create_task(next_in_line())
    await until(lambda: locks.statistics().parked == 1)
    await lose(locks, "a")
    assert await waiter > lease.token


async def test_other_locks_are_kept(locks: LockClient) -> None:
    async with locks.lock("b") as lease:
        await locks.lock("a").acquire()
        await lose(locks, "a")
        lease.check()


async def test_only_what_is_held_here_can_be_lost(locks: LockClient, other: LockClient) -> None:
    with pytest.raises(NotHeldError):
        await lose(locks, "a")
    async with other.lock("a") as lease:
        with pytest.raises(NotHeldError):
            await lose(locks, "a")
        lease.check()


async def test_a_lease_whose_renewals_are_delayed_for_too_long_is_lost(redis: Redis, server: Server) -> None:
    async with lock_client(server.url, lease=LEASE) as locks, Holder(locks.lock("a")) as holder:
        with delayed_renewals(locks):
            error = await holder.lost(within=30)
        assert error.reason == "unreachable"
        holder.go_on.set()
        await holder.task
        async with locks.lock("a") as lease:  # And those that come after it live on.
            await until(lambda: locks.statistics().renewals >= 2, within=30)
            lease.check()


async def test_renewals_that_are_delayed_arrive_in_the_end(redis: Redis, server: Server) -> None:
    async with lock_client(server.url, lease=9, renew_interval=0.05) as locks, locks.lock("a") as lease:
        await until(lambda: locks.statistics().renewals > 0)
        with delayed_renewals(locks):
            before = locks.statistics().renewals
            await asyncio.sleep(0.3)
            assert locks.statistics().renewals <= before + 1  # One may have been on its way.
        await until(lambda: locks.statistics().renewals > before + 1)
        lease.check()
        assert locks.statistics().losses == 0


async def test_a_renewal_by_hand_fails_in_time(redis: Redis, server: Server) -> None:
    async with lock_client(server.url, command_timeout=1) as locks, locks.lock("a") as lease:
        with delayed_renewals(locks), pytest.raises(BackendError):
            await lease.renew()
        await lease.renew()
    assert locks.statistics().pending == 0


async def test_other_commands_are_not_delayed(locks: LockClient) -> None:
    with delayed_renewals(locks):
        async with locks.lock("a"):
            assert await locks.lock("a").held()


async def test_the_next_command_fails_and_the_one_after_it_does_not(locks: LockClient) -> None:
    with failing_commands(locks):
        with pytest.raises(BackendError):
            await locks.lock("a").acquire()
        assert not await locks.lock("a").locked()
        async with locks.lock("a"):
            pass


async def test_as_many_fail_as_are_asked_for(locks: LockClient) -> None:
    outcomes: list[bool | None] = []
    with failing_commands(locks, 2):
        for _ in range(4):
            try:
                outcomes.append(await locks.lock("a").locked())
            except BackendError:
                outcomes.append(None)
    assert outcomes == [None, None, False, False]


async def test_all_fail_until_the_block_ends(locks: LockClient) -> None:
    with failing_commands(locks, None):
        for _ in range(3):
            with pytest.raises(BackendError):
                await locks.lock("a").try_lock()
    assert await locks.lock("a").try_lock()


async def test_a_release_that_fails_is_sent_all_the_same(locks: LockClient, redis: Redis) -> None:
    await locks.lock("a").acquire()
    with failing_commands(locks), pytest.raises(BackendError):
        await locks.lock("a").release()
    await until(lambda: locks.statistics().pending == 0)
    assert not await redis.exists("a")


async def test_a_lease_whose_renewals_all_fail_is_lost(redis: Redis, server: Server) -> None:
    async with lock_client(server.url, lease=LEASE) as locks:
        with pytest.raises(LeaseLostError):
            async with locks.lock("a"):
                with failing_commands(locks, None):
                    await asyncio.sleep(60)
        assert not await locks.lock("a").locked()


async def test_faults_can_be_had_together_and_leave_nothing(locks: LockClient, redis: Redis) -> None:
    topology = locks._runtime.open_core()._backend._topology
    usual = topology.lanes_of
    with delayed_renewals(locks), failing_commands(locks):
        with pytest.raises(BackendError):
            await locks.lock("a").acquire()
        await locks.lock("a").acquire()
        await locks.lock("a").release()
    assert topology.lanes_of == usual
    assert (locks.statistics().held, locks.statistics().pending) == (0, 0)
