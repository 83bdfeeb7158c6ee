"""The guarantees of every primitive when messages, connections, scripts or all of the server's memory are lost."""

import asyncio

import pytest
from redis.asyncio import Redis

from aiolock import LockClient
from tests.contract.acts import is_untouched, section, wait_quietly, waiting
from tests.contract.kinds import KINDS, Kind, Once, each_had, each_kind, each_leased
from tests.support.observe import until
from tests.support.proxy import Proxy, Rule, hold, script


@each_kind
@pytest.mark.parametrize("forgets", [False, True])
async def test_the_connection_for_messages_is_killed_and_waiters_are_woken(
    kind: Kind, forgets: bool, redis: Redis, locks: LockClient, other: LockClient
) -> None:
    """The waiters are woken also if the server has forgotten everything: then nothing is in their way."""
    remove = await kind.obstruct(other)
    tasks = await waiting(kind, locks, 2)
    if forgets:
        await redis.flushall()
    await redis.client_kill_filter(_type="pubsub")
    if not forgets:
        await remove()
    async with asyncio.timeout(20):
        await asyncio.gather(*tasks)
    if forgets:
        await asyncio.gather(remove(), return_exceptions=True)


# A body that runs once is left out: its lease is renewed, and does not end.
@pytest.mark.parametrize("kind", [kind for kind in KINDS if not isinstance(kind, Once)], ids=repr)
async def test_waiters_that_hear_nothing_ask_by_themselves(
    kind: Kind, proxy: Proxy, through: Redis, other: LockClient
) -> None:
    """The waiters ask when the lease in their way is over or, if there is no lease, after some seconds."""
    remove = await kind.obstruct(other, lease=1.0)
    proxy.swallow_messages()
    async with LockClient(through) as client, asyncio.timeout(20):
        task = asyncio.create_task(section(kind, client))
        if not kind.expires:
            await until(lambda: wait_quietly(kind, client, 1))
            await remove()
        await task


@each_leased
async def test_a_release_that_comes_late_leaves_the_next_holder_alone(
    kind: Kind, proxy: Proxy, through: Redis, other: LockClient
) -> None:
    async with LockClient(through) as client:
        taken = await kind.take(client)
        late = proxy.install(Rule(script(*kind.releases), hold()))
        await kind.give(client, taken)
        theirs = await kind.rival.take(other)
        assert theirs
        await late.deliver()
        assert not await kind.take(client)
        await kind.rival.give(other, theirs)
    await is_untouched(kind, other)


@each_had
async def test_scripts_that_the_server_forgot_are_sent_again(
    kind: Kind, redis: Redis, locks: LockClient, other: LockClient
) -> None:
    for _ in range(2):
        await redis.script_flush()
        taken = await kind.take(locks)
        await redis.script_flush()
        if kind.expires:
            await taken.renew()
            await redis.script_flush()
        assert not await kind.rival.take(other)
        await redis.script_flush()
        await kind.give(locks, taken)
    await is_untouched(kind, other)
