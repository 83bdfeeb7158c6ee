"""A server that hangs: the holder is told before the key expires, by the clocks of both."""

import asyncio
from contextlib import suppress
from time import monotonic

import pytest
from redis.asyncio import Redis

from aiolock import Lease, LeaseLostError, LockClient
from aiolock._scripts import ACQUIRE, RENEW
from tests.support.cancellation import cancelling
from tests.support.holding import Holder, client_behind
from tests.support.inside import hold_of, session_of
from tests.support.observe import renewed, until
from tests.support.proxy import ALWAYS, Proxy, Rule, delay, script, withhold_reply
from tests.support.told import Told

KEY = "job"
LEASE = 1.0
# Seconds by which the holder is told early: the loop of a busy machine lags behind by less.
DRIFT = 0.2


async def when_lost(lease: Lease) -> float:
    await lease.lost
    return monotonic()


async def when_gone(redis: Redis, lease: Lease) -> float:
    """Return the time when the server has no key any more; the holder must have learned of the loss by then."""
    while await redis.pttl(KEY) != -2:
        await asyncio.sleep(0.005)
    assert lease.lost.is_set()
    return monotonic()


async def measured(redis: Redis, lease: Lease) -> tuple[float, float]:
    """The seconds from now until the holder knows of the loss, and until the key is gone."""
    start = monotonic()
    lost, gone = await asyncio.wait_for(asyncio.gather(when_lost(lease), when_gone(redis, lease)), 10)
    return lost - start, gone - start


async def test_holders_are_told_at_the_deadline(redis: Redis, proxy: Proxy) -> None:
    """Nobody configured a margin; the default is too small to be measured here."""
    told = Told()
    async with client_behind(proxy, lease=LEASE, on_event=told.hear) as locks, Holder(locks.lock("body")) as holder:
        leases = [await locks.lock("watched").acquire(), await locks.lock("fixed").acquire(lease=LEASE)]
        await renewed(locks, 2)
        proxy.black_hole()
        in_time = await asyncio.gather(*(told.in_time(lease) for lease in (*holder.leases, *leases)))
        assert in_time == [True, True, True]
        await holder.lost()
        proxy.restore()


async def test_a_holder_is_told_at_the_deadline_though_somebody_cancels_every_watchdog(
    redis: Redis, proxy: Proxy
) -> None:
    told = Told()
    async with client_behind(proxy, lease=LEASE, on_event=told.hear) as locks:
        lease = await locks.lock(KEY).acquire()
        with cancelling("Watchdog._keep", 0, times=ALWAYS) as cancelled:
            assert await told.in_time(lease)
        assert len(cancelled) > 1


async def test_a_watched_lock_is_lost_before_its_key_expires(redis: Redis, proxy: Proxy) -> None:
    async with client_behind(proxy, lease=LEASE, drift=DRIFT) as locks:
        held = await locks.lock(KEY).acquire()
        await until(lambda: locks.statistics().renewals >= 1)
        proxy.black_hole()
        lost, gone = await measured(redis, held)
        assert lost < gone
        assert lost > 0.2 * LEASE, "the holder was told too early"


async def test_a_fixed_lease_is_lost_before_its_key_expires(redis: Redis, proxy: Proxy) -> None:
    async with client_behind(proxy, drift=DRIFT) as locks:
        held = await locks.lock(KEY).acquire(lease=LEASE)
        proxy.black_hole()
        lost, gone = await measured(redis, held)
        assert lost < gone
        assert lost > 0.2 * LEASE


async def test_the_margin_is_the_configured_one(redis: Redis, proxy: Proxy) -> None:
    async with client_behind(proxy, lease=2.0, drift=0.5) as locks:
        held = await locks.lock(KEY).acquire()
        proxy.black_hole()
        lost, gone = await measured(redis, held)
        assert gone - lost > 0.25


async def test_leases_of_many_names_count_as_over_sooner_because_their_holders_are_told_in_turn(
    locks: LockClient,
) -> None:
    async with locks.multi(*(f"order:{number}" for number in range(500))).hold(lease=4) as lease:
        margins = {hold.expires - hold.deadline for hold in map(hold_of, lease.leases.values())}
    assert min(margins) == pytest.approx(max(margins)) == pytest.approx(0.15)


async def test_a_lease_counts_from_before_the_acquire_was_sent_when_the_answer_is_late(
    redis: Redis, proxy: Proxy
) -> None:
    """The time of the key has begun with the grant, of which the holder hears much later."""
    withheld = proxy.install(Rule(script(ACQUIRE), withhold_reply()))

    async def let_go() -> None:
        await withheld.caught()
        await asyncio.sleep(0.6)
        withheld.let_go()

    async with client_behind(proxy, lease=3.0, command_timeout=10, drift=DRIFT) as locks, asyncio.TaskGroup() as group:
        group.create_task(let_go())
        held = await locks.lock(KEY).acquire(lease=3)
        assert held.remaining < 2.4
        proxy.black_hole()
        lost, gone = await measured(redis, held)
        assert lost < gone


async def test_a_lease_counts_from_before_the_acquire_was_sent_when_it_was_long_on_its_way(
    redis: Redis, proxy: Proxy
) -> None:
    proxy.install(Rule(script(ACQUIRE), delay(0.4)))
    async with client_behind(proxy, command_timeout=10, drift=DRIFT) as locks:
        held = await locks.lock(KEY).acquire(lease=1)
        assert held.remaining < 0.65
        lost, gone = await measured(redis, held)
        assert lost < gone - 0.4


async def test_a_renewal_that_was_executed_and_never_acknowledged_is_not_relied_on(redis: Redis, proxy: Proxy) -> None:
    async with client_behind(proxy, lease=0.9, drift=DRIFT) as locks:
        held = await locks.lock(KEY).acquire()
        withheld = proxy.install(Rule(script(RENEW), withhold_reply(), times=100))
        await withheld.caught()
        proxy.black_hole()
        lost, gone = await measured(redis, held)
        assert lost < gone - 0.35
        assert locks.statistics().renewals == 0


async def test_a_scope_is_cancelled_before_its_key_expires(redis: Redis, proxy: Proxy) -> None:
    told: list[float] = []
    async with client_behind(proxy, lease=1.0, drift=0.1) as locks:

        async def work() -> None:
            async with locks.lock(KEY) as lease:
                held.set_result(lease)
                try:
                    await asyncio.sleep(10)
                finally:
                    told.append(monotonic())

        held = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(work())
        lease: Lease = await held
        proxy.black_hole()
        gone = await when_gone(redis, lease)
        assert told
        assert told[0] < gone
        proxy.restore()
        await asyncio.wait([task])
        assert "LeaseLostError" in repr(task.exception())


async def test_an_acquire_whose_answer_comes_after_the_lease_is_tried_again(redis: Redis, proxy: Proxy) -> None:
    """The granted lease is over when the answer arrives: the caller must not get it, dead or seemingly alive."""
    withheld = proxy.install(Rule(script(ACQUIRE), withhold_reply()))
    async with client_behind(proxy, command_timeout=10, drift=DRIFT) as locks:
        asyncio.get_running_loop().call_later(0.7, withheld.let_go)
        held = await locks.lock(KEY).acquire(lease=0.5)
        assert not held.lost.is_set()
        assert int(await redis.hget(KEY, "aiolock:token") or 0) == held.token
        lost, gone = await measured(redis, held)
        assert lost < gone


async def test_a_lease_that_turns_out_to_be_shorter_is_lost_as_early(redis: Redis, proxy: Proxy) -> None:
    """Somebody shortens the lease on the server; the answer to a nested acquire says so."""
    async with client_behind(proxy, drift=DRIFT) as locks:
        lock = locks.lock(KEY)
        lease = await lock.acquire(lease=60)
        await redis.pexpire(KEY, 1000)
        await lock.acquire(lease=0.1)
        lost, gone = await measured(redis, lease)
        assert lost <= gone < 10


async def test_a_fixed_lease_that_turns_out_to_be_shorter_is_lost_as_early(redis: Redis, proxy: Proxy) -> None:
    """Nothing renews it: after an outage, the client asks once whether the server still has it."""
    async with client_behind(proxy, drift=DRIFT) as locks:
        lease = await locks.lock(KEY).acquire(lease=60)
        await redis.pexpire(KEY, 1000)
        session_of(locks).check_holds(lambda key: True)
        lost, gone = await measured(redis, lease)
        assert lost <= gone < 10


async def test_an_answer_that_comes_after_the_deadline_does_not_take_the_loss_back(redis: Redis, proxy: Proxy) -> None:
    """The body swallows its cancellation."""
    # The watchdog waits for the answer to its third renewal as the deadline comes.
    async with client_behind(proxy, lease=3.0, command_timeout=10, drift=0.55) as locks:
        withheld = proxy.install(Rule(script(RENEW), withhold_reply(), times=100))
        with pytest.raises(LeaseLostError):
            async with locks.lock(KEY) as lease:
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(30)
                assert hold_of(lease).watch.unanswered
                proxy.clear_rules()
                withheld.let_go()
                await asyncio.sleep(0.2)
                assert not lease.remaining
