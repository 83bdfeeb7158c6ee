"""A server that refuses some commands: it forbids a channel, or refuses writes that would take memory."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis import OutOfMemoryError
from redis.asyncio import Redis

from aiolock import BackendError, LeaseLostError, LockClient
from aiolock._embedded_server import Server
from tests.contract.kinds import LONG, Kind, each_leased
from tests.support.calls import acquire_and_release
from tests.support.holding import lock_client
from tests.support.inside import keys_of, notifier_of
from tests.support.observe import subscribed_clients, until

PATIENCE = 0.2


@pytest.fixture
async def admin(own: Server) -> AsyncIterator[Redis]:
    async with Redis.from_url(own.url) as client:
        yield client


@pytest.fixture
async def limited(own: Server, admin: Redis) -> AsyncIterator[LockClient]:
    """A client whose user may receive the messages of names that begin with "ok" only."""
    channels = ["redisson_lock__channel:{ok*"]
    await admin.acl_setuser(
        "limited",
        enabled=True,
        passwords=["+secret"],
        categories=["+@all"],
        keys=["*"],
        reset_channels=True,
        channels=channels,
    )
    url = own.url.replace("redis://", "redis://limited:secret@")
    async with lock_client(url, command_timeout=3 * PATIENCE) as client:
        yield client


async def test_a_forbidden_channel_harms_no_other_name(
    limited: LockClient, admin: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    locks = [limited.lock(name) for name in ("ok 1", "forbidden 1", "forbidden 2", "ok 2")]
    notifier = notifier_of(limited)

    def confirmed(name: str) -> bool:
        return notifier.confirmed(keys_of(limited.lock(name)).channel)

    async with LockClient(admin) as other, asyncio.timeout(20):
        for lock in locks:
            await other.lock(lock.name).acquire(lease=60)
        waiting = {lock.name: asyncio.create_task(acquire_and_release(lock)) for lock in locks}
        await until(lambda: confirmed("ok 1") and confirmed("ok 2"))
        [connection] = await subscribed_clients(admin)

        async def made_again() -> bool:
            return await subscribed_clients(admin) not in ([], [connection])

        await asyncio.sleep(5 * PATIENCE)
        assert await subscribed_clients(admin) == [connection], "a refusal was taken for a dead connection"
        await other.lock("ok 1").release()
        await waiting["ok 1"]

        await admin.client_kill_filter(_id=connection)
        await until(made_again)
        await until(lambda: confirmed("ok 2"))
        await other.lock("ok 2").release()
        await waiting["ok 2"]

        for task in waiting.values():
            task.cancel()
        await asyncio.wait(waiting.values())
    assert sum("unlock messages cannot be received" in record.getMessage() for record in caplog.records) == 1


@each_leased
async def test_a_server_that_is_out_of_memory_serves_holders(own: Server, admin: Redis, kind: Kind) -> None:
    async with lock_client(own.url, lease=0.9) as locks:
        lease = await kind.take(locks)
        inner = await kind.take(locks) if kind.reentrant else None
        await admin.config_set("maxmemory", "1")
        with pytest.raises(OutOfMemoryError):
            await admin.set("anything", "more")
        before = locks.statistics().renewals
        await until(lambda: locks.statistics().renewals >= before + 4)
        if kind.reentrant:
            await kind.give(locks, await kind.take(locks))
            await kind.give(locks, inner)
        adopted = await kind.adopt(locks, await lease.detach(LONG))
        await adopted.renew(LONG)
        await kind.give(locks, adopted)
        assert not await kind.of(locks).locked()


@each_leased
async def test_a_server_that_is_out_of_memory_takes_back_by_force(own: Server, admin: Redis, kind: Kind) -> None:
    async with lock_client(own.url) as locks:
        lease = await kind.take(locks)
        await admin.config_set("maxmemory", "1")
        assert await kind.of(locks).force_release()
        with pytest.raises(LeaseLostError):
            await lease.release()


async def test_a_command_that_is_forbidden_is_an_error_and_no_loss(own: Server, admin: Redis) -> None:
    await admin.acl_setuser(
        "reader", enabled=True, passwords=["+secret"], categories=["+@all"], keys=["*"], channels=["*"]
    )
    async with lock_client(own.url.replace("redis://", "redis://reader:secret@"), command_timeout=1) as client:
        lease = await client.lock("a").acquire()
        await admin.acl_setuser("reader", enabled=True, commands=["-hmget"])
        with pytest.raises(BackendError, match=r"permission|can't run this command"):
            await lease.renew()
        lease.check()
        await admin.acl_setuser("reader", enabled=True, commands=["+hmget"])
        await lease.release()
