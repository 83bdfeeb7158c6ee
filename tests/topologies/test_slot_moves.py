"""A slot of a cluster that moves in one step, with all of its keys: only Valkey from version 9 can do that."""

import asyncio

import pytest
from redis.asyncio import RedisCluster
from redis.exceptions import ResponseError

from aiolock import LockClient
from tests.support.calls import acquire_and_release
from tests.support.observe import until
from tests.support.resharding import move_as_a_whole
from tests.support.topologies import ClusterOf, ask, errors

NAME = "orders"


async def test_locks_are_granted_and_released_while_their_slot_moves_as_a_whole(
    calm: ClusterOf, cluster: RedisCluster
) -> None:
    async with LockClient(cluster) as ours, LockClient(cluster) as theirs:
        lock = ours.fair_lock(NAME)
        lease = await theirs.fair_lock(NAME).acquire()
        waiting = asyncio.create_task(acquire_and_release(lock))
        await until(lambda: lock.statistics().parked == 1)
        refused = [errors(server, "TRYAGAIN") for server in calm.primaries]
        try:
            target = move_as_a_whole(calm, NAME)
        except ResponseError:
            waiting.cancel()
            pytest.skip("this server has no CLUSTER MIGRATESLOTS")
        await lease.release()
        await waiting
        while calm.owner_of(NAME, [target]) is not target:
            await acquire_and_release(lock)
        async with lock as last:
            assert last.token > lease.token
            assert ask(target, "HGET", NAME, "aiolock:token") == str(last.token)
        assert [errors(server, "TRYAGAIN") for server in calm.primaries] == refused
