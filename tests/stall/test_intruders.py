"""Another process that tries all the time never gets in while the event loop of the holder is blocked."""

import asyncio
import time

import pytest

from aiolock import LeaseLostError, LockClient
from tests.stall.intruder import got_in, intruder
from tests.stall.places import LEASE, Place

NAME = "orders"


@pytest.mark.parametrize("place", ["one", "sentinel", "cluster", "quorum", "tls"], indirect=True)
async def test_nobody_gets_in_while_the_body_blocks_the_loop(place: Place) -> None:
    async with place.client(max_stall=60) as locks:
        lease = await locks.lock(NAME).acquire()
        async with intruder(place, NAME) as other:
            time.sleep(10 * LEASE)
            lease.check()
            checked = time.monotonic()
            await lease.release()
            assert checked <= got_in(other)
        assert locks.statistics().losses == 0


@pytest.mark.parametrize("place", ["one", "quorum"], indirect=True)
async def test_the_lock_of_a_process_that_hangs_is_free_after_max_stall(place: Place) -> None:
    max_stall = 2 * LEASE
    async with place.client(max_stall=max_stall) as locks:
        with pytest.raises(LeaseLostError):
            async with locks.lock(NAME) as lease, intruder(place, NAME) as other:
                began = time.monotonic()
                # The event loop stands still until another process has the lock.
                assert got_in(other) > began + max_stall
                assert lease.lost.is_set()
        assert locks.statistics().losses == 1


@pytest.mark.parametrize("place", ["one"], indirect=True)
async def test_nobody_gets_in_while_a_rollback_blocks_the_loop_of_a_client_that_is_closed(place: Place) -> None:
    rolled_back: list[float] = []
    inside = asyncio.Event()

    async def work(locks: LockClient) -> None:
        async with locks.lock(NAME):
            inside.set()
            try:
                await asyncio.sleep(600)
            finally:
                # Closing goes on meanwhile.
                await asyncio.sleep(0.05)
                time.sleep(2 * LEASE)
                rolled_back.append(time.monotonic())

    async with place.client(max_stall=60) as locks:
        working = asyncio.create_task(work(locks))
        await inside.wait()
        async with intruder(place, NAME) as other:
            await locks.aclose()
            assert rolled_back[0] <= got_in(other)
        await asyncio.wait([working])
    assert isinstance(working.exception(), LeaseLostError)
