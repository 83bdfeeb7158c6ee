"""Calls of one script that leave together are one command; however it ends, each call has an answer of its own."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from aiolock import AsyncRLock, BackendError, Lease, LockClient
from aiolock._embedded_server import Server
from aiolock._scripts import ACQUIRE, RELEASE_CLEAN
from tests.support.faults import Action, script
from tests.support.holding import client_behind
from tests.support.observe import commandstats
from tests.support.proxy import Connection, Proxy, Request, Rule, drop_reply

MANY = 20


@pytest.fixture
async def client(proxy: Proxy) -> AsyncIterator[LockClient]:
    async with client_behind(proxy) as client:
        # The first use of a client sends more, and after one or two calls the first of many leave by themselves.
        await release(await together(handles(client, 3)))
        yield client


def handles(client: LockClient, number: int = MANY) -> list[AsyncRLock]:
    return [client.lock(f"name-{each}", owner="job") for each in range(number)]


async def together(locks: list[AsyncRLock]) -> list[Lease]:
    return await asyncio.gather(*(lock.acquire() for lock in locks))


async def release(leases: list[Lease]) -> None:
    await asyncio.gather(*(lease.release() for lease in leases))


async def scripts(redis: Redis) -> int:
    stats = await commandstats(redis)
    return stats.get("eval", 0) + stats.get("evalsha", 0)


@pytest.mark.parametrize(("calls", "commands"), [(1, 1), (2, 1), (32, 1), (33, 2), (100, 4)])
async def test_calls_that_leave_together_are_one_command(
    client: LockClient, redis: Redis, calls: int, commands: int
) -> None:
    # The script is sent by its source, and then by its digest.
    for _ in range(2):
        before, said = await scripts(redis), client.statistics().commands
        leases = await together(handles(client, calls))
        assert await scripts(redis) - before == commands
        assert client.statistics().commands - said == calls, "each call counts"
        assert await redis.exists(*(lease.name for lease in leases)) == calls
        before = await scripts(redis)
        await release(leases)
        assert await scripts(redis) - before == commands
        assert await redis.exists(*(lease.name for lease in leases)) == 0


async def test_each_is_answered_for_itself(client: LockClient, locks: LockClient) -> None:
    theirs = [lock for number, lock in enumerate(handles(locks)) if number % 3 == 0]
    taken = await together(theirs)
    granted = await asyncio.gather(*(lock.try_lock() for lock in handles(client)))
    assert [lease is None for lease in granted] == [number % 3 == 0 for number in range(MANY)]
    assert all(lease.name == f"name-{number}" for number, lease in enumerate(granted) if lease is not None)
    await release([lease for lease in granted if lease is not None])
    await release(taken)


async def test_scripts_that_the_server_forgot_are_sent_again(client: LockClient, redis: Redis) -> None:
    await release(await together(handles(client)))
    await redis.script_flush()
    leases = await together(handles(client))
    await redis.script_flush()
    await release(leases)
    before = await scripts(redis)
    await release(await together(handles(client)))
    assert await scripts(redis) - before == 2, "the acquires are one command again, and so are the releases"


async def test_a_call_whose_keys_are_wrong_fails_alone(client: LockClient, redis: Redis) -> None:
    await redis.set("aiolock_token:{name-7}", "no sorted set")
    granted = await asyncio.gather(*(lock.acquire() for lock in handles(client)), return_exceptions=True)
    failed = [number for number, lease in enumerate(granted) if isinstance(lease, BaseException)]
    assert failed == [7]
    with pytest.raises(BackendError, match="acquire of 'name-7' failed: WRONGTYPE"):
        raise next(each for each in granted if isinstance(each, BaseException))
    await release([lease for lease in granted if isinstance(lease, Lease)])
    await redis.delete("aiolock_token:{name-7}")
    async with client.lock("name-7"):
        pass


async def test_a_call_that_is_forbidden_fails_alone(redis: Redis, server: Server) -> None:
    names = [
        key for number in range(MANY) if number != 7 for key in (f"name-{number}", f"aiolock_token:{{name-{number}}}")
    ]
    await redis.acl_setuser(
        "narrow",
        enabled=True,
        passwords=["+pass"],
        keys=names,
        channels=["*"],
        commands=["+@all"],
    )
    try:
        narrow = server.url.replace("redis://", "redis://narrow:pass@")
        async with LockClient.from_url(narrow) as client:
            granted = await asyncio.gather(*(lock.acquire() for lock in handles(client)), return_exceptions=True)
            failed = [number for number, lease in enumerate(granted) if isinstance(lease, BaseException)]
            assert failed == [7]
            assert "NOPERM" in str(granted[7]) or "permission" in str(granted[7]).lower()
            await release([lease for lease in granted if isinstance(lease, Lease)])
    finally:
        await redis.acl_deluser("narrow")


@pytest.mark.parametrize("number", [1, 3])
async def test_a_release_that_is_refused_half_way_raises(redis: Redis, server: Server, number: int) -> None:
    """The lock is free then, but no waiter was told: a second try would succeed as if nothing had been refused."""
    await redis.acl_setuser(
        "narrowed", enabled=True, passwords=["+pass"], keys=["*"], channels=["*"], commands=["+@all"]
    )
    try:
        narrowed = server.url.replace("redis://", "redis://narrowed:pass@")
        async with LockClient.from_url(narrowed) as client:
            leases = await together(handles(client, number))
            await redis.acl_setuser("narrowed", enabled=True, commands=["-publish"])
            for end in await asyncio.gather(*(lease.release() for lease in leases), return_exceptions=True):
                assert isinstance(end, BackendError)
                assert "publish" in str(end)
            await redis.acl_setuser("narrowed", enabled=True, commands=["+publish"])
    finally:
        await redis.acl_deluser("narrowed")


@pytest.mark.parametrize("lost", [ACQUIRE, RELEASE_CLEAN], ids=["acquire", "release"])
async def test_a_lost_answer_counts_once_for_each(client: LockClient, proxy: Proxy, redis: Redis, lost: object) -> None:
    dropped = proxy.install(Rule(script(lost), drop_reply()))  # type: ignore[arg-type]
    leases = await together(handles(client))
    for lease in leases:
        assert await client.lock(lease.name, owner="job").hold_count() == 1
        assert int(await redis.hget(lease.name, "aiolock:token") or 0) == lease.token
    await release(leases)
    assert len(dropped.requests) == 1
    assert await redis.exists(*(lease.name for lease in leases)) == 0
    assert client.statistics().pending == 0


class OneAnswer(Action):
    """A faulty proxy hands over the first answer of a bundle, and loses the others."""

    async def on_reply(self, link: Connection, rule: Rule, request: Request, reply: bytes) -> None:
        bundle = reply.index(b"\r\n") + 2
        link.answer(b"*1\r\n" + reply[bundle : reply.index(b"*", bundle + 1)])
        rule.note(request)


async def test_calls_whose_answers_are_missing_are_sent_again(client: LockClient, proxy: Proxy, redis: Redis) -> None:
    rule = proxy.install(Rule(script(ACQUIRE), OneAnswer()))
    async with asyncio.timeout(20):
        leases = await together(handles(client))
    assert len(rule.requests) == 1
    assert [await client.lock(lease.name, owner="job").hold_count() for lease in leases] == [1] * MANY
    await release(leases)
    assert await redis.exists(*(lease.name for lease in leases)) == 0


async def test_cancelled_acquires_leave_the_other_acquires_their_locks(client: LockClient, redis: Redis) -> None:
    tasks = [asyncio.create_task(lock.acquire()) for lock in handles(client)]
    while client.statistics().pending < MANY:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(end, asyncio.CancelledError) for end in ends] == [number % 2 == 0 for number in range(MANY)]
    await release([end for end in ends if isinstance(end, Lease)])
    async with asyncio.timeout(5):
        while client.statistics().pending:
            await asyncio.sleep(0.01)
    assert await redis.exists(*(f"name-{number}" for number in range(MANY))) == 0
