"""The watchdog keeps a lock while its holder works, through each disturbance that is shorter than the lease."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from time import monotonic

import pytest
from redis.asyncio import Redis

from aiolock import LockClient, LockEvent, RenewalLate
from aiolock._embedded_server import Server
from aiolock._scripts import RENEW
from tests.support.holding import client_behind, lock_client
from tests.support.inside import session_of
from tests.support.observe import answered, renewed, until
from tests.support.proxy import Proxy, Rule, command, delay, drop_reply, reset, script, withhold_reply

KEY = "job"
LEASE = 2.0


@asynccontextmanager
async def rival(locks: LockClient) -> AsyncIterator[list[int]]:
    """Try to get the lock all the time; return the tokens of the grants."""
    granted: list[int] = []

    async def try_on() -> None:
        lock = locks.lock(KEY)
        while True:
            if lease := await lock.try_lock():
                granted.append(lease.token)
                await lease.release()
            await asyncio.sleep(0.005)

    task = asyncio.create_task(try_on())
    try:
        yield granted
    finally:
        task.cancel()
        await asyncio.wait([task])


async def kept_through_work(url: str, work: float) -> None:
    async with lock_client(url, lease=LEASE) as locks, lock_client(url) as others, rival(others) as granted:
        start = monotonic()
        async with locks.lock(KEY) as lease:
            granted.clear()
            while monotonic() < start + work:
                lease.check()
                assert 0 < lease.remaining <= LEASE
                await asyncio.sleep(0.05)
            assert not granted
        assert locks.statistics().losses == 0
        assert locks.statistics().renewals >= work / LEASE
        await until(lambda: len(granted) > 0)


async def test_a_short_lease_outlives_long_work_while_another_client_tries(server: Server, redis: Redis) -> None:
    await kept_through_work(server.url, 5)


async def test_a_lock_is_kept_through_a_restart_of_a_server_that_keeps_its_keys() -> None:
    with Server(append_only=True) as server:
        patient = {"command_timeout": 10}
        async with lock_client(server.url, lease=5, **patient) as locks, lock_client(server.url, **patient) as others:
            async with locks.lock(KEY) as lease:
                await renewed(locks, 1)
                for _ in range(2):
                    server.restart()
                    assert not await others.lock(KEY).try_lock()
                    await renewed(locks, 1)
                lease.check()
            assert locks.statistics().losses == 0
            assert not await others.lock(KEY).locked()


async def test_a_restart_that_forgets_the_keys_is_a_loss() -> None:
    with Server() as server:
        async with lock_client(server.url, lease=3) as locks:
            lease = await locks.lock(KEY).acquire()
            server.restart()
            assert await asyncio.wait_for(lease.lost, 10) == "expired"


async def black_hole(proxy: Proxy) -> None:
    proxy.black_hole()
    await asyncio.sleep(0.4)
    proxy.restore()


async def refusing(proxy: Proxy) -> None:
    await proxy.cut_off()
    await asyncio.sleep(0.4)
    await proxy.accept()


async def half_open(proxy: Proxy) -> None:
    assert proxy.half_open(lambda _: True)


async def resets(proxy: Proxy) -> None:
    rule = proxy.install(Rule(script(RENEW), reset(), times=3))
    await rule.caught(3)


async def dropped_replies(proxy: Proxy) -> None:
    rule = proxy.install(Rule(script(RENEW), drop_reply(reset=False)))
    await rule.caught()


async def slow_handshake(proxy: Proxy) -> None:
    proxy.install(Rule(command(b"CLIENT"), delay(0.05), times=4))
    proxy.reset_all()


FAILURES = [black_hole, refusing, half_open, resets, dropped_replies, slow_handshake]


@pytest.mark.parametrize("failure", FAILURES)
async def test_a_lock_is_kept_through_a_failure_shorter_than_its_lease(
    redis: Redis, proxy: Proxy, failure: Callable[[Proxy], Awaitable[None]]
) -> None:
    async with client_behind(proxy, lease=3, renew_interval=0.4) as locks, LockClient(redis) as others:
        async with rival(others) as granted, locks.lock(KEY) as lease:
            granted.clear()
            for _ in range(2):
                await renewed(locks, 1)
                await failure(proxy)
            await renewed(locks, 2)
            lease.check()
            assert not granted
        assert locks.statistics().losses == 0


async def test_a_renewal_that_failed_is_tried_again_until_the_lease_is_over(redis: Redis, proxy: Proxy) -> None:
    late: list[RenewalLate] = []

    def note(event: LockEvent) -> None:
        if isinstance(event, RenewalLate):
            late.append(event)

    async with client_behind(proxy, lease=3, renew_interval=0.3, on_event=note) as locks:
        async with locks.lock(KEY) as lease:
            await renewed(locks, 1)
            proxy.black_hole()
            await until(lambda: len(late) >= 2)
            lease.check()
            proxy.restore()
            await renewed(locks, 1)
            lease.check()
        assert locks.statistics().losses == 0


async def test_a_fixed_lease_is_never_renewed(redis: Redis, proxy: Proxy) -> None:
    async with client_behind(proxy, lease=0.3) as locks:
        lease = await locks.lock(KEY).acquire(lease=1.2)
        nested = await locks.lock(KEY).acquire(lease=0.6)
        assert await asyncio.wait_for(lease.lost, 5) == "expired"
        await answered(locks)
        assert nested.lost.is_set()
        assert not [request for request in proxy.requests if script(RENEW)(request)]
        assert locks.statistics().renewals == 0


async def test_a_fixed_lease_is_checked_when_the_connection_breaks_and_is_not_lengthened(
    redis: Redis, proxy: Proxy
) -> None:
    events: list[LockEvent] = []
    async with client_behind(proxy, lease=30, command_timeout=5, on_event=events.append) as locks:
        lock = locks.lock(KEY)
        lease = await lock.acquire(lease=20)
        events.clear()
        proxy.reset_all()
        await proxy.saw(script(RENEW))
        await answered(locks)
        assert lease.remaining < 20
        assert 0 < await redis.pttl(KEY) <= 20_000
        assert lock.statistics().renewals == locks.statistics().renewals == 0
        lease.check()
        for _ in range(2):
            count = sum(script(RENEW)(request) for request in proxy.requests)
            proxy.reset_all()
            await proxy.saw(script(RENEW), count=count + 1)
            await answered(locks)
        await redis.delete(KEY)
        proxy.reset_all()
        assert await asyncio.wait_for(lease.lost, 5) == "expired"
    assert not [event for event in events if isinstance(event, RenewalLate)]


async def test_a_fixed_lease_is_checked_until_there_is_an_answer(redis: Redis, proxy: Proxy) -> None:
    async with client_behind(proxy, lease=6, renew_interval=0.3, command_timeout=5) as locks:
        lease = await locks.lock(KEY).acquire(lease=60)
        await redis.delete(KEY)
        refused = proxy.install(Rule(script(RENEW), reset(), 5))
        proxy.reset_all()
        await refused.caught(5)
        assert await asyncio.wait_for(lease.lost, 10) == "expired"


async def test_a_fixed_lease_is_checked_once(redis: Redis, proxy: Proxy) -> None:
    events: list[LockEvent] = []
    async with client_behind(proxy, lease=30, renew_interval=1, command_timeout=5, on_event=events.append) as locks:
        lease = await locks.lock(KEY).acquire(lease=60)
        began = monotonic()
        # The renewal of a lease with a watchdog would be late by then.
        await until(lambda: monotonic() > began + 1.6)
        proxy.reset_all()
        await proxy.saw(script(RENEW), within=20)
        await asyncio.sleep(0.5)
        assert sum(script(RENEW)(request) for request in proxy.requests) < 5, "a slow machine may ask some more times"
        await lease.release()
    assert not [event for event in events if isinstance(event, RenewalLate)]


@pytest.mark.parametrize("lease", [None, 60])
async def test_a_doubt_is_not_settled_by_an_answer_that_is_older(
    redis: Redis, proxy: Proxy, lease: float | None
) -> None:
    """The server forgot the lock after it had answered, and before that answer arrived."""
    async with client_behind(proxy, lease=300, command_timeout=20) as locks:
        held = await locks.lock(KEY).acquire(lease=lease)
        check_holds = session_of(locks).check_holds
        withheld = proxy.install(Rule(script(RENEW), withhold_reply()))
        check_holds(lambda key: True)
        await withheld.caught()
        await redis.delete(KEY)
        check_holds(lambda key: True)
        withheld.let_go()
        assert await asyncio.wait_for(held.lost, 15) == "expired"


async def test_a_fixed_lease_is_checked_again_after_the_server_refused_to_answer(own: Server) -> None:
    events: list[LockEvent] = []
    async with (
        Redis.from_url(own.url) as admin,
        lock_client(own.url, lease=6, renew_interval=0.5, command_timeout=5, on_event=events.append) as locks,
    ):
        lease = await locks.lock(KEY).acquire(lease=60)
        await admin.execute_command("ACL", "SETUSER", "default", "-hmget")  # type: ignore[no-untyped-call]
        sent = locks.statistics().commands
        await admin.client_kill_filter(_type="normal", skipme=True)
        await until(lambda: locks.statistics().commands > sent)
        await answered(locks)
        assert not lease.lost.is_set()
        await admin.delete(KEY)
        await admin.execute_command("ACL", "SETUSER", "default", "+hmget")  # type: ignore[no-untyped-call]
        assert await asyncio.wait_for(lease.lost, 15) == "expired"
    assert not [event for event in events if isinstance(event, RenewalLate)]


async def test_a_renewal_is_sent_every_interval_and_not_more_often(redis: Redis, proxy: Proxy) -> None:
    async with client_behind(proxy, lease=3, renew_interval=0.2) as locks:
        async with locks.lock(KEY):
            await proxy.saw(script(RENEW), count=6)
        sent = [request.at for request in proxy.requests if script(RENEW)(request)]
        pauses = [later - earlier for earlier, later in pairwise(sent)]
        assert all(0.1 < pause < 0.6 for pause in pauses), pauses
