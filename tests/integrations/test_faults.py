"""The faults of `aiolock.testing`: each does what its name says, and leaves nothing behind."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from redis.asyncio import Redis

from aiolock import BackendError, Lease, LeaseLostError, LockClient, NotHeldError, blocking
from aiolock._embedded_server import Server
from aiolock.testing import delayed_renewals, failing_commands, lose
from tests.support.holding import Holder, lock_client
from tests.support.inside import backend_of, hold_of, session_of
from tests.support.observe import answered, until

LEASE = 1.5
# More locks than one script renews.
SEVERAL = [f"a:{number}" for number in range(40)]


async def take_several(locks: LockClient) -> list[Lease]:
    """Locks that are due at the same moment, and so are renewed together."""
    leases = await asyncio.gather(*(take(locks, name) for name in SEVERAL))
    await until_all_renewed(locks, SEVERAL)
    return leases


async def take(locks: LockClient, name: str) -> Lease:
    return await locks.lock(name, owner="all of them").acquire()


async def until_all_renewed(locks: LockClient, names: list[str]) -> None:
    """Wait until each of them has been renewed once more."""
    wanted = {name: locks.lock(name).statistics().renewals + 1 for name in names}
    await until(lambda: all(locks.lock(name).statistics().renewals >= wanted[name] for name in names), within=30)


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


async def test_readers_and_permits_are_lost_all_of_them(locks: LockClient) -> None:
    """A handle may stand in place of a name; a writer who reads loses both halves."""
    one, another = (locks.read_write_lock("a", owner=owner) for owner in ("one", "another"))
    leases = [await one.write.acquire(), await one.read.acquire(), await one.read.acquire()]
    await lose(locks, one.read)
    assert [lease.lost.is_set() for lease in leases] == [True] * 3
    leases = [await one.read.acquire(), await another.read.acquire()]
    await lose(locks, another.read)
    assert [lease.lost.is_set() for lease in leases] == [True] * 2
    semaphore = locks.semaphore("b", 2)
    leases = [await semaphore.acquire(), await semaphore.acquire()]
    await lose(locks, semaphore)
    assert [lease.lost.is_set() for lease in leases] == [True] * 2
    assert await semaphore.available() == 2
    with pytest.raises(NotHeldError, match="'a'"):
        await lose(locks, one.write)


LEASED: dict[str, Callable[[LockClient], Any]] = {
    "lock": lambda locks: locks.lock("a"),
    "multi": lambda locks: locks.multi("a", locks.read_write_lock("b").read, locks.semaphore("c", 1)),
    "read": lambda locks: locks.read_write_lock("a").read,
    "write": lambda locks: locks.read_write_lock("a").write,
    "permits": lambda locks: locks.semaphore("a", 1),
}
each_leased = pytest.mark.parametrize("of", LEASED.values(), ids=LEASED)
BLOCKS = {**LEASED, "counting semaphore": lambda locks: locks.counting_semaphore("a", 1)}
each_block = pytest.mark.parametrize("of", BLOCKS.values(), ids=BLOCKS)


@each_leased
async def test_every_primitive_with_a_lease_can_be_lost(of: Callable[[LockClient], Any], locks: LockClient) -> None:
    with pytest.raises(LeaseLostError):
        async with of(locks) as lease:
            await lose(locks, of(locks))
            assert lease.lost.is_set()
            await asyncio.sleep(60)
    assert locks.statistics().held == 0
    with pytest.raises(NotHeldError):
        await lose(locks, of(locks))
    async with of(locks):
        pass


async def test_all_members_are_lost_or_the_named_one(locks: LockClient, redis: Redis) -> None:
    permits = locks.semaphore("c", 2)
    several = locks.multi("a", "b", permits)
    lease = await several.acquire()
    # The client asks at once, and the renewals would come a second later.
    async with asyncio.timeout(9):
        await lose(locks, several)
    assert [each.lost.is_set() for each in lease.leases.values()] == [True] * 3
    assert not await redis.exists("a", "b", "c")
    for name, lock in (("b", "b"), ("c", permits)):
        lease = await several.acquire()
        await lose(locks, lock)
        assert [name for name, each in lease.leases.items() if each.lost.is_set()] == [name]
        with pytest.raises(LeaseLostError, match=f"'{name}'"):
            await lease.release()


async def test_each_of_two_clients_loses_its_own_members(locks: LockClient, other: LockClient) -> None:
    several = locks.multi("a", other.lock("b"))
    lease = await several.acquire()
    await lose(locks, several)
    assert {name: each.lost.is_set() for name, each in lease.leases.items()} == {"a": True, "b": False}
    await lose(other, several)
    assert lease.leases["b"].lost.is_set()


async def test_readers_and_the_writer_lose_a_read_write_lock(locks: LockClient) -> None:
    lock, another = (locks.read_write_lock("a", owner=owner) for owner in ("one", "another"))
    leases = [await lock.write.acquire(), await lock.read.acquire()]
    await leases[0].release()
    leases = [leases[1], await another.read.acquire()]
    await lose(locks, lock)
    assert [lease.lost.is_set() for lease in leases] == [True] * 2
    leases = [await lock.write.acquire(), await lock.read.acquire()]
    await lose(locks, another)
    assert [lease.lost.is_set() for lease in leases] == [True] * 2
    alone = await lock.write.acquire()
    await lose(locks, another)
    assert alone.lost.is_set()
    with pytest.raises(NotHeldError, match="'a'"):
        await lose(locks, lock)


async def test_a_leader_and_the_runner_of_a_body_can_be_lost(locks: LockClient) -> None:
    term = await locks.leader("a").try_lead()
    assert term is not None
    await lose(locks, locks.leader("a"))
    assert term.lost.is_set()
    once = locks.once("b", keep=60)
    with pytest.raises(LeaseLostError):
        async with once as turn:
            await lose(locks, once)
            assert turn.lease is not None
            turn.lease.check()


async def test_faults_are_for_asynchronous_clients(server: Server) -> None:
    client: Any = blocking.LockClient.from_url(server.url)
    words = r"an aiolock\.LockClient, not in <blocking LockClient"
    with pytest.raises(TypeError, match=words):
        await lose(client, "a")
    with pytest.raises(TypeError, match=words), failing_commands(client):
        pass


async def test_a_primitive_without_a_lease_is_refused(locks: LockClient) -> None:
    semaphore = locks.counting_semaphore("a", 2)
    async with semaphore:
        lease = await locks.lock("c").acquire()
        for wrong in (semaphore, locks.count_down_latch("b"), semaphore.hold, 7, lease):
            with pytest.raises(TypeError, match="a name, or the handle of a primitive that has leases, not"):
                await lose(locks, wrong)  # type: ignore[arg-type]
        assert await semaphore.available() == 1


@each_block
async def test_commands_of_every_kind_fail(of: Callable[[LockClient], Any], locks: LockClient) -> None:
    """No call is answered, but a lock that was asked for is not held, and a lock that was released is free."""
    block = of(locks)
    with failing_commands(locks, None), pytest.raises(BackendError):
        async with block:
            pytest.fail("it was granted")
    await answered(locks)
    assert not await block.locked()
    with pytest.raises(BackendError):
        async with block.hold():
            faults = failing_commands(locks, None)
            faults.__enter__()
    faults.__exit__(None, None, None)
    await answered(locks)
    assert not await block.locked()
    async with of(locks):
        pass


async def test_a_latch_is_counted_down_though_nobody_hears_of_it(locks: LockClient) -> None:
    latch = locks.count_down_latch("a")
    await latch.try_set_count(2)
    with failing_commands(locks, 2):
        with pytest.raises(BackendError):
            await latch.wait()
        with pytest.raises(BackendError):
            await latch.count_down()
    await answered(locks)
    assert await latch.count() == 1


async def test_delayed_renewals_cost_every_primitive_that_has_a_lease(redis: Redis, server: Server) -> None:
    async with lock_client(server.url, lease=LEASE) as locks:
        granted = [
            await locks.lock("a").acquire(),
            await locks.read_write_lock("b").read.acquire(),
            await locks.read_write_lock("c").write.acquire(),
            await locks.semaphore("d", 1).acquire(),
            *(await locks.multi("e", locks.semaphore("f", 1)).acquire()).leases.values(),
        ]
        with delayed_renewals(locks):
            async with locks.counting_semaphore("g", 1):
                assert await asyncio.gather(*(reason(lease) for lease in granted)) == ["unreachable"] * len(granted)
        assert await locks.counting_semaphore("g").available() == 1


async def test_other_locks_are_kept(locks: LockClient) -> None:
    async with locks.lock("b") as lease:
        await locks.lock("a").acquire()
        await lose(locks, "a")
        lease.check()


async def test_one_of_several_that_are_renewed_together_is_lost_alone(redis: Redis, server: Server) -> None:
    async with lock_client(server.url, lease=30, renew_interval=0.1, command_timeout=10) as locks:
        leases = await take_several(locks)
        await lose(locks, SEVERAL[3])
        assert [lease.name for lease in leases if lease.lost.is_set()] == [SEVERAL[3]]
        assert not await redis.exists(SEVERAL[3])
        await until_all_renewed(locks, [name for name in SEVERAL if name != SEVERAL[3]])
        assert (locks.statistics().held, locks.statistics().losses) == (len(SEVERAL) - 1, 1)
        async with locks.lock(SEVERAL[3]):
            pass


async def test_a_lock_that_is_released_meanwhile_is_not_waited_for(locks: LockClient) -> None:
    lease = await locks.lock("a").acquire()
    losing = asyncio.create_task(lose(locks, "a"))
    await asyncio.sleep(0)
    with suppress(LeaseLostError):
        await lease.release()
    await asyncio.wait_for(losing, 30)


async def test_only_a_lock_that_is_held_here_can_be_lost(locks: LockClient, other: LockClient) -> None:
    with pytest.raises(NotHeldError):
        await lose(locks, "a")
    async with other.lock("a") as lease:
        with pytest.raises(NotHeldError):
            await lose(locks, "a")
        lease.check()
    async with locks.fair_lock("a") as lease:
        with pytest.raises(NotHeldError, match="pass the handle of another kind"):
            await lose(locks, "a")
        lease.check()


@pytest.mark.parametrize("max_stall", [0, 600])
async def test_a_lease_whose_renewals_are_delayed_for_too_long_is_lost(
    redis: Redis, server: Server, max_stall: float
) -> None:
    config = {"lease": LEASE, "max_stall": max_stall}
    async with lock_client(server.url, **config) as locks, Holder(locks.lock("a")) as holder:
        with delayed_renewals(locks):
            error = await holder.lost(within=30)
        assert error.reason == "unreachable"
        holder.go_on.set()
        await holder.task
        async with locks.lock("a") as lease:
            await until(lambda: locks.statistics().renewals >= 2, within=30)
            lease.check()


async def test_renewals_that_are_delayed_arrive_in_the_end(redis: Redis, server: Server) -> None:
    async with lock_client(server.url, lease=9, renew_interval=0.05) as locks, locks.lock("a") as lease:
        await until(lambda: locks.statistics().renewals > 0)
        with delayed_renewals(locks):
            before = locks.statistics().renewals
            await asyncio.sleep(0.3)
            # One renewal may have been on its way.
            assert locks.statistics().renewals <= before + 1
        await until(lambda: locks.statistics().renewals > before + 1)
        lease.check()
        assert locks.statistics().losses == 0


async def test_the_renewals_of_several_are_delayed_and_all_arrive_in_the_end(redis: Redis, server: Server) -> None:
    async with lock_client(server.url, lease=300, command_timeout=30) as locks:
        leases = await asyncio.gather(*(take(locks, name) for name in SEVERAL))
        with delayed_renewals(locks):
            session_of(locks).check_holds(lambda key: True)
            await until(lambda: all(hold_of(lease).watch.asked for lease in leases))
            await answered(locks)
            assert locks.statistics().renewals == 0
        await until_all_renewed(locks, SEVERAL)
        assert locks.statistics().losses == 0


async def test_leases_renewed_together_are_all_lost_when_their_renewals_are_delayed_for_too_long(
    redis: Redis, server: Server
) -> None:
    async with lock_client(server.url, lease=2 * LEASE) as locks:
        with delayed_renewals(locks):
            leases = await asyncio.gather(*(take(locks, name) for name in SEVERAL))
            reasons = await asyncio.wait_for(asyncio.gather(*(reason(lease) for lease in leases)), 30)
        assert set(reasons) == {"unreachable"}
        assert locks.statistics().losses == len(SEVERAL)


async def reason(lease: Lease) -> str:
    return await lease.lost


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


async def test_the_wanted_number_of_commands_fail(locks: LockClient) -> None:
    outcomes: list[bool | None] = []
    with failing_commands(locks, 2):
        for _ in range(4):
            try:
                outcomes.append(await locks.lock("a").locked())
            except BackendError:
                outcomes.append(None)
    assert outcomes == [None, None, False, False]


@pytest.mark.parametrize("most", [0, -1, True, 1.5, "x"])
async def test_a_count_of_failures_that_makes_no_sense_is_refused(locks: LockClient, most: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="most must be"), failing_commands(locks, most):
        pass


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


async def test_a_renewal_of_several_that_fails_costs_none_of_them(redis: Redis, server: Server) -> None:
    async with lock_client(server.url, lease=30, renew_interval=0.1, command_timeout=10) as locks:
        leases = await take_several(locks)
        with failing_commands(locks, 3):
            await until_all_renewed(locks, SEVERAL)
        for lease in leases:
            lease.check()
        assert locks.statistics().losses == 0


@pytest.mark.parametrize("max_stall", [0, 600])
async def test_a_lease_whose_renewals_all_fail_is_lost(redis: Redis, server: Server, max_stall: float) -> None:
    async with lock_client(server.url, lease=LEASE, max_stall=max_stall) as locks:
        with pytest.raises(LeaseLostError):
            async with locks.lock("a"):
                with failing_commands(locks, None):
                    await asyncio.sleep(60)
        assert not await locks.lock("a").locked()


async def test_faults_can_be_had_together_and_leave_nothing(locks: LockClient, redis: Redis) -> None:
    usual = backend_of(locks)
    with delayed_renewals(locks), failing_commands(locks):
        with pytest.raises(BackendError):
            await locks.lock("a").acquire()
        await locks.lock("a").acquire()
        await locks.lock("a").release()
    assert backend_of(locks) is usual
    assert (locks.statistics().held, locks.statistics().pending) == (0, 0)
