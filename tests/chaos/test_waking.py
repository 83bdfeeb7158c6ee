"""Waking: a waiter is woken by the unlock message, one per unlock, and an idle one costs the server nothing."""

import asyncio
from time import monotonic

import pytest
from redis.asyncio import Redis

from aiolock import LockClient
from aiolock._embedded_server import Server
from tests.support.observe import answered, commandstats, pubsub_channels, subscribed_clients, until
from tests.support.waiters import Waiters, parked

NAME = "waking"
CHANNEL = f"redisson_lock__channel:{{{NAME}}}"
COUNTS = (1, 1000)


@pytest.mark.parametrize("count", COUNTS)
async def test_parked_waiters_share_one_subscription_and_send_nothing_while_idle(
    redis: Redis, locks: LockClient, other: LockClient, count: int
) -> None:
    await other.lock(NAME, owner="long").acquire(lease=60)
    async with Waiters(locks, NAME) as waiters:
        await waiters.park(count)
        assert await redis.pubsub_numsub(CHANNEL) == [(CHANNEL.encode(), 1)]
        assert len(await subscribed_clients(redis)) == 1
        assert locks.statistics().subscriptions == waiters.lock.statistics().subscriptions == 1
        assert locks.statistics().connections <= 3
        before = await commandstats(redis)
        await asyncio.sleep(2)
        after = await commandstats(redis)
        assert after.pop("info") == before.pop("info") + 1
        assert after == before


@pytest.mark.parametrize("count", COUNTS)
async def test_each_unlock_elsewhere_wakes_one_waiter(
    redis: Redis, locks: LockClient, other: LockClient, count: int
) -> None:
    theirs = other.lock(NAME)
    await theirs.acquire(lease=60)
    async with Waiters(locks, NAME) as waiters:
        await waiters.park(count)
        before = locks.statistics().commands
        await theirs.release()
        await waiters.granted(1)
        await answered(locks)
        assert locks.statistics().commands == before + 1
        assert waiters.order == [0]
        assert waiters.lock.statistics().parked == count - 1


async def test_waiters_get_the_lock_in_order_also_when_another_process_takes_part(
    locks: LockClient, other: LockClient
) -> None:
    theirs = other.lock(NAME)
    await theirs.acquire(lease=60)

    async def take_part() -> None:
        while True:
            async with theirs:
                pass
            await asyncio.sleep(0.001)

    async with Waiters(locks, NAME, go=True) as waiters:
        await waiters.park(100)
        rival = asyncio.create_task(take_part())
        await theirs.release()
        await asyncio.wait(waiters.tasks, timeout=20)
        rival.cancel()
        await asyncio.wait([rival])
        assert waiters.order == list(range(100))


async def test_a_newcomer_queues_behind_parked_waiters_and_asks_nothing(locks: LockClient, other: LockClient) -> None:
    async with parked(locks, other, NAME, 3) as (_, waiters):
        before = locks.statistics().commands
        await waiters.park(1)
        assert await locks.lock(NAME).try_lock(0.05) is None
        assert locks.statistics().commands == before


async def test_try_lock_without_waiting_asks_the_server_once_even_when_others_are_parked(
    locks: LockClient, other: LockClient
) -> None:
    async with parked(locks, other, NAME, 3):
        before = locks.statistics()
        assert await locks.lock(NAME).try_lock() is None
        after = locks.statistics()
        assert after.commands == before.commands + 1
        assert after.parked == before.parked == 3


@pytest.mark.parametrize(("protocol", "decode"), [(2, False), (3, True)])
async def test_waking_does_not_depend_on_how_the_users_client_is_set_up(
    server: Server, redis: Redis, other: LockClient, protocol: int, decode: bool
) -> None:
    theirs = other.lock(NAME)
    await theirs.acquire(lease=60)
    user = Redis.from_url(server.url, protocol=protocol, decode_responses=decode)
    async with LockClient(user) as locks, Waiters(locks, NAME, go=True) as waiters:
        await waiters.park(3)
        await theirs.release()
        await waiters.granted(3)
        await asyncio.wait(waiters.tasks)
        assert waiters.order == [0, 1, 2]
    await user.aclose()


async def test_waiters_that_time_out_leave_the_others_in_their_places(locks: LockClient, other: LockClient) -> None:
    theirs = other.lock(NAME)
    await theirs.acquire(lease=60)
    impatient = [asyncio.create_task(_try(locks, 1)) for _ in range(5)]
    await until(lambda: locks.statistics().parked == 5)
    async with Waiters(locks, NAME) as waiters:
        await waiters.park(2)
        assert await asyncio.gather(*impatient) == [False] * 5
        assert locks.statistics().parked == 2
        await theirs.release()
        await waiters.granted(1)
        assert waiters.order == [0]


async def _try(locks: LockClient, wait: float) -> bool:
    return await locks.lock(NAME).try_lock(wait) is not None


async def test_a_section_costs_about_two_commands_when_local_tasks_compete(redis: Redis, locks: LockClient) -> None:
    lock = locks.lock(NAME)

    async def work() -> None:
        for _ in range(10):
            async with lock:
                pass

    async with asyncio.TaskGroup() as group:
        for _ in range(50):
            group.create_task(work())
    await answered(locks)
    # Each task asks once more at the beginning, as none was parked yet.
    assert locks.statistics().commands <= 2.2 * 500 + 50
    assert locks.statistics().hand_offs > 400
    assert await pubsub_channels(redis) <= {CHANNEL}


async def test_local_hand_offs_give_way_to_other_processes(locks: LockClient, other: LockClient) -> None:
    turns = {"ours": 0, "theirs": 0}
    done = asyncio.Event()

    async def work(client: LockClient, who: str, enough: int) -> None:
        while not done.is_set():
            async with client.lock(NAME):
                turns[who] += 1
                await asyncio.sleep(0)
            if turns["theirs"] >= enough:
                done.set()

    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        for _ in range(20):
            group.create_task(work(locks, "ours", 10))
        await until(lambda: locks.statistics().hand_offs > 5)
        group.create_task(work(other, "theirs", 10))
    assert turns["theirs"] >= 10
    assert turns["ours"] >= 10


async def test_a_release_of_a_lost_lock_does_not_make_the_next_message_unheard(
    redis: Redis, locks: LockClient, other: LockClient
) -> None:
    ours = await locks.lock(NAME, owner="first").acquire()
    async with Waiters(locks, NAME) as waiters:
        await waiters.park(1)
        await redis.delete(NAME)
        theirs = other.lock(NAME)
        assert await theirs.try_lock(lease=60)
        with pytest.raises(Exception, match="another owner"):
            await ours.release()
        await until(waiters.quiet)
        released = monotonic()
        await theirs.release()
        await waiters.granted(1)
        assert monotonic() - released < 5
