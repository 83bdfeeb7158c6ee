"""Every call counts once, after any disturbance, even when it arrives a second time much later."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from redis.asyncio import Redis

from aiolock import Lease, LockClient, LockConfig
from aiolock._embedded_server import Server
from aiolock._scripts import (
    ADD_PERMITS,
    COUNT_DOWN,
    COUNTING_SEMAPHORE,
    DRAIN,
    PERMIT,
    READ,
    RESIZE,
    SET_COUNT,
    SET_PERMITS,
    WRITE,
    Script,
)
from tests.support.observe import answered, until
from tests.support.proxy import Action, Proxy, Rule, drop_reply, hold, reset, script
from tests.support.waiters import waits_quietly

CONFIG = LockConfig(command_timeout=12, release_timeout=12)
# Each call has a client of its own, and a slow machine must still connect them in time.
AT_ONCE = 13


class Stage:
    """The counting primitives, under names of their own, as one client has them."""

    permit: Lease
    writing: Lease
    reading: Lease

    def __init__(self, client: LockClient, name: str) -> None:
        self.permits = client.semaphore(f"{name} places", 5)
        self.lock = client.read_write_lock(f"{name} report", owner="job")
        self.seats = client.counting_semaphore(f"{name} seats")
        self.jobs = client.count_down_latch(f"{name} jobs")
        self.first_seats = client.counting_semaphore(f"{name} first seats")
        self.first_jobs = client.count_down_latch(f"{name} first jobs")

    async def begin(self) -> None:
        """Two permits are acquired; the lock is written and read; there are five seats and three jobs."""
        self.permit = await self.permits.acquire(2)
        self.writing, self.reading = await self.lock.write.acquire(), await self.lock.read.acquire()
        assert await self.seats.try_set_permits(5)
        assert await self.jobs.try_set_count(3)

    async def counted(self) -> dict[str, int]:
        """The counts of all primitives on the server."""
        writer = await self.lock.write.holder()
        return {
            "free": await self.permits.available(),
            "acquired": await self.permits.acquired(),
            "writes": 0 if writer is None else writer.holds,
            "reads": sum(reader.holds for reader in await self.lock.read.holders()),
            "seats": await self.seats.available() + await self.first_seats.available(),
            "jobs": await self.jobs.count() + await self.first_jobs.count(),
        }


AT_FIRST = {"free": 3, "acquired": 2, "writes": 1, "reads": 1, "seats": 5, "jobs": 3}


async def block(stage: Stage) -> None:
    async with stage.seats.hold(permits=2):
        pass


async def read_again(stage: Stage) -> None:
    await stage.reading.release()
    await stage.lock.read.acquire()


async def write_again(stage: Stage) -> None:
    await stage.reading.release()
    await stage.writing.release()
    await stage.lock.write.acquire()


async def renew(stage: Stage) -> None:
    await stage.reading.renew(60)
    await stage.writing.renew(60)


async def is_true(call: Awaitable[bool]) -> None:
    assert await call


# The call, the script that it sends, and the change after it.
CALLS: dict[str, tuple[Callable[[Stage], Awaitable[Any]], Script, dict[str, int]]] = {
    "permits: acquire": (lambda on: on.permits.acquire(2), PERMIT.acquire, {"free": 1, "acquired": 4}),
    "permits: release": (lambda on: on.permit.release(), PERMIT.release, {"free": 5, "acquired": 0}),
    "permits: renew": (lambda on: on.permit.renew(60), PERMIT.renew, {}),
    "permits: set_permits": (lambda on: on.permits.set_permits(9), RESIZE, {"free": 7}),
    "permits: add_permits": (lambda on: on.permits.add_permits(3), RESIZE, {"free": 6}),
    "permits: force_release": (
        lambda on: is_true(on.permits.force_release()),
        PERMIT.force_release,
        {"free": 5, "acquired": 0},
    ),
    "lock: nested read": (lambda on: on.lock.read.acquire(), READ.acquire, {"reads": 2}),
    "lock: nested write": (lambda on: on.lock.write.acquire(), WRITE.acquire, {"writes": 2}),
    "lock: read again": (read_again, READ.acquire, {}),
    "lock: write again": (write_again, WRITE.acquire, {"reads": 0}),
    "lock: stop writing": (lambda on: on.writing.release(), WRITE.release, {"writes": 0}),
    "lock: stop reading": (lambda on: on.reading.release(), READ.release, {"reads": 0}),
    "lock: renew": (renew, READ.renew, {}),
    "lock: force readers": (lambda on: is_true(on.lock.read.force_release()), READ.force_release, {"reads": 0}),
    "lock: force the writer": (lambda on: is_true(on.lock.write.force_release()), WRITE.force_release, {"writes": 0}),
    "seats: enter": (block, COUNTING_SEMAPHORE.acquire, {}),
    "seats: leave": (block, COUNTING_SEMAPHORE.release, {}),
    "seats: acquire": (lambda on: on.seats.acquire(2), COUNTING_SEMAPHORE.acquire, {"seats": 3}),
    "seats: release": (lambda on: on.seats.release(2), ADD_PERMITS, {"seats": 7}),
    "seats: add_permits": (lambda on: on.seats.add_permits(3), ADD_PERMITS, {"seats": 8}),
    "seats: drain": (lambda on: on.seats.drain(), DRAIN, {"seats": 0}),
    "seats: first number": (lambda on: is_true(on.first_seats.try_set_permits(4)), SET_PERMITS, {"seats": 9}),
    "jobs: count_down": (lambda on: on.jobs.count_down(), COUNT_DOWN, {"jobs": 2}),
    "jobs: delete": (lambda on: is_true(on.jobs.delete()), COUNT_DOWN, {"jobs": 0}),
    "jobs: first number": (lambda on: is_true(on.first_jobs.try_set_count(4)), SET_COUNT, {"jobs": 7}),
}
FAULTS: dict[str, tuple[Action, int]] = {
    "reply_dropped": (drop_reply(), 1),
    "reply_dropped_thrice": (drop_reply(), 3),
    "reply_swallowed": (drop_reply(reset=False), 1),
    "reset_before": (reset(), 1),
    "held_back": (hold(), 1),
}


@pytest.mark.parametrize(
    "fault", [pytest.param(each, marks=pytest.mark.slow if each == "reply_swallowed" else ()) for each in FAULTS]
)
async def test_a_disturbed_call_counts_once(server: Server, redis: Redis, other: LockClient, fault: str) -> None:
    room = asyncio.Semaphore(AT_ONCE)

    async def disturb(call: str) -> None:
        try:
            async with room, AsyncExitStack() as stack:
                await check(call, await stack.enter_async_context(Proxy(server.host, server.port)))
        except BaseException as error:
            error.add_note(f"call: {call}")
            raise

    async def check(call: str, proxy: Proxy) -> None:
        act, sent, changed = CALLS[call]
        direct, expected = Stage(other, call), AT_FIRST | changed
        async with Redis.from_url(proxy.url) as through, LockClient(through, config=CONFIG) as locks:
            stage = Stage(locks, call)
            await stage.begin()
            await answered(locks)
            action, times = FAULTS[fault]
            rule = proxy.install(Rule(script(sent), action, times))
            await act(stage)
            await rule.caught(times)
            assert await direct.counted() == expected
            if fault == "held_back":
                await rule.deliver()
                assert await direct.counted() == expected
        everything = {"free": expected["free"] + expected["acquired"], "acquired": 0, "writes": 0, "reads": 0}
        assert await direct.counted() == expected | everything

    async with asyncio.TaskGroup() as group:
        for call in CALLS:
            group.create_task(disturb(call))


@pytest.mark.parametrize("kind", ["permits", "readers"])
async def test_a_release_lets_in_every_waiter_though_the_reply_to_one_is_lost(
    proxy: Proxy, through: Redis, other: LockClient, kind: str
) -> None:
    theirs = Stage(other, "")
    held = await (theirs.permits.acquire(5, lease=60) if kind == "permits" else theirs.lock.write.acquire(lease=60))
    inside = asyncio.Barrier(6)
    async with LockClient(through, config=CONFIG) as locks:
        waited_for = Stage(locks, "").permits if kind == "permits" else locks.read_write_lock(theirs.lock.name).read

        async def meet() -> None:
            async with waited_for:
                await inside.wait()

        tasks = [asyncio.create_task(meet()) for _ in range(5)]
        await until(lambda: locks.statistics().parked == 5 and waits_quietly(locks, waited_for))
        lost = proxy.install(Rule(script(PERMIT.acquire if kind == "permits" else READ.acquire), drop_reply()))
        await held.release()
        await lost.caught()
        await asyncio.wait_for(inside.wait(), 20)
        await asyncio.gather(*tasks)
