"""The commands of semaphores and latches, the time for which they are tried, and ends that the server may forget."""

import asyncio
from time import monotonic

import pytest
from redis.asyncio import Redis

from aiolock import BackendError, LockClient, LockConfig
from aiolock._config import ENDED_MEMORY
from aiolock._core.queue import MOST_HAND_OFFS
from aiolock._scripts import ADD_PERMITS, COUNTING_SEMAPHORE, LATCH
from aiolock.testing import around
from tests.support.calls import Seen
from tests.support.observe import all_parked, until
from tests.support.proxy import Proxy, Rule, drop_reply, script, withhold_reply

NAME = "places"
TOKENS = f"aiolock_token:{{{NAME}}}"


async def test_a_release_of_permits_is_tried_for_no_longer_than_it_is_remembered(locks: LockClient) -> None:
    semaphore = locks.counting_semaphore(NAME, 2)
    with around(locks, Seen) as seen:
        started = monotonic()
        async with semaphore:
            pass
        await semaphore.acquire()
        await semaphore.release()
    releases = [call for call in seen.calls if call.script in {COUNTING_SEMAPHORE.release, ADD_PERMITS}]
    assert [call.script for call in releases] == [COUNTING_SEMAPHORE.release, ADD_PERMITS]
    for call in releases:
        assert ENDED_MEMORY / 2 <= call.resend_until - started < ENDED_MEMORY


async def test_a_release_without_an_answer_is_tried_on(proxy: Proxy, through: Redis, other: LockClient) -> None:
    config = LockConfig(release_timeout=0.2)
    async with LockClient(through, config=config) as locks:
        await locks.counting_semaphore(NAME, 2).acquire(2)
        proxy.black_hole()
        with pytest.raises(BackendError):
            await locks.counting_semaphore(NAME).release()
        proxy.reset_all()
        proxy.restore()

        async def is_back() -> bool:
            return await other.counting_semaphore(NAME).available() == 1

        await until(is_back, within=20)
        await until(lambda: locks.statistics().pending == 0)
        assert await other.counting_semaphore(NAME).available() == 1


async def test_an_end_that_was_sent_twice_is_not_forgotten(proxy: Proxy, through: Redis, redis: Redis) -> None:
    """Another copy of the command may still be late. The next end replaces one whose command was sent once."""
    async with LockClient(through) as locks:
        semaphore = locks.counting_semaphore(NAME, 3)
        for sent in (COUNTING_SEMAPHORE.acquire, ADD_PERMITS):
            lost = proxy.install(Rule(script(sent), drop_reply()))
            await (semaphore.acquire() if sent is COUNTING_SEMAPHORE.acquire else semaphore.release())
            await lost.caught()
        doubtful = set(await redis.zrange(TOKENS, 0, -1))
        assert len(doubtful) == 2
        for _ in range(10):
            await semaphore.acquire()
            await semaphore.release()
        ends = set(await redis.zrange(TOKENS, 0, -1))
        assert doubtful < ends
        assert len(ends) <= len(doubtful) + 2


async def test_a_latch_that_is_waited_for_in_vain_has_nothing_to_give_up(
    proxy: Proxy, through: Redis, other: LockClient
) -> None:
    await other.count_down_latch("jobs").try_set_count(1)
    async with LockClient(through) as locks:
        asked = proxy.install(Rule(script(LATCH.acquire), withhold_reply()))
        with around(locks, Seen) as seen:
            waiting = asyncio.create_task(locks.count_down_latch("jobs").wait())
            await asked.caught()
            waiting.cancel()
            await asyncio.wait([waiting])
        assert {call.script for call in seen.calls} == {LATCH.acquire}


async def test_after_so_many_bare_hand_offs_others_go_first(locks: LockClient, other: LockClient) -> None:
    """Tasks of one client could hand a permit to one another for ever, while another client waits."""
    mine = locks.counting_semaphore(NAME, 1)
    await mine.acquire()
    served: list[str] = []

    async def take(client: LockClient) -> None:
        await client.counting_semaphore(NAME).acquire()
        served.append("theirs" if client is other else "mine")
        await client.counting_semaphore(NAME).release()

    tasks = [asyncio.create_task(take(locks)) for _ in range(8 * MOST_HAND_OFFS)]
    await all_parked(locks, len(tasks))
    tasks.append(asyncio.create_task(take(other)))
    await all_parked(other, 1)
    await mine.release()
    await asyncio.wait_for(asyncio.gather(*tasks), 20)
    # The other client had a chance after each run of hand-offs.
    assert served.index("theirs") < len(tasks) - 1
