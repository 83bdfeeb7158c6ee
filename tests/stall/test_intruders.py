"""Another process that tries all the time never gets in while the event loop of the holder is blocked."""

import time

import pytest

from aiolock import LeaseLostError
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
