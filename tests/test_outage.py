"""A server that is out of reach for a whole `command_timeout`: later calls fail at once, until it is back."""

import asyncio
from time import monotonic

import pytest
from redis import ConnectionError as RedisConnectionError
from redis.asyncio import Redis

from aiolock import BackendError, LockClient, LockConfig
from aiolock._backend import Call, Client
from aiolock._config import Timing
from aiolock._redis.backend import OneServer
from aiolock._redis.connector import Connector
from aiolock._redis.outage import Outage
from aiolock._redis.pipeline import Pipeline
from aiolock._scripts import PING
from tests.support.holding import client_behind
from tests.support.inside import backend_of
from tests.support.observe import until
from tests.support.proxy import Proxy

PATIENCE = 2.0


async def failing(locks: LockClient) -> None:
    with pytest.raises(BackendError):
        await locks.lock("orders").try_lock()


async def works(locks: LockClient) -> bool:
    try:
        await locks.ping()
    except BackendError:
        return False
    return True


@pytest.mark.parametrize("silent", [False, True])
async def test_calls_fail_at_once_until_the_server_is_back(redis: Redis, proxy: Proxy, silent: bool) -> None:
    async with client_behind(proxy, command_timeout=PATIENCE) as locks:
        await locks.ping()
        if silent:
            proxy.black_hole()
        else:
            await proxy.cut_off()
        # The first call may still find the old connection, and no failed attempt.
        for _ in range(2):
            await failing(locks)
        started = monotonic()
        for _ in range(5):
            await failing(locks)
        assert monotonic() - started < PATIENCE
        await proxy.heal()
        await until(lambda: works(locks), within=10)
        async with locks.lock("orders").hold(wait=0):
            pass


async def test_a_give_up_is_tried_further_without_a_waiter(redis: Redis, proxy: Proxy) -> None:
    async with client_behind(proxy, release_timeout=30) as locks:
        lease = await locks.lock("orders").acquire()
        await proxy.cut_off()
        for _ in range(2):
            await failing(locks)
        started = monotonic()
        with pytest.raises(BackendError):
            await lease.release()
        assert monotonic() - started < 15
        await proxy.heal()
        await until(lambda: _is_free(redis), within=20)


async def _is_free(redis: Redis) -> bool:
    return not await redis.exists("orders")


async def test_a_call_now_and_then_is_not_kept_waiting_each_time(redis: Redis, proxy: Proxy) -> None:
    """A probe for readiness calls like that: between two probes nobody tries to connect."""
    async with client_behind(proxy, command_timeout=PATIENCE) as locks:
        await locks.ping()
        await proxy.cut_off()
        assert not await works(locks)
        for _ in range(2):
            await asyncio.sleep(1.5 * PATIENCE)
            started = monotonic()
            assert not await works(locks)
            assert monotonic() - started < PATIENCE


class Clock:
    """A clock that a test sets."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("aiolock._redis.outage.monotonic", clock)
    return clock


def failing_outage(clock: Clock) -> Outage:
    """Attempts have failed for five seconds, the last of them a while before the end."""
    outage = Outage(5)
    for _ in range(4):
        outage.failed(0)
        clock.now += 1.25
    return outage


def test_one_connection_that_broke_is_no_outage(clock: Clock) -> None:
    outage = Outage(5)
    outage.failed(0)
    clock.now += 20
    assert not outage.lasts


def test_silence_counts_from_its_beginning(clock: Clock) -> None:
    outage = Outage(5)
    for _ in range(3):
        clock.now += 2
        outage.failed(2)
    assert outage.lasts


def test_an_outage_lasts_until_the_server_answers(clock: Clock) -> None:
    outage = failing_outage(clock)
    assert outage.lasts
    outage.over(0)
    assert not outage.lasts


def test_an_attempt_may_take_twice_as_long_as_the_quickest_one(clock: Clock) -> None:
    """A slow network needs that time; an attempt that met a pause counts for nothing. The least is 0.2 seconds."""
    outage = Outage(5)
    times = [outage.one_attempt]
    for took in (4, 1.5, 2, 0.01, 1.5):
        outage.over(took)
        times.append(outage.one_attempt)
    assert times == [0.2, 0.2, 3, 3, 0.2, 0.2]


async def test_a_connection_that_was_closed_while_nobody_needed_it_is_no_part_of_an_outage(
    redis: Redis, clock: Clock
) -> None:
    """Servers and networks close idle connections. Later one attempt fails: it is the first failure that is known."""
    timing = Timing.of(LockConfig(command_timeout=5))
    topology = OneServer(Connector.of(redis, None, 5), timing, Client())
    [server] = topology.servers()
    server.ordinary.broken(RedisConnectionError("closed"), 0)
    clock.now += 20
    server.ordinary.broken(RedisConnectionError("refused"), 0.001)
    call = Call(PING, ("orders",), (), deadline := monotonic() + timing.command_timeout)
    server.submit(call)
    await topology.aclose()
    assert call.deadline == deadline


def test_nothing_is_known_after_a_long_rest(clock: Clock) -> None:
    outage = failing_outage(clock)
    clock.now += 30
    assert outage.lasts
    clock.now += 30
    assert not outage.lasts
    outage.failed(0)
    assert not outage.lasts


async def test_ping_changes_nothing(redis: Redis, locks: LockClient) -> None:
    await locks.ping()
    assert not await redis.keys("*")
    await redis.set("aiolock-ping", "somebody else's")
    await locks.ping()


async def test_a_release_that_failed_and_is_still_to_be_sent_costs_a_tick_nothing(
    redis: Redis, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The release is tried for a minute after its caller was told, and no tick of that minute looks at it."""
    looks: list[Pipeline] = []
    look = Pipeline._all

    def counted(pipeline: Pipeline) -> list[Call]:
        looks.append(pipeline)
        return look(pipeline)

    async with client_behind(proxy, release_timeout=0.3) as locks:
        leases = [await locks.lock(f"orders:{number}").acquire() for number in range(20)]
        await proxy.cut_off()
        released = await asyncio.gather(*(lease.release() for lease in leases), return_exceptions=True)
        assert all(isinstance(each, BackendError) for each in released)
        pipeline = backend_of(locks).servers()[0].ordinary
        await until(lambda: len(pipeline._overdue) == 20)
        monkeypatch.setattr(Pipeline, "_all", counted)
        for _ in range(3):
            pipeline.tick(monotonic())
        assert not looks
        await proxy.heal()

        async def are_free() -> bool:
            return not await redis.keys("orders:*")

        await until(are_free, within=10)
