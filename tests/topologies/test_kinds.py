"""Every primitive, behind Sentinels and with replicas: it survives the failover, or its holder is told in time."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.asyncio.sentinel import Sentinel

from aiolock import LockClient, LockConfig, ReplicationError
from aiolock._embedded_server import Server
from tests.contract.kinds import BLOCKS, LEASED, Counted, Kind
from tests.support.observe import renewed
from tests.support.topologies import NAME as PRIMARY
from tests.support.topologies import Replicated, cut_off, replicated

COUNTED = next(kind for kind in BLOCKS if isinstance(kind, Counted))


@pytest.fixture
def group(server: Server) -> Iterator[Replicated]:
    with Replicated(server._executable, replicas=1, sentinels=3) as running:
        yield running


@pytest.fixture
async def clients(group: Replicated) -> AsyncIterator[dict[Kind, LockClient]]:
    """A client for each kind, which has names of its own."""
    sentinel = Sentinel(group.addresses, socket_timeout=1)  # type: ignore[no-untyped-call]
    async with AsyncExitStack() as stack:
        for each in sentinel.sentinels:
            stack.push_async_callback(each.aclose)
        redis = sentinel.master_for(PRIMARY)
        stack.push_async_callback(redis.aclose)
        yield {kind: await stack.enter_async_context(LockClient(redis, config=config_of(kind))) for kind in BLOCKS}


def config_of(kind: Kind, **settings: Any) -> LockConfig:
    return LockConfig(prefix=f"{kind!r}:", **({"lease": 30, "renew_interval": 1, "command_timeout": 20} | settings))


async def fail_over(group: Replicated) -> None:
    group.primary.kill()
    for replica in group.replicas:
        replica.resume()
    await asyncio.to_thread(group.promoted, group.primary)


async def test_a_grant_that_reached_the_replica_is_held_across_the_failover(
    group: Replicated, clients: dict[Kind, LockClient]
) -> None:
    taken = {kind: await kind.take(client) for kind, client in clients.items()}
    assert all(taken.values())
    await replicated(group.primary, 1)
    await fail_over(group)
    for kind in LEASED:
        await renewed(clients[kind], 2, within=20)
        taken[kind].check()
        assert clients[kind].statistics().losses == 0
    for kind, client in clients.items():
        assert kind.most > 1 or not await kind.take(client, owner="another")
        await kind.give(client, taken[kind])
        assert await kind.take(client)


async def test_a_holder_is_told_that_its_grant_did_not_reach_the_replica(
    group: Replicated, clients: dict[Kind, LockClient]
) -> None:
    """Counted permits are the exception: they have no holders, and the new primary has as many as before."""
    # This connects the clients, and tells the number of permits.
    for kind, client in clients.items():
        await kind.give(client, await kind.take(client))
    await replicated(group.primary, 1)
    cut_off(group.primary, *group.replicas)
    taken = {kind: await kind.take(client) for kind, client in clients.items()}
    assert all(taken.values())
    await fail_over(group)
    async with asyncio.timeout(20):
        for kind in LEASED:
            assert await taken[kind].lost == "expired"
            assert await kind.take(clients[kind], wait=None, owner="another")
    assert await COUNTED.take(clients[COUNTED])
    assert not await COUNTED.take(clients[COUNTED])


async def test_a_grant_counts_when_a_replica_has_it(server: Server) -> None:
    """Without a replica every grant is undone."""
    with Replicated(server._executable, replicas=1) as group:
        redis, [replica] = Redis.from_url(group.primary.url), group.replicas
        for kind in BLOCKS:
            config = config_of(kind, replicas=1, replicas_timeout=1.5)
            async with LockClient(redis, config=config) as locks:
                await replicated(group.primary, 1)
                await kind.give(locks, await kind.take(locks))
                replica.pause()
                with pytest.raises(ReplicationError) as caught:
                    await kind.take(locks)
                assert (caught.value.acks, caught.value.wanted) == (0, 1)
                replica.resume()
                await replicated(group.primary, 1)
                await kind.give(locks, await kind.take(locks, wait=10))
                assert locks.statistics().held == 0
        await redis.aclose()
