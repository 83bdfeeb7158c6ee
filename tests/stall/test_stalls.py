"""Stalls of every shape: again and again, with many locks, with a connection cut, with a release that comes first."""

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from redis import Redis

from aiolock import LockClient, LockConfig
from aiolock._embedded_server import Server
from aiolock._scripts import LOCK
from tests.blocking.threads import begin
from tests.stall.places import LEASE, Place
from tests.support.inside import connections_of_thread, forget_news
from tests.support.observe import until
from tests.support.onlooker import Onlooker
from tests.support.proxy import Proxy, Rule, hold, script
from tests.support.topologies import Replicated, ask, wait_until
from tests.support.trees import PACKAGE

NAME = "orders"


def at_step(step: int, act: Callable[[], object], look: Callable[[], object]) -> bool:
    """Call *act*, and *look* before its *step*-th line in the core; False: it has fewer lines."""
    left = step

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.startswith(str(PACKAGE / "_core")):
            return None
        left -= event == "line"
        if left == 0:
            sys.settrace(None)
            look()
        return trace

    tracing = sys.gettrace()
    sys.settrace(trace)
    try:
        _ = act()
    finally:
        sys.settrace(tracing)
    return left <= 0


@pytest.mark.parametrize("share", [0.02, 0.05, 0.1, 0.3, 0.6, 0.9, 1.3])
async def test_a_loop_that_is_blocked_again_and_again_keeps_its_lock(
    place: Place, server: Server, share: float
) -> None:
    async with place.client(lease=1, renew_interval=None, max_stall=60) as locks:
        # The thread asks whether the loop runs, and a turn of the loop between two stalls answers.
        async with locks.lock(NAME) as lease:
            with Onlooker(server.url, NAME) as onlooker:
                ends = time.monotonic() + 4
                while time.monotonic() < ends:
                    time.sleep(share)
                    await asyncio.sleep(0)
                    lease.check()
            assert len(onlooker.acquisitions) == 1
        assert locks.statistics().losses == 0


async def test_a_body_that_computes_keeps_its_lock(place: Place, server: Server) -> None:
    async with place.client(lease=2, renew_interval=0.2, max_stall=60) as locks, locks.lock(NAME) as lease:
        with Onlooker(server.url, NAME) as onlooker:
            ends = time.monotonic() + 6
            while time.monotonic() < ends:
                sum(range(1000))
            lease.check()
        assert len(onlooker.acquisitions) == 1


async def test_a_lock_is_kept_from_the_moment_on_at_which_it_is_to_be_renewed(place: Place) -> None:
    max_stall = 5 * LEASE
    async with place.client(max_stall=max_stall) as locks:
        lock = locks.lock(NAME)
        async with lock.hold(lease=max_stall + 2 * LEASE) as outer:
            # Nothing is to be renewed, so the thread does not ask whether the loop runs.
            await until(lambda: outer.remaining < LEASE)
            async with lock as inner:
                time.sleep(2 * LEASE)
                inner.check()


async def test_a_thread_may_check_a_lease_while_the_loop_learns_of_its_renewal(place: Place) -> None:
    async with place.client(max_stall=60) as locks, locks.lock(NAME) as lease:
        time.sleep(2 * LEASE)
        step = 1
        # The statistics tell of each renewal.
        while at_step(step, locks.lock(NAME).statistics, lambda: begin(lease.check).result()):
            forget_news(lease)
            step += 1
        assert step > 3


async def test_a_thousand_locks_are_kept(place: Place) -> None:
    async with place.client(lease=6, renew_interval=1, max_stall=60, command_timeout=30) as locks:
        acquired = [locks.lock(f"orders:{number}", owner="many").acquire() for number in range(1000)]
        leases = await asyncio.gather(*acquired)
        time.sleep(15)
        for lease in leases:
            lease.check()
        await asyncio.gather(*(lease.release() for lease in leases))
        assert locks.statistics().losses == 0
        assert locks.statistics().renewals_by_thread >= 1000


async def test_connections_that_are_cut_during_the_stall_are_made_again(place: Place, server: Server) -> None:
    stop, cuts = threading.Event(), []

    def cut() -> None:
        with Redis.from_url(server.url) as redis:
            while not stop.wait(LEASE / 2):
                cuts.append(redis.client_kill_filter(_type="normal", skipme=True))

    async with place.client(max_stall=60) as locks, locks.lock(NAME) as lease:
        cutting = threading.Thread(target=cut)
        cutting.start()
        time.sleep(5 * LEASE)
        lease.check()
        stop.set()
        cutting.join()
        assert sum(map(int, cuts)) >= 5
        await until(lambda: locks.statistics().renewals > locks.statistics().renewals_by_thread)


@pytest.mark.slow
async def test_a_failover_during_the_stall_keeps_the_lock(server: Server) -> None:
    with Replicated(server._executable, replicas=2, sentinels=3) as running:
        place, old = Place("sentinel", running.addresses), running.primary
        async with place.client(lease=30, renew_interval=1, max_stall=120) as locks, locks.lock(NAME) as lease:
            wait_until(
                lambda: all(ask(each, "EXISTS", NAME) for each in running.replicas), "the replicas have the lock"
            )
            old.kill()
            new = running.promoted(old)
            renewal = ask(new, "HGET", NAME, "aiolock:renewal")
            wait_until(lambda: ask(new, "HGET", NAME, "aiolock:renewal") != renewal, "the thread renews it", within=25)
            lease.check()
        assert not ask(new, "EXISTS", NAME)
        assert locks.statistics().losses == 0


async def test_the_thread_closes_its_connections_and_makes_them_again(place: Place) -> None:
    async with place.client(lease=3, renew_interval=None, max_stall=60) as locks, locks.lock(NAME) as lease:
        for _ in range(2):
            await until(lambda: connections_of_thread(locks) == 0, within=60)
            time.sleep(4)
            lease.check()
            assert connections_of_thread(locks) > 0


async def test_a_release_that_overtakes_a_renewal_of_the_thread_frees_the_lock_for_good(server: Server) -> None:
    entered, may_leave = threading.Event(), threading.Event()

    async def stand_still(url: str) -> int:
        asyncio.get_running_loop().slow_callback_duration = 600
        config = LockConfig(lease=5, renew_interval=0.3, max_stall=60)
        async with LockClient.from_url(url, config=config) as locks:
            async with locks.lock(NAME):
                entered.set()
                may_leave.wait(20)
            return locks.statistics().losses

    redis = Redis.from_url(server.url)
    redis.flushall()
    async with Proxy(server.host, server.port) as proxy:
        late = proxy.install(Rule(script(LOCK.renew), hold(reset=False)))
        holding = asyncio.create_task(asyncio.to_thread(asyncio.run, stand_still(proxy.url)))
        await late.caught()
        assert entered.is_set()
        may_leave.set()
        assert await holding == 0
        assert not redis.exists(NAME)
        await late.deliver()
        # The acquisition has ended: another one gets the lock, and keeps it for the time that it asked for.
        async with LockClient.from_url(server.url) as other:
            lease = await other.lock(NAME).try_lock(0, 10)
            assert lease is not None
            assert 9 < lease.remaining <= 10
            await lease.release()
        assert not redis.exists(NAME)
    redis.close()
