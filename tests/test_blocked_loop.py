"""`LockConfig.max_stall`: a thread renews the locks of a blocked event loop. `tests/stall` has more."""

import asyncio
import gc
import logging
import threading
import time
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from math import inf
from typing import Any

import pytest
from redis.asyncio import Redis

from aiolock import LeaseLostError, LockClient, LockConfig, LockEvent, Lost, NotHeldError, RenewedByThread
from aiolock._core.covered import CoveredHold, News
from aiolock._core.hold import Hold
from aiolock._embedded_server import Server
from tests.support.inside import hold_of, session_of
from tests.support.observe import until
from tests.support.onlooker import Onlooker

NAME = "orders"
LEASE = 0.8


@asynccontextmanager
async def covered(url: str, *, max_stall: float = 60, lease: float = LEASE, **config: Any) -> AsyncIterator[LockClient]:
    # These tests block the loop.
    asyncio.get_running_loop().slow_callback_duration = 600
    # Renewals come early, so that a busy machine has most of the lease for each.
    settings = {"lease": lease, "renew_interval": lease / 8, "max_stall": max_stall, "release_timeout": 10, **config}
    async with LockClient.from_url(url, config=LockConfig(**settings)) as locks:
        yield locks


def threads() -> int:
    return sum(thread.name == "aiolock" for thread in threading.enumerate())


async def test_a_body_that_blocks_the_loop_keeps_its_lock_and_the_user_is_told(
    server: Server, redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[LockEvent] = []
    with caplog.at_level(logging.WARNING, "aiolock"):
        async with covered(server.url, on_event=events.append) as locks:
            async with locks.lock(NAME) as lease:
                with Onlooker(server.url, NAME) as onlooker:
                    began = time.monotonic()
                    time.sleep(3 * LEASE)
                    # No timer has run yet: the answers that the thread heard count.
                    lease.check()
                    assert not lease.lost.is_set()
                    assert 0 < lease.remaining <= LEASE
                    blocked = time.monotonic() - began
                assert len(onlooker.acquisitions) == 1
            assert not await locks.lock(NAME).locked()
            await until(lambda: any(isinstance(event, RenewedByThread) for event in events))
    # The last report has come.
    statistics = locks.statistics()
    told = [event for event in events if isinstance(event, RenewedByThread)]
    # On a busy machine the loop may be late once more.
    assert {(event.name, event.token) for event in told} == {(NAME, lease.token)}
    assert 2 <= sum(event.renewals for event in told) == statistics.renewals_by_thread <= statistics.renewals
    assert blocked / 2 < max(event.blocked for event in told) <= blocked + LEASE
    assert statistics.losses == 0
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert f"a thread has renewed '{NAME}'" in caplog.text
    assert "max_stall" not in caplog.text


async def test_a_block_that_ends_as_the_loop_wakes_releases_its_lock(server: Server, redis: Redis) -> None:
    async with covered(server.url) as locks:
        async with locks.lock(NAME):
            time.sleep(2 * LEASE)
        assert not await redis.exists(NAME)
        # The server remembers the end: a renewal of the thread could have been on its way.
        ends = await redis.zrange(f"aiolock_token:{{{NAME}}}", 0, -1)
        assert len(ends) == 2
        assert "freed" not in str(ends)


async def test_the_thread_renews_for_max_stall_and_no_longer(
    server: Server, redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[LockEvent] = []
    max_stall = 2 * LEASE
    async with covered(server.url, max_stall=max_stall, on_event=events.append) as locks:
        with pytest.raises(LeaseLostError) as caught:
            async with locks.lock(NAME) as lease:
                with Onlooker(server.url, NAME) as onlooker:
                    began = time.monotonic()
                    time.sleep(max_stall + 2 * LEASE)
                assert lease.lost.is_set()
                with pytest.raises(LeaseLostError):
                    lease.check()
                await asyncio.sleep(10)
        assert caught.value.reason == "expired"
        # The last renewal is good for one lease; a second one is there for a busy machine.
        assert max_stall < onlooker.held_until - began < max_stall + 2 * LEASE
        assert locks.statistics().losses == 1
    assert [event.reason for event in events if isinstance(event, Lost)] == ["expired"]
    assert f"a thread has renewed '{NAME}', for no longer than `max_stall`, {max_stall:.3g} s" in caplog.text


async def test_a_lock_is_kept_however_long_none_was_held_before(server: Server, redis: Redis) -> None:
    """Without a lock nobody asks whether the loop runs."""
    async with covered(server.url) as locks, locks.lock(NAME) as lease:
        stand_in = session_of(locks).stand_in
        assert stand_in is not None
        stand_in._heard -= 3600
        time.sleep(2 * LEASE)
        lease.check()


@pytest.mark.parametrize("max_stall", [0, 60])
async def test_every_place_gives_the_same_reason_when_a_stall_ends_without_a_server(max_stall: float) -> None:
    with Server() as dead:
        async with covered(dead.url, max_stall=max_stall, release_timeout=0.5) as locks:
            with pytest.raises(LeaseLostError) as caught:
                async with locks.lock(NAME) as lease:
                    dead.kill()
                    if not max_stall:
                        await until(lambda: hold_of(lease).watch.unanswered > 0)
                    time.sleep(2 * LEASE)
                    with pytest.raises(LeaseLostError) as seen:
                        lease.check()
                    shown = repr(lease.lost)
                    await asyncio.sleep(10)
    assert (seen.value.reason, shown, caught.value.reason) == ("unreachable", "<Loss unreachable>", "unreachable")


async def test_a_loss_that_the_thread_hears_of_keeps_its_reason(server: Server, redis: Redis) -> None:
    async with covered(server.url) as locks, LockClient(redis) as other:
        with pytest.raises(LeaseLostError) as caught:
            async with locks.lock(NAME) as lease:
                thief = threading.Thread(target=asyncio.run, args=(force(server.url),))
                thief.start()
                time.sleep(2 * LEASE)
                thief.join()
                assert lease.lost.is_set()
                with pytest.raises(LeaseLostError) as seen:
                    lease.check()
                assert seen.value.reason == "forced"
                await asyncio.sleep(10)
        assert caught.value.reason == "forced"
        assert await other.lock(NAME).try_lock()


async def force(url: str) -> None:
    async with LockClient.from_url(url) as locks:
        assert await locks.lock(NAME).force_release()


async def test_the_thread_renews_no_lease_beyond_an_end_of_its_own(server: Server, redis: Redis) -> None:
    async with covered(server.url, max_hold=4 * LEASE) as locks:
        fixed = await locks.lock("fixed", owner="a").acquire(lease=LEASE)
        capped = await locks.lock("capped", owner="b").acquire()
        time.sleep(2 * LEASE)
        assert (fixed.lost.is_set(), capped.lost.is_set()) == (True, False)
        while capped.remaining > LEASE / 2:
            time.sleep(0.01)
        watch = hold_of(capped).watch
        before = watch.acknowledged
        assert before > 0
        while not capped.lost.is_set():
            time.sleep(0.01)
        with pytest.raises(LeaseLostError) as caught:
            await capped.release()
        assert caught.value.reason == "max_hold"
        # No further renewal could gain anything, except one whose answer was late.
        assert watch.acknowledged <= before + 1


async def test_the_thread_renews_nested_holds_and_permits(server: Server, redis: Redis) -> None:
    async with covered(server.url) as locks:
        async with locks.lock(NAME) as outer, locks.lock(NAME) as inner, locks.semaphore("places", 2) as place:
            time.sleep(2 * LEASE)
            for lease in (outer, inner, place):
                lease.check()
            assert await locks.lock(NAME).hold_count() == 2
        assert await redis.exists(NAME) == 0
        assert locks.statistics().losses == 0


@pytest.mark.parametrize("max_stall", [None, 0, 0.0, timedelta(0)])
async def test_a_client_without_max_stall_has_no_thread(server: Server, redis: Redis, max_stall: Any) -> None:
    before = threads()
    async with covered(server.url, max_stall=max_stall) as locks, locks.lock(NAME) as lease:
        assert threads() == before
        assert type(hold_of(lease)) is Hold
        assert session_of(locks).stand_in is None


async def test_the_thread_ends_with_the_client(server: Server, redis: Redis) -> None:
    before = threads()
    async with covered(server.url) as locks, locks.lock(NAME):
        assert threads() == before + 1
        # The thread has connections to close, too.
        time.sleep(LEASE)
    assert threads() == before


def test_the_thread_ends_with_the_loop(server: Server) -> None:
    before = threads()

    async def leave_open() -> LockClient:
        locks = LockClient.from_url(server.url, config=LockConfig(lease=LEASE, max_stall=60))
        await locks.lock(NAME, owner="a").acquire()
        assert threads() == before + 1
        return locks

    locks = asyncio.run(leave_open())
    wait_for_threads(before)
    assert locks.statistics().held == 1


def wait_for_threads(number: int) -> None:
    ends = time.monotonic() + 10
    while threads() != number:
        assert time.monotonic() < ends, threading.enumerate()
        time.sleep(0.01)


async def test_the_thread_ends_with_a_collected_client_whose_loop_runs(server: Server, redis: Redis) -> None:
    before = threads()
    locks = LockClient.from_url(server.url, config=LockConfig(lease=LEASE, max_stall=60))
    async with locks.lock(NAME):
        pass
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        del locks
        gc.collect()
    await until(lambda: threads() == before)


# The rules for what the thread tells the loop, one by one.


async def test_the_news_of_the_thread_count_whenever_the_loop_reads_them(server: Server, redis: Redis) -> None:
    async with covered(server.url, lease=30) as locks, locks.lock(NAME) as lease:
        hold = hold_of(lease)
        assert isinstance(hold, CoveredHold)
        deadline, expires, due = hold.deadline, hold.expires, hold.watch.renew_at
        hold.announce()
        sent = time.monotonic() + 5
        hold.note_renewal(sent, 30.0)
        for attribute, before in (("deadline", deadline), ("expires", expires)):
            assert getattr(hold, attribute) > before + 4
        assert hold.watch.renew_at == pytest.approx(sent + 30 / 8)
        assert hold.watch.renew_at > due
        assert hold.watch.acknowledged == 1
        # A later answer to an earlier command changes nothing.
        hold.extend(sent - 1, 30.0)
        assert hold.deadline > deadline + 4


async def test_the_renewal_numbers_of_both_threads_grow_together(server: Server, redis: Redis) -> None:
    async with covered(server.url, lease=30) as locks, locks.lock(NAME) as lease:
        hold = hold_of(lease)
        assert isinstance(hold, CoveredHold)
        numbers = []
        for _ in range(3):
            for _ in range(3):
                await lease.renew()
                numbers.append(hold.watch.number)
            hold.announce()
            numbers.append(hold.number_renewal())
        await lease.renew()
        numbers.append(hold.watch.number)
        assert numbers == sorted(set(numbers))
        assert await redis.hget(NAME, "aiolock:renewal") == str(numbers[-1]).encode()


async def test_a_loss_is_final_despite_later_answers(server: Server, redis: Redis) -> None:
    async with covered(server.url, lease=30) as locks:
        lease = await locks.lock(NAME, owner="a").acquire()
        hold = hold_of(lease)
        assert isinstance(hold, CoveredHold)
        hold.announce()
        hold.note_loss("taken")
        assert hold.renewal_due == inf
        for _ in range(2):
            hold.extend(time.monotonic(), 30.0)
            assert lease.lost.is_set()
        with pytest.raises(LeaseLostError) as caught:
            lease.check()
        assert caught.value.reason == "taken"
        hold.notice_news()
        assert locks.statistics().losses == 1


async def test_a_hold_that_has_ended_is_not_renewed_and_one_that_was_announced_is_freed(
    server: Server, redis: Redis
) -> None:
    async with covered(server.url, lease=30) as locks:
        lease = await locks.lock(NAME, owner="a").acquire()
        hold = hold_of(lease)
        assert isinstance(hold, CoveredHold)
        hold.extend(time.monotonic(), 20.0)
        assert hold.announce()
        hold.lose("expired")
        assert not hold.announce()
        await until(lambda: locks.statistics().pending == 0)
        assert not await redis.exists(NAME)
        with pytest.raises(LeaseLostError):
            await lease.release()
        with pytest.raises(NotHeldError):
            await lease.release()


def test_news_are_one_value() -> None:
    assert News(1) == News(1, 0, 0.0, 0.0, 0.0, 0.0, None, None)
    with pytest.raises(AttributeError):
        News(1).number = 2  # type: ignore[misc]
