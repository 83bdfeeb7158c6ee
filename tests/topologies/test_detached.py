"""Tickets survive a failover that loses nothing, wait for replicas, and work in a cluster."""

import asyncio
from collections.abc import Iterator

import pytest
from redis.asyncio import Redis
from redis.asyncio.sentinel import Sentinel

from aiolock import LeaseLostError, LockClient, LockConfig, ReplicationError
from aiolock._embedded_server import Server
from tests.contract.kinds import Kind, each_leased
from tests.support.observe import freed
from tests.support.topologies import NAME as PRIMARY
from tests.support.topologies import Replicated, ask, replicated, wait_until

NAME = "orders"
BEFORE_AND_AFTER = LockConfig(replicas=1, replicas_timeout=5, command_timeout=30)


@pytest.fixture(scope="module")
def two(server: Server) -> Iterator[Replicated]:
    """A primary with two replicas."""
    with Replicated(server._executable) as running:
        yield running


async def test_a_ticket_and_its_adoption_survive_a_failover(server: Server) -> None:
    """A replica acknowledged the ticket and its adoption, so that the ticket stays used up."""
    with Replicated(server._executable, sentinels=3) as group:
        sentinel = Sentinel(group.addresses, socket_timeout=1)  # type: ignore[no-untyped-call]
        redis: Redis = sentinel.master_for(PRIMARY)
        async with LockClient(redis, config=BEFORE_AND_AFTER) as locks:
            first = await (await locks.lock(NAME).acquire()).detach(300)
            used = await (await locks.lock("another").acquire()).detach(300)
            adopted = await locks.adopt(used, lease=300)
            await replicated(group.primary, 2)
            old = group.primary
            old.kill()
            await replicated(await asyncio.to_thread(group.promoted, old), 1)
            with pytest.raises(LeaseLostError) as caught:
                await locks.adopt(used, owner="late")
            assert caught.value.reason == "taken"
            await (await locks.adopt(first)).release()
            await adopted.release()
        await redis.aclose()
        for each in sentinel.sentinels:
            await each.aclose()


@pytest.mark.parametrize("verb", ["detach", "adopt"])
async def test_a_lock_that_too_few_replicas_have_is_given_back(two: Replicated, verb: str) -> None:
    redis = Redis.from_url(two.primary.url)
    await redis.flushall()
    wait_until(lambda: len(ask(two.primary, "ROLE")[2]) == 2, "both replicas are in step")
    config = LockConfig(replicas=2, replicas_timeout=1, command_timeout=12)
    async with LockClient(redis, config=config) as locks:
        lease = await locks.lock(NAME).acquire()
        ticket = await lease.detach(60) if verb == "adopt" else ""
        two.replicas[0].pause()
        try:
            with pytest.raises(ReplicationError, match="was given back"):
                await (locks.adopt(ticket) if ticket else lease.detach(60))
        finally:
            two.replicas[0].resume()
        await freed(redis, NAME)
    await redis.aclose()


@each_leased
async def test_each_kind_is_handed_over_in_a_cluster(kind: Kind, ours: LockClient, theirs: LockClient) -> None:
    ticket = await (await kind.take(ours)).detach(60)
    assert not await kind.rival.take(theirs)
    async with theirs.adopt(ticket, kind=kind.of_ticket) as lease:
        await lease.renew()
    assert await kind.take(ours)


async def test_several_locks_on_several_servers_are_handed_over_as_one(ours: LockClient, theirs: LockClient) -> None:
    names = [f"order {number}" for number in range(8)]
    ticket = await (await ours.multi(*names).acquire()).detach(60)
    async with theirs.adopt(ticket, kind="multi_lock", name=names) as lease:
        assert sorted(lease.tokens) == names
    assert not await ours.multi(*names).locked()
