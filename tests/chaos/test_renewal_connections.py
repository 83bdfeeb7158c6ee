"""A renewal takes any open connection: no lock is lost because a new connection cannot be made."""

import asyncio
import errno
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from time import monotonic

import pytest
from redis.asyncio import Redis

from aiolock import LeaseLostError, LockClient, LockEvent, Lost, RenewalLate
from aiolock._embedded_server import Server
from aiolock._scripts import ACQUIRE, RENEW
from tests.support.holding import client_behind, lock_client
from tests.support.inside import hold_of
from tests.support.observe import renewed, until
from tests.support.proxy import ALWAYS, Proxy, Rule, anything, command, delay, reset, script, withhold_reply

KEY = "job"


def connections_of(proxy: Proxy, wanted: Callable[..., bool]) -> list[int]:
    """The connection of each of these requests."""
    return [request.connection for request in proxy.requests if wanted(request)]


async def renewals_connected(locks: LockClient) -> None:
    """Return when the connection for renewals is open beside the ordinary one; no task waits for a message."""
    await until(lambda: locks.statistics().connections == 2)


# The client has only the open connection.


@asynccontextmanager
async def refused(server: Server, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Connecting fails as when the network does not let anybody through, or a name is not resolved."""

    async def fail(*_: object, **__: object) -> object:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(asyncio, "open_connection", fail)
        yield


@asynccontextmanager
async def password_changed(server: Server, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Open connections stay authenticated."""
    async with Redis.from_url(server.url) as admin:
        await admin.config_set("requirepass", "another")
        yield
        await admin.config_set("requirepass", "")


@asynccontextmanager
async def full(server: Server, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """The server takes no further client."""
    async with Redis.from_url(server.url) as admin:
        clients = (await admin.info("clients"))["connected_clients"]
        await admin.config_set("maxclients", clients)
        yield
        await admin.config_set("maxclients", 10_000)


@pytest.mark.parametrize("hinder", [refused, password_changed, full])
async def test_a_lock_is_kept_while_no_new_connection_can_be_made(
    own: Server, monkeypatch: pytest.MonkeyPatch, hinder: Callable[..., Awaitable[None]]
) -> None:
    async with lock_client(own.url, lease=1.5) as locks:
        await locks.ping()
        async with hinder(own, monkeypatch):  # type: ignore[attr-defined]
            plain = await locks.lock(KEY).acquire()
            permit = await locks.semaphore("pool", 1).acquire()
            reader = await locks.read_write_lock("book").read.acquire()
            await until(lambda: locks.statistics().renewals >= 9)
            assert locks.statistics().connections == 1
            for lease in (plain, permit, reader):
                lease.check()
        await renewals_connected(locks)
        for lease in (plain, permit, reader):
            await lease.release()


async def test_a_renewal_by_hand_does_not_wait_for_a_new_connection(proxy: Proxy, redis: Redis) -> None:
    # Silence is no failure for ten seconds.
    async with client_behind(proxy, lease=60, command_timeout=30) as locks:
        lease = await locks.lock(KEY).acquire(lease=30)
        await proxy.refuse()
        async with asyncio.timeout(8):
            await lease.renew(3600)
        assert lease.remaining > 3000
        await proxy.accept()
        await lease.release()


async def test_a_connection_that_cannot_be_made_puts_no_lock_in_doubt(proxy: Proxy, redis: Redis) -> None:
    """The open connection would have failed if the server had forgotten anything."""
    async with client_behind(proxy) as locks:
        lease = await locks.lock(KEY).acquire(lease=60)
        failing = proxy.install(Rule(command(b"CLIENT"), reset(), times=ALWAYS))
        await lease.renew()
        await failing.caught(4)
        assert sum(map(script(RENEW), proxy.requests)) == 1
        await lease.release()


# The connection for renewals is made early.


async def test_the_connection_for_renewals_is_open_before_the_first_one(proxy: Proxy, redis: Redis) -> None:
    async with client_behind(proxy, lease=6) as locks, locks.lock(KEY):
        assert locks.statistics().connections == 1, "a short section has made the connection for renewals"
        await renewals_connected(locks)
        assert locks.statistics().renewals == 0
        await renewed(locks, 1)
        assert connections_of(proxy, script(RENEW)) != connections_of(proxy, script(ACQUIRE))


# The ordinary connection is silent.


async def test_a_renewal_that_the_ordinary_connection_does_not_answer_goes_by_the_new_one(
    proxy: Proxy, redis: Redis
) -> None:
    async with client_behind(proxy, command_timeout=30) as locks:
        lease = await locks.lock(KEY).acquire(lease=20)
        assert proxy.half_open(lambda _: True) == 1
        async with asyncio.timeout(8):
            await lease.renew(3600)
        assert lease.remaining > 3000
        # The half-open connection ends, so that the release goes by a new one.
        await proxy.cut_off()
        await proxy.accept()
        await lease.release()


async def test_a_renewal_that_its_own_connection_does_not_answer_goes_by_the_ordinary_one(
    proxy: Proxy, redis: Redis
) -> None:
    async with client_behind(proxy, lease=3, command_timeout=30) as locks:
        lease = await locks.lock(KEY).acquire(lease=30)
        await lease.renew(30)
        await renewals_connected(locks)
        [ordinary] = connections_of(proxy, script(ACQUIRE))
        await proxy.refuse()
        assert proxy.half_open(lambda connection: connection.id != ordinary) == 1
        async with asyncio.timeout(8):
            await lease.renew(3600)
        assert connections_of(proxy, script(RENEW))[-1] == ordinary
        await proxy.accept()
        await lease.release()


async def test_a_renewal_by_both_connections_counts_from_before_the_answered_copy_was_sent(
    proxy: Proxy, redis: Redis
) -> None:
    """The ordinary connection is slow to answer, and the one for renewals is made meanwhile."""
    async with client_behind(proxy, lease=3, command_timeout=30) as locks:
        lease = await locks.lock(KEY).acquire(lease=30)
        first, others = (proxy.install(Rule(script(RENEW), withhold_reply(), times=times)) for times in (1, 100))
        await proxy.refuse()
        renewing = asyncio.create_task(lease.renew(30))
        await first.caught()
        between = monotonic()
        await proxy.accept()
        await others.caught()
        first.let_go()
        await renewing
        assert hold_of(lease).confirmed_at < between
        others.let_go()
        await lease.release()


@pytest.mark.slow
async def test_an_answer_may_take_longer_than_half_the_time_from_one_renewal_to_the_next(
    proxy: Proxy, redis: Redis
) -> None:
    """Each answer takes 0.6 seconds."""
    proxy.install(Rule(anything, delay(0.6), times=ALWAYS))
    async with client_behind(proxy, lease=3, command_timeout=15, release_timeout=15) as locks:
        async with locks.lock(KEY):
            await renewed(locks, 3)
        assert locks.statistics().losses == 0
    assert len({request.connection for request in proxy.requests}) == 2, "the client took a connection for silent"


async def test_a_renewal_is_not_sent_by_both_connections_where_both_answer(proxy: Proxy, redis: Redis) -> None:
    async with client_behind(proxy, lease=3, renew_interval=0.2) as locks, locks.lock(KEY):
        await renewals_connected(locks)
        before = len(proxy.requests)
        await renewed(locks, 3)
        await until(lambda: locks.statistics().pending == 0)
        assert len(set(connections_of(proxy, lambda r: script(RENEW)(r) and r in proxy.requests[before:]))) == 1


async def test_a_call_that_was_answered_by_one_connection_is_not_left_on_the_other(proxy: Proxy, redis: Redis) -> None:
    async with client_behind(proxy) as locks:
        lease = await locks.lock(KEY).acquire(lease=60)
        await proxy.refuse()
        await lease.renew()
        assert locks.statistics().pending == 0
        await proxy.accept()
        await renewals_connected(locks)
        await lease.release()
        assert len(connections_of(proxy, script(RENEW))) == 1


# The holder's news.


async def test_a_loss_says_why_no_connection_could_be_made(own: Server) -> None:
    async with Redis.from_url(own.url) as admin, lock_client(own.url, lease=1.5) as locks:
        lease = await locks.lock(KEY).acquire()
        await admin.config_set("requirepass", "another")
        await admin.client_kill_filter(_type="normal", skipme=True)
        assert await lease.lost == "unreachable"
        with pytest.raises(LeaseLostError, match="Authentication required"):
            lease.check()
        await admin.config_set("requirepass", "")
        with pytest.raises(LeaseLostError):
            await lease.release()


async def test_a_loss_after_silence_says_that_no_reply_came(proxy: Proxy, redis: Redis) -> None:
    async with client_behind(proxy, lease=1.5) as locks:
        lease = await locks.lock(KEY).acquire()
        await lease.renew()
        await renewals_connected(locks)
        proxy.black_hole()
        assert await lease.lost == "unreachable"
        with pytest.raises(LeaseLostError, match="no reply within"):
            lease.check()


async def test_an_acknowledged_renewal_ends_the_trouble(own: Server) -> None:
    events: list[LockEvent] = []
    async with (
        Redis.from_url(own.url) as admin,
        lock_client(own.url, lease=4, renew_interval=0.2, on_event=events.append) as locks,
    ):
        lease = await locks.lock(KEY).acquire()
        await admin.config_set("min-replicas-to-write", 1)
        await until(lambda: any(isinstance(event, RenewalLate) for event in events))
        await admin.config_set("min-replicas-to-write", 0)
        await renewed(locks, 2)
        await admin.delete(KEY)
        assert await lease.lost == "expired"
    [lost] = [event for event in events if isinstance(event, Lost)]
    assert lost.trouble is None
    late = next(event for event in events if isinstance(event, RenewalLate))
    assert str(late.trouble).startswith("NOREPLICAS")
