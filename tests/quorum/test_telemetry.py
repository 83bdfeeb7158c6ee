"""The events of a client of several servers: its holders and waiters, and the holder that a waiter waited for."""

import asyncio
from collections.abc import Callable

from redis.asyncio import Redis

from aiolock import Acquired, ClientStatistics, LockClient, LockConfig, LockEvent
from tests.support.observe import answered, until

SOON = 0.05


class Marking:
    """A telemetry that leaves one text for every holder."""

    patience = SOON

    def started(self, client: str, statistics: Callable[[], ClientStatistics]) -> None:
        pass

    def closed(self, client: str) -> None:
        pass

    def mark(self, event: Acquired) -> str:
        return "the mark"


async def hold(locks: LockClient, name: str) -> None:
    async with locks.lock(name):
        pass


async def test_activity_lists_the_holders_and_the_waiters(locks: LockClient, other: LockClient) -> None:
    async with other.lock("a"), locks.lock("b"):
        waiting = asyncio.create_task(hold(locks, "a"), name="first")
        await until(lambda: locks.statistics().parked == 1)
        a, b = locks.activity()
        assert (a.kind, a.holding, [each.task for each in a.waiting]) == ("lock", (), ["first"])
        assert (b.kind, len(b.holding), b.waiting) == ("lock", 1, ())
        waiting.cancel()
        await asyncio.wait([waiting])
    assert locks.activity() == []


async def test_a_long_wait_finds_the_mark_that_any_server_has(redises: list[Redis]) -> None:
    events: list[LockEvent] = []
    config = LockConfig(telemetry=Marking())
    async with (
        LockClient.redlock(redises, config=config) as holder,
        LockClient.redlock(redises, config=LockConfig(telemetry=Marking(), on_event=events.append)) as waiter,
    ):
        lease = await holder.lock("orders").acquire()
        await until(lambda: _marked(redises, 3))
        for redis in redises[1:]:
            await redis.delete("aiolock_mark:{orders}")
        waiting = asyncio.create_task(hold(waiter, "orders"))
        # The waiter asks for the lock, again after its subscription, and for the mark.
        await until(lambda: waiter.statistics().commands >= 3 * len(redises))
        await answered(waiter)
        await lease.release()
        await waiting
        await until(lambda: _marked(redises, 0))
    [acquired] = [event for event in events if isinstance(event, Acquired)]
    assert (acquired.contended, acquired.mark) == (True, "the mark")


async def _marked(redises: list[Redis], number: int) -> bool:
    """Whether that many servers have the mark."""
    return sum([await redis.exists("aiolock_mark:{orders}") for redis in redises]) == number
