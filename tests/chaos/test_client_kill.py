"""CLIENT KILL: connections die at any moment, and no section overlaps another."""

import asyncio
import random

import pytest
from redis.asyncio import Redis

from aiolock import LockClient, LockConfig
from tests.chaos.operations import leftovers
from tests.support.calls import acquire_and_release
from tests.support.observe import all_parked, answered, until

SECTIONS = 200
TASKS = 5
CONFIG = LockConfig(lease=10, renew_interval=0.05, client_name="killed")


class Checker:
    """Sees from outside Redis whether sections overlap and whether tokens grow."""

    def __init__(self) -> None:
        self.entered = 0
        self._inside = False
        self._last = 0

    async def section(self, token: int) -> None:
        assert not self._inside, "two at once"
        assert token > self._last, "a token that does not grow"
        self._inside, self._last = True, token
        await asyncio.sleep(0)
        self._inside = False
        self.entered += 1


async def kill_in_turn(redis: Redis, client: LockClient, seed: int, over: asyncio.Event) -> int:
    """Kill one connection of the client after another, each some commands after the last; return their number."""
    pick, killed = random.Random(seed), 0
    while not over.is_set():
        ours = [entry["id"] for entry in await redis.client_list() if entry["name"] == "killed"]
        if ours:
            await redis.client_kill_filter(_id=ours[killed % len(ours)])
            killed += 1
        enough = client.statistics().commands + pick.randint(1, 8)
        await until(lambda: over.is_set() or client.statistics().commands >= enough, within=10)  # noqa: B023 (awaited at once)
    return killed


@pytest.mark.parametrize("seed", [1, 2])
async def test_sections_are_exclusive_while_connections_are_killed(redis: Redis, seed: int) -> None:
    checker = Checker()

    async def work() -> None:
        while checker.entered < SECTIONS:
            async with client.lock("killed") as lease, client.lock("killed"):
                await checker.section(lease.token)
                if checker.entered % 10 == 0:
                    await lease.renew()

    async with LockClient(redis, config=CONFIG) as client:
        over = asyncio.Event()
        killer = asyncio.create_task(kill_in_turn(redis, client, seed, over))
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            for _ in range(TASKS):
                group.create_task(work())
        over.set()
        assert await killer > 20
        await answered(client)
        statistics = client.statistics()
        assert statistics.held == statistics.parked == statistics.losses == 0
        assert b"killed" not in await leftovers(redis)
    assert await leftovers(redis) == set()


@pytest.mark.parametrize("kind", ["normal", "pubsub"])
async def test_a_waiter_gets_the_lock_when_every_connection_was_killed(redis: Redis, kind: str) -> None:
    async with LockClient(redis, config=CONFIG) as client, LockClient(redis) as other:
        theirs = await other.lock("killed").acquire()
        lock = client.lock("killed")
        waiting = asyncio.create_task(acquire_and_release(lock))
        await all_parked(client, 1)
        for entry in await redis.client_list(_type=kind):
            if entry["name"] == "killed":
                await redis.client_kill_filter(_id=entry["id"])
        await theirs.release()
        async with asyncio.timeout(5):
            await waiting
