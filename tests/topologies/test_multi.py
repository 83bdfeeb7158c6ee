"""Several locks as one, on several servers of a cluster."""

import asyncio

import pytest
from redis.asyncio import RedisCluster

from aiolock import LeaseLostError, LockClient, LockConfig, MultiLease
from tests.support.observe import until
from tests.support.topologies import ClusterOf, cut_off
from tests.topologies.test_cluster_changes import name_on, successor, users_client


async def test_tasks_of_two_clients_get_locks_of_several_servers_in_any_order(
    calm: ClusterOf, ours: LockClient, theirs: LockClient, cluster: RedisCluster
) -> None:
    names = [name_on(calm, server) for server in calm.primaries]
    inside: set[str] = set()

    async def work(client: LockClient, first: int) -> None:
        mine = names[first:] + names[:first]
        for number in range(10):
            some = mine[: 2 + number % 2]
            async with client.multi(*some):
                assert not inside.intersection(some)
                inside.update(some)
                await asyncio.sleep(0)
                inside.difference_update(some)

    async with asyncio.timeout(40), asyncio.TaskGroup() as group:
        for client in (ours, theirs):
            for first in (0, 1, 2):
                for _ in range(2):
                    group.create_task(work(client, first))
    assert not any([await ours.lock(name).locked() for name in names])


async def test_the_loss_of_one_by_a_failover_of_its_server_ends_all(fragile: ClusterOf) -> None:
    """The body is cancelled, the others are given back, and a waiter for all of them gets them."""
    primary = fragile.primaries[0]
    names = [name_on(fragile, server) for server in fragile.primaries]
    mine, its = users_client(fragile), users_client(fragile)
    config = LockConfig(lease=30, renew_interval=0.5, command_timeout=20)
    async with LockClient(mine, config=config) as ours, LockClient(its, config=config) as theirs:
        for client in (ours, theirs):
            async with client.multi(*names):
                pass

        async def wait() -> MultiLease:
            async with theirs.multi(*reversed(names)) as lease:
                return lease

        cut_off(primary, successor(fragile, primary))
        with pytest.raises(LeaseLostError, match=names[0]) as lost:
            async with ours.multi(*names) as lease:
                waiting = asyncio.create_task(wait())
                await until(lambda: theirs.statistics().parked == 1)
                primary.kill()
                successor(fragile, primary).resume()
                await asyncio.Event().wait()
        # The waiter may reach the new primary before the renewal does.
        assert lost.value.reason in ("expired", "taken")
        assert lease.leases[names[1]].given_back
        assert lease.leases[names[2]].given_back
        next_one = await asyncio.wait_for(waiting, 20)
        assert all(next_one.tokens[name] > lease.tokens[name] for name in names)
        assert ours.statistics().held == 0
    await mine.aclose()
    await its.aclose()
