"""Permits when something fails: a call does what one undisturbed call does, and what ends without a word comes back."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest
from redis.asyncio import Redis

from aiolock import AsyncPermitExpirableSemaphore, Lease, LeaseLostError, LockClient, LockConfig
from aiolock._embedded_server import Server
from aiolock._scripts import PERMIT, RESIZE, Script
from tests.support.observe import answered, pubsub_channels, until
from tests.support.proxy import Action, Proxy, Rule, drop_reply, hold, reset, script
from tests.support.waiters import waits_quietly

NAME = "places"
CONFIG = LockConfig(command_timeout=12)


@dataclass
class Stage:
    """A semaphore of five permits behind a proxy, of which the user has two, and the same without one."""

    semaphore: AsyncPermitExpirableSemaphore
    direct: AsyncPermitExpirableSemaphore
    permit: Lease


async def acquire(stage: Stage) -> None:
    await stage.semaphore.acquire(2)


async def release(stage: Stage) -> None:
    await stage.permit.release()


async def renew(stage: Stage) -> None:
    await stage.permit.renew(60)


async def set_permits(stage: Stage) -> None:
    await stage.semaphore.set_permits(9)


async def add_permits(stage: Stage) -> None:
    await stage.semaphore.add_permits(3)


async def force_release(stage: Stage) -> None:
    assert await stage.semaphore.force_release()


# What is called, the script that it sends, and how many permits are available and acquired after it.
CALLS: dict[str, tuple[Callable[[Stage], Awaitable[None]], Script, tuple[int, int]]] = {
    "acquire": (acquire, PERMIT.acquire, (1, 4)),
    "release": (release, PERMIT.release, (5, 0)),
    "renew": (renew, PERMIT.renew, (3, 2)),
    "set_permits": (set_permits, RESIZE, (7, 2)),
    "add_permits": (add_permits, RESIZE, (6, 2)),
    "force_release": (force_release, PERMIT.force_release, (5, 0)),
}
FAULTS: dict[str, tuple[Action, int]] = {
    "reply_dropped": (drop_reply(), 1),
    "reply_dropped_thrice": (drop_reply(), 3),
    "reply_swallowed": (drop_reply(reset=False), 1),
    "reset_before": (reset(), 1),
    "held_back": (hold(), 1),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("call", CALLS)
async def test_a_disturbed_call_counts_once(
    proxy: Proxy, through: Redis, other: LockClient, call: str, fault: str
) -> None:
    act, sent, counted = CALLS[call]
    async with LockClient(through, config=CONFIG) as locks:
        semaphore = locks.permit_expirable_semaphore(NAME, 5)
        stage = Stage(semaphore, other.permit_expirable_semaphore(NAME), await semaphore.acquire(2))
        await answered(locks)
        action, times = FAULTS[fault]
        rule = proxy.install(Rule(script(sent), action, times))
        await act(stage)
        await rule.caught(times)
        assert (await stage.direct.available(), await stage.direct.acquired()) == counted
        if fault == "held_back":
            await rule.deliver()
            assert (await stage.direct.available(), await stage.direct.acquired()) == counted
    assert await stage.direct.permits() == sum(counted)
    assert await stage.direct.acquired() == 0


async def test_two_permits_that_come_back_at_once_wake_two_though_a_reply_is_lost(
    proxy: Proxy, through: Redis, other: LockClient
) -> None:
    theirs = other.permit_expirable_semaphore(NAME, 2)
    held = await theirs.acquire(2, lease=60)
    inside = asyncio.Barrier(3)

    async def meet() -> None:
        async with locks.permit_expirable_semaphore(NAME, 2):
            await inside.wait()

    async with LockClient(through, config=CONFIG) as locks:
        tasks = [asyncio.create_task(meet()) for _ in range(2)]
        await until(lambda: waits_quietly(locks, locks.permit_expirable_semaphore(NAME, 2)))
        await until(lambda: locks.statistics().parked == 2)
        lost = proxy.install(Rule(script(PERMIT.acquire), drop_reply()))
        await held.release()
        await lost.caught()
        await asyncio.wait_for(inside.wait(), 20)
        await asyncio.gather(*tasks)


async def test_a_release_that_comes_late_leaves_the_next_holder_alone(
    proxy: Proxy, through: Redis, other: LockClient
) -> None:
    theirs = other.permit_expirable_semaphore(NAME, 1)
    async with LockClient(through, config=CONFIG) as locks:
        mine = locks.permit_expirable_semaphore(NAME, 1)
        permit = await mine.acquire()
        late = proxy.install(Rule(script(PERMIT.release), hold()))
        await permit.release()
        async with theirs as its:
            await late.deliver()
            assert await theirs.acquired() == 1
            its.check()
    assert await theirs.available() == 1


async def test_an_acquire_that_comes_after_its_caller_gave_up_takes_nothing(
    proxy: Proxy, through: Redis, other: LockClient
) -> None:
    theirs = other.permit_expirable_semaphore(NAME, 1)
    async with LockClient(through, config=CONFIG) as locks:
        mine = locks.permit_expirable_semaphore(NAME, 1)
        late = proxy.install(Rule(script(PERMIT.acquire), hold(reset=False)))
        task = asyncio.ensure_future(in_time(mine))
        await late.caught()
        task.cancel()
        await asyncio.wait([task])
        proxy.reset_all()
        await until(lambda: locks.statistics().pending == 0, within=20)
        await late.deliver()
        assert await theirs.acquired() == 0


async def in_time(semaphore: AsyncPermitExpirableSemaphore) -> Lease | None:
    return await semaphore.try_acquire(wait=30)


async def test_a_server_that_forgot_everything_has_all_permits_again_and_tells_who_had_some(
    redis: Redis, other: LockClient
) -> None:
    async with LockClient(redis, config=LockConfig(lease=6, renew_interval=0.1)) as locks:
        mine = locks.permit_expirable_semaphore(NAME, 2)
        permit = await mine.acquire()
        await redis.flushall()
        assert await asyncio.wait_for(permit.lost, 15) == "expired"
        assert await other.permit_expirable_semaphore(NAME, 2).try_acquire(2) is not None


async def test_a_waiter_without_a_message_tries_when_the_next_permit_expires(
    proxy: Proxy, through: Redis, other: LockClient
) -> None:
    theirs = other.permit_expirable_semaphore(NAME, 1)
    held = await theirs.acquire(lease=1)
    proxy.swallow_messages()
    async with LockClient(through) as locks, locks.permit_expirable_semaphore(NAME, 1).hold(wait=20) as permit:
        assert permit.token > held.token


async def test_a_connection_for_messages_that_is_killed_wakes_who_waits(redis: Redis, other: LockClient) -> None:
    theirs = other.permit_expirable_semaphore(NAME, 1)
    async with LockClient(redis) as locks:
        mine = locks.permit_expirable_semaphore(NAME, 1)
        held = await theirs.acquire(lease=60)

        async def wait() -> None:
            async with mine:
                pass

        task = asyncio.create_task(wait())
        await until(lambda: locks.statistics().parked == 1)
        await until(lambda: _is_heard(redis))
        await redis.client_kill_filter(_type="pubsub")
        await held.release()
        await asyncio.wait_for(task, 20)


async def _is_heard(redis: Redis) -> bool:
    return f"redisson_sc:{{{NAME}}}" in {str(each) for each in await pubsub_channels(redis)}


async def test_a_client_that_is_closed_ends_its_waits_and_leaves_no_turn(redis: Redis, other: LockClient) -> None:
    theirs = other.permit_expirable_semaphore(NAME, 2)
    async with theirs:
        locks = LockClient(redis)
        mine = locks.permit_expirable_semaphore(NAME, 2)
        task = asyncio.ensure_future(several(mine))
        await until(lambda: locks.statistics().parked == 1 and locks.statistics().pending == 0)
        await locks.aclose()
        await asyncio.wait([task])
        assert type(task.exception()).__name__ == "ClientClosedError"
        assert not await redis.zcount(f"aiolock_token:{{{NAME}}}", "-inf", "(0")
        assert await theirs.try_acquire() is not None


async def several(semaphore: AsyncPermitExpirableSemaphore) -> Lease:
    return await semaphore.acquire(2)


async def test_the_server_stops_and_starts_without_what_it_had(own: Server) -> None:
    config = LockConfig(lease=2, renew_interval=0.2, command_timeout=10)
    async with LockClient.from_url(own.url, config=config) as locks:
        semaphore = locks.permit_expirable_semaphore(NAME, 1)
        permit = await semaphore.acquire()
        own.stop()
        own.start()
        await asyncio.wait_for(permit.lost, 20)
        async with semaphore.hold(wait=20):
            assert await semaphore.permits() == 1
        with pytest.raises(LeaseLostError):
            await permit.release()
