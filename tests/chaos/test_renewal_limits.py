"""The watchdog must not revive a lost lock, or let one name's trouble be another's."""

import asyncio
import time
from collections.abc import Sequence

import pytest
from redis.asyncio import Redis

from aiolock import LeaseLostError, LockClient
from aiolock._backend import Call
from aiolock._core.held import Renewal
from aiolock._embedded_server import Server
from aiolock._scripts import RELEASE, RELEASE_CLEAN, RENEW
from tests.support.faults import Predicate
from tests.support.holding import client_behind, lock_client, seize
from tests.support.inside import session_of
from tests.support.observe import answered, until
from tests.support.proxy import ALWAYS, Proxy, Rule, delay, hold, reset, script, withhold_reply

KEY = "job"


def renewal_of(name: str) -> Predicate:
    return lambda request: script(RENEW)(request) and name.encode() in request.args[3:]


async def test_a_lock_that_was_deleted_between_renewals_is_not_revived(redis: Redis, proxy: Proxy) -> None:
    async with client_behind(proxy, lease=5, renew_interval=0.4) as locks:
        lease = await locks.lock(KEY).acquire()
        await until(lambda: locks.statistics().renewals == 1)
        await redis.delete(KEY)
        assert await asyncio.wait_for(lease.lost, 5) == "expired"
        assert not await redis.exists(KEY)
        sent = len(proxy.requests)
        # The watchdog would renew twice in this time.
        await asyncio.sleep(1.0)
        assert not [request for request in proxy.requests[sent:] if script(RENEW)(request)]
        assert not await redis.exists(KEY)


async def test_a_renewal_that_arrives_after_the_loss_does_not_let_the_lock_live_on(redis: Redis, proxy: Proxy) -> None:
    """The renewal comes while the key is still there, so that the holder frees the lock as it learns of the loss."""
    held = proxy.install(Rule(script(RENEW), hold(), times=ALWAYS))
    release = proxy.install(Rule(script(RELEASE, RELEASE_CLEAN), delay(0.2)))
    async with client_behind(proxy, lease=1, drift=0.24) as locks:
        lease = await locks.lock(KEY).acquire()
        await held.caught()
        assert await asyncio.wait_for(lease.lost, 5) == "unreachable"
        await held.deliver()
        await release.caught()
        await answered(locks)
        assert not await redis.exists(KEY), "the lock was not freed at once"


async def test_a_renewal_that_arrives_when_the_key_is_gone_creates_nothing(redis: Redis, proxy: Proxy) -> None:
    held = proxy.install(Rule(script(RENEW), hold(), times=ALWAYS))
    async with client_behind(proxy, lease=0.6) as locks:
        lease = await locks.lock(KEY).acquire()
        await held.caught()
        await asyncio.wait_for(lease.lost, 5)
        await answered(locks)
        await held.deliver()
        assert not await redis.exists(KEY)


@pytest.mark.parametrize("redisson", [False, True])
async def test_a_renewal_that_arrives_when_another_has_the_lock_leaves_it_alone(
    redis: Redis, proxy: Proxy, redisson: bool
) -> None:
    held = proxy.install(Rule(script(RENEW), hold(), times=ALWAYS))
    async with client_behind(proxy, lease=6, renew_interval=0.2) as locks:
        await locks.lock(KEY).acquire()
        await held.caught()
        await seize(redis, KEY, redisson=redisson)
        await redis.pexpire(KEY, 3000)
        before = await redis.hgetall(KEY)
        await held.deliver()
        assert await redis.hgetall(KEY) == before
        assert await redis.pttl(KEY) <= 3000


async def test_a_name_whose_renewals_fail_delays_no_other(own: Server) -> None:
    """The server refuses one of them, by its access rules, again and again."""
    async with Redis.from_url(own.url) as admin, lock_client(own.url, lease=0.9) as locks:
        bad = await locks.lock("bad").acquire()
        good = [await locks.lock(f"good:{number}").acquire() for number in range(3)]
        await may_use(admin, "good*", "aiolock*")
        assert await asyncio.wait_for(bad.lost, 5) == "unreachable"
        await until(lambda: locks.statistics().renewals >= 12, within=10)
        assert not any(lease.lost.is_set() for lease in good)
        assert locks.statistics().losses == 1
        await may_use(admin, "*")


async def may_use(admin: Redis, *keys: str) -> None:
    """Let every client do everything, with these keys only."""
    await admin.acl_setuser(
        "default", enabled=True, nopass=True, keys=keys, reset_keys=True, commands=["+@all"], channels=["*"]
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "bad_first"), [(reset, True), (hold, False), (withhold_reply, True), (withhold_reply, False)]
)
async def test_a_name_whose_renewals_break_the_connection_delays_no_other(
    redis: Redis, proxy: Proxy, how: type[object], bad_first: bool
) -> None:
    """Each renewal of "bad" ends or silences the connection by which the renewals of "good" go, too."""
    names = ["bad", "good"] if bad_first else ["good", "bad"]
    async with client_behind(proxy, lease=4.0) as locks:
        leases = {name: await locks.lock(name).acquire() for name in names}
        proxy.install(Rule(renewal_of("bad"), how(), times=ALWAYS))  # type: ignore[arg-type]
        assert await asyncio.wait_for(leases["bad"].lost, 10) == "unreachable"
        await until(lambda: locks.lock("good").statistics().renewals >= 5, within=20)
        assert not leases["good"].lost.is_set()


async def test_ordinary_commands_that_get_no_answer_delay_no_renewal(redis: Redis, proxy: Proxy) -> None:
    stuck = proxy.install(Rule(script(RELEASE, RELEASE_CLEAN), withhold_reply(), times=ALWAYS))
    async with client_behind(proxy, lease=0.6) as locks:
        lease, other = await locks.lock(KEY).acquire(), await locks.lock("other").acquire(lease=10)
        releasing = asyncio.create_task(other.release())
        await stuck.caught()
        before = locks.statistics().renewals
        await until(lambda: locks.statistics().renewals >= before + 6)
        lease.check()
        assert len(stuck.requests) > 1, "the stuck release was not sent again"
        proxy.clear_rules()
        stuck.let_go()
        await asyncio.wait([releasing])
        releasing.exception()


async def test_a_renewal_whose_reply_is_read_after_the_lease_is_over_does_not_revive_it(
    locks: LockClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reply has arrived, and before its waiter goes on, the loop is blocked past the deadline."""
    commands = session_of(locks).commands
    renew = commands.renew
    lease = await locks.lock(KEY).acquire(lease=0.5)

    def block(call: Call) -> None:
        assert call.error is None
        time.sleep(lease.remaining + 0.02)
        assert lease.lost.is_set()

    def renew_and_block(renewals: Sequence[Renewal], patience: float) -> Call:
        call = renew(renewals, patience)
        call.when_ended(block)
        return call

    monkeypatch.setattr(commands, "renew", renew_and_block)
    with pytest.raises(LeaseLostError):
        await lease.renew(60)
    assert lease.lost.is_set()
    with pytest.raises(LeaseLostError):
        lease.check()
    assert locks.statistics().losses == 1
