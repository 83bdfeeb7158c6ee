"""A call that no connection has sent yet is neither sent nor waited for once its caller has given up."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from time import monotonic

import pytest
from redis.asyncio import Redis

from aiolock import AsyncRLock, BackendError, LockClient
from aiolock._embedded_server import Server
from aiolock._scripts import ACQUIRE, RELEASE, RELEASE_CLEAN
from tests.support.holding import lock_client
from tests.support.inside import backend_of, submit
from tests.support.observe import all_parked, freed, until
from tests.support.proxy import ALWAYS, Proxy, Request, Rule, drop_reply, hold, refuse, script

RELEASE_TIMEOUT = 10.0


@pytest.fixture
async def proxy(server: Server, redis: Redis) -> AsyncIterator[Proxy]:
    """No connection can be made: the proxy answers nothing."""
    async with Proxy(server.host, server.port) as running:
        running.black_hole()
        yield running
        running.restore()


def of_a_lock(request: Request) -> bool:
    return script(ACQUIRE)(request) or script(RELEASE, RELEASE_CLEAN)(request)


async def enter(lock: AsyncRLock) -> None:
    async with lock:
        pytest.fail("entered")


CALLS: dict[str, Callable[[AsyncRLock], Awaitable[object]]] = {
    "acquire": lambda lock: lock.acquire(),
    "try_lock": lambda lock: lock.try_lock(),
    "async with": enter,
}
each_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


async def cancelled(locks: LockClient, call: Callable[[AsyncRLock], Awaitable[object]], *, turns: int) -> None:
    """Use a lock, and cancel the call after a number of turns of the loop and the first attempts to connect."""

    async def use() -> None:
        await call(locks.lock("a"))

    before = locks.statistics().pending
    using = asyncio.create_task(use())
    await until(lambda: locks.statistics().pending == before + 1)
    for _ in range(turns):
        await asyncio.sleep(0.001)
    using.cancel()
    await asyncio.wait([using])
    assert using.cancelled()


@each_call
@pytest.mark.parametrize("turns", [0, 100])
async def test_closing_does_not_wait_for_an_acquire_that_never_left(
    proxy: Proxy, caplog: pytest.LogCaptureFixture, call: Callable[[AsyncRLock], Awaitable[object]], turns: int
) -> None:
    async with lock_client(proxy.url, release_timeout=RELEASE_TIMEOUT) as locks:
        await cancelled(locks, call, turns=turns)
        assert locks.statistics().pending == 0
        started = monotonic()
        await locks.aclose()
        assert monotonic() - started < RELEASE_TIMEOUT / 2
    assert caplog.records == []


async def test_an_acquire_that_never_left_is_not_sent_later_nor_given_up(proxy: Proxy) -> None:
    async with lock_client(proxy.url, command_timeout=10) as locks:
        await cancelled(locks, CALLS["acquire"], turns=10)
        looking = asyncio.create_task(locks.lock("a").locked())
        await until(lambda: locks.statistics().pending == 1)
        proxy.restore()
        assert not await looking
        assert not list(filter(of_a_lock, proxy.requests))


async def test_only_the_acquire_that_was_cancelled_is_not_sent(proxy: Proxy) -> None:
    async with lock_client(proxy.url, command_timeout=10) as locks:
        lock = locks.lock("b", owner="me")
        acquiring = asyncio.create_task(lock.try_lock())
        await until(lambda: locks.statistics().pending == 1)
        await cancelled(locks, CALLS["acquire"], turns=0)
        assert locks.statistics().pending == 1
        proxy.restore()
        lease = await acquiring
        assert lease is not None
        await lease.release()
        assert [script(ACQUIRE)(request) for request in filter(of_a_lock, proxy.requests)] == [True, False]


async def test_an_acquire_that_left_once_is_given_up_though_it_waits_to_be_sent_again(
    proxy: Proxy, redis: Redis
) -> None:
    proxy.restore()
    async with lock_client(proxy.url, command_timeout=10) as locks:
        executed = proxy.install(Rule(script(ACQUIRE), drop_reply()))

        async def use() -> None:
            await locks.lock("a").acquire()

        using = asyncio.create_task(use())
        await executed.caught()
        proxy.black_hole()
        await until(lambda: locks.statistics().connections == 0)
        using.cancel()
        await asyncio.wait([using])
        assert await redis.exists("a")
        proxy.restore()
        await until(lambda: locks.statistics().pending == 0)
        assert not await redis.exists("a")


async def test_an_acquire_whose_earlier_try_may_still_arrive_is_given_up_though_the_last_never_left(
    proxy: Proxy, redis: Redis
) -> None:
    proxy.restore()
    async with lock_client(proxy.url, command_timeout=10) as locks, LockClient(redis) as other:
        theirs = await other.lock("a").acquire(lease=1)
        late = proxy.install(Rule(script(ACQUIRE), hold()))

        async def use() -> None:
            await locks.lock("a").acquire()

        using = asyncio.create_task(use())
        await all_parked(locks, 1)
        proxy.black_hole()
        proxy.reset_all()
        assert await theirs.lost == "expired"
        await freed(redis, "a")
        await until(lambda: locks.statistics().pending == 1)
        using.cancel()
        await asyncio.wait([using])
        proxy.restore()
        await until(lambda: locks.statistics().pending == 0)
        await late.deliver()
        assert not await redis.exists("a")


async def test_an_acquire_that_was_sent_is_given_up_though_it_was_refused_when_it_was_sent_again(
    proxy: Proxy, redis: Redis
) -> None:
    proxy.restore()
    async with lock_client(proxy.url, command_timeout=10) as locks:
        late = proxy.install(Rule(script(ACQUIRE), hold()))
        acquiring = asyncio.create_task(enter(locks.lock("a")))
        await late.caught()
        refused = proxy.install(Rule(script(ACQUIRE), refuse(b"BUSY for the moment"), ALWAYS))
        proxy.reset_all()
        await refused.caught()
        await until(lambda: bool(backend_of(locks).servers()[0].ordinary._resting))
        acquiring.cancel()
        await asyncio.wait([acquiring])
        await until(lambda: locks.statistics().pending == 0)
        await late.deliver()
        assert not await redis.exists("a")


async def test_an_acquire_that_failed_is_not_sent_by_a_connection_that_opens_before_the_next_tick(
    proxy: Proxy,
) -> None:
    """Some of many callers hear of the failure first, and the tick has not taken their calls away yet."""
    async with lock_client(proxy.url, release_timeout=0.1) as locks:
        backend = backend_of(locks)
        calls = [submit(backend, ACQUIRE, ("a", "b"), ("owner", "id", 1, 1, 1000, 1000, 1000), 0.1) for _ in range(150)]
        with pytest.raises(BackendError):
            await calls[-1]
        backend.servers()[0].ordinary.outgoing()
        assert [call for call in calls if call.ended and call.sent] == []


async def test_a_call_that_is_over_counts_no_more_though_an_earlier_one_is_to_be_sent_for_longer(proxy: Proxy) -> None:
    async with lock_client(proxy.url, release_timeout=0.1) as locks:
        backend = backend_of(locks)
        for seconds in (60, 0.3):
            call = submit(backend, RELEASE, ("a", "b"), patience=0.1, resend_until=monotonic() + seconds)
            with pytest.raises(BackendError):
                await call
        await until(lambda: locks.statistics().pending == 1, within=5)
