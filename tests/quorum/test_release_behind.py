"""Blocks that leave their release behind, where several independent servers keep the locks."""

import asyncio

from redis.asyncio import Redis

from aiolock import LockClient, LockConfig
from tests.contract.acts import nothing_under_way
from tests.quorum.conftest import redises, three
from tests.quorum.several import everywhere
from tests.support.observe import answered, until

__all__ = ["redises", "three"]

BEHIND = LockConfig(release="behind")


async def test_blocks_follow_each_other(redises: list[Redis]) -> None:
    async with LockClient.redlock(redises, config=BEHIND) as locks, LockClient.redlock(redises) as other:
        lock = locks.lock("orders")
        for _ in range(40):
            async with lock.hold(wait=0):
                # The slowest server has not answered the acquire when the block begins.
                await answered(locks)
            assert locks.statistics().pending == 1
        await until(lambda: nothing_under_way(locks))
        assert locks.statistics().losses == 0
        async with asyncio.timeout(20), other.lock("orders"):
            pass


async def test_nested_blocks_follow_each_other(redises: list[Redis]) -> None:
    async with LockClient.redlock(redises, config=BEHIND) as locks:
        lock = locks.lock("orders")

        async def work() -> None:
            for _ in range(60):
                async with lock, lock:
                    pass

        await asyncio.gather(*(work() for _ in range(4)))
        await until(lambda: nothing_under_way(locks))
        assert locks.statistics().losses == 0


async def test_a_looping_client_lets_others_go_first(redises: list[Redis]) -> None:
    async def loop() -> None:
        while not over.is_set():
            async with lock:
                await asyncio.sleep(0)

    over = asyncio.Event()
    async with LockClient.redlock(redises, config=BEHIND) as locks, LockClient.redlock(redises) as other:
        lock = locks.lock("orders")
        looping = asyncio.create_task(loop())
        await until(lambda: locks.statistics().commands > 100)
        async with asyncio.timeout(30), other.lock("orders"):
            over.set()
        await looping


async def test_a_loss_that_only_the_release_tells(redises: list[Redis]) -> None:
    async with LockClient.redlock(redises, config=BEHIND) as locks:
        async with locks.lock("orders"):
            await everywhere(redises, "orders")
            for redis in redises[1:]:
                await redis.delete("orders")
        await answered(locks)
        assert locks.statistics().losses_behind == 1
