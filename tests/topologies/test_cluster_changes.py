"""A cluster that changes: slots move, servers die, and some are slow."""

import asyncio
from time import monotonic

import pytest
from redis.asyncio import RedisCluster
from redis.crc import key_slot
from redis.exceptions import ResponseError

from aiolock import BackendError, LockClient, LockConfig
from aiolock._server import Server
from tests.support.calls import acquire_and_release
from tests.support.observe import renewed, until
from tests.support.resharding import begin_to_move, end_move, move_keys
from tests.support.topologies import ClusterOf, ask, cut_off, role, waited
from tests.support.waiters import Waiters, parked

NAME = "orders"


def users_client(cluster: ClusterOf) -> RedisCluster:
    return RedisCluster(host=cluster.primaries[0].host, port=cluster.primaries[0].port)


def name_on(cluster: ClusterOf, server: Server) -> str:
    """A name whose lock is on this server."""
    return next(name for number in range(1000) if cluster.owner_of(name := f"name {number}") is server)


async def test_a_slot_moves_while_its_lock_is_held_and_waited_for(calm: ClusterOf, cluster: RedisCluster) -> None:
    config = LockConfig(lease=6, renew_interval=0.2)
    async with LockClient(cluster, config=config) as theirs, LockClient(cluster) as ours:
        lease = await theirs.lock(NAME).acquire()
        async with Waiters(ours, NAME, go=True) as waiters:
            await waiters.park(3)
            source, target = begin_to_move(calm, NAME)
            await renewed(theirs, 2)
            move_keys(calm, NAME, source, target)
            await renewed(theirs, 2)  # By way of ASK.
            assert await theirs.lock(NAME).holder() is not None
            end_move(calm, NAME, target)
            await renewed(theirs, 2)
            channel = waiters.lock._keys.channel
            await until(lambda: ask(target, "PUBSUB", "SHARDCHANNELS") == [channel])
            await until(waiters.quiet)
            await lease.release()
            await waiters.granted(3)
        assert theirs.statistics().losses == 0


async def test_a_lock_whose_slot_is_moving_is_granted_when_it_has_moved(calm: ClusterOf, cluster: RedisCluster) -> None:
    """Meanwhile a server has one of its keys and not the other, and says TRYAGAIN."""
    name = "moving"
    async with LockClient(cluster) as locks:
        await acquire_and_release(locks.lock(name))
        source, target = begin_to_move(calm, name)
        acquiring = asyncio.create_task(acquire_and_release(locks.lock(name)))
        await until(lambda: locks.statistics().pending > 0)
        move_keys(calm, name, source, target)
        end_move(calm, name, target)
        await asyncio.wait_for(acquiring, 10)
        async with locks.lock(name) as lease:
            assert ask(target, "HGET", name, "aiolock:token") == str(lease.token)


async def test_a_lock_can_be_renewed_and_released_while_its_slot_is_moving(
    calm: ClusterOf, cluster: RedisCluster
) -> None:
    name = "released"
    async with LockClient(cluster) as locks:
        lock = locks.lock(name)
        lease = await lock.acquire()
        source, target = begin_to_move(calm, name)
        await lease.renew(60)
        await lease.release()
        with pytest.raises(ResponseError, match=target.url.removeprefix("redis://")):  # Ask there: it is here no more.
            ask(source, "GET", name)
        move_keys(calm, name, source, target)
        end_move(calm, name, target)
        assert not await lock.locked()


async def test_a_primary_that_dies_is_followed_by_its_replica(fragile: ClusterOf) -> None:
    cluster = users_client(fragile)
    config = LockConfig(lease=20, command_timeout=15)
    async with (
        LockClient(cluster, config=config) as holder,
        LockClient(cluster, config=config) as locks,
        parked(locks, holder, NAME, 2, go=True, lease=20) as (_, waiters),
    ):
        old = fragile.owner_of(NAME)
        others = [server for server in fragile.primaries if server is not old]
        ask(old, "WAIT", 1, 5000)
        old.kill()
        await waited(lambda: fragile.owner_of(NAME, others) is not old, "a replica is promoted")
        new = fragile.owner_of(NAME, others)
        channel = waiters.lock._keys.channel
        await until(lambda: ask(new, "PUBSUB", "SHARDCHANNELS") == [channel], within=15)
        await until(waiters.quiet, within=15)
        await holder.lock(NAME).release()
        await waiters.granted(2, within=10)
    await cluster.aclose()


async def test_a_primary_that_is_demoted_is_left(fragile: ClusterOf) -> None:
    cluster = users_client(fragile)
    config = LockConfig(lease=20, renew_interval=0.5, client_name="ours")
    async with LockClient(cluster, config=config) as locks, locks.lock(NAME) as lease:
        old = fragile.owner_of(NAME)
        new = fragile.replicas[fragile.primaries.index(old)]
        ask(new, "CLUSTER", "FAILOVER")
        await waited(lambda: role(new) == "master", "the replica is promoted")
        await renewed(locks, 3)
        lease.check()
        await until(lambda: "name=ours" not in str(ask(old, "CLIENT", "LIST")), within=20)
    await cluster.aclose()


async def test_a_holder_whose_lock_did_not_reach_the_new_primary_is_told(fragile: ClusterOf) -> None:
    cluster = users_client(fragile)
    config = LockConfig(lease=60, command_timeout=20)
    async with LockClient(cluster, config=config) as locks:
        await acquire_and_release(locks.lock(NAME))
        old = fragile.owner_of(NAME)
        replica = fragile.replicas[fragile.primaries.index(old)]
        others = [server for server in fragile.primaries if server is not old]
        cut_off(old, replica)
        watched = await locks.lock(NAME, owner="job").acquire()
        fixed = await locks.lock(f"{{{NAME}}} fixed", owner="job").acquire(lease=60)
        old.kill()
        replica.resume()
        await waited(lambda: fragile.owner_of(NAME, others) is replica, "the replica is promoted")
        assert await asyncio.wait_for(watched.lost, 15) == "expired"
        assert await asyncio.wait_for(fixed.lost, 15) == "expired"
    await cluster.aclose()


async def test_a_server_that_hangs_delays_no_other(calm: ClusterOf, cluster: RedisCluster) -> None:
    names = [name_on(calm, server) for server in calm.primaries]
    config = LockConfig(lease=6, renew_interval=1, command_timeout=6)
    async with LockClient(cluster, config=config) as locks:
        for name in names:
            await acquire_and_release(locks.lock(name))
        slow = calm.primaries[2]
        async with locks.lock(names[0]) as lease:
            slow.pause()
            try:
                stuck = asyncio.create_task(acquire_and_release(locks.lock(names[2])))
                await until(lambda: locks.statistics().pending > 0)
                async with asyncio.timeout(5):
                    for _ in range(50):
                        await acquire_and_release(locks.lock(names[1]))
                await renewed(locks, 3)
                lease.check()
                assert not stuck.done()
            finally:
                slow.resume()
            await asyncio.wait([stuck])


async def test_a_server_that_is_gone_fails_its_own_names_only(fragile: ClusterOf) -> None:
    cluster = users_client(fragile)
    async with LockClient(cluster, config=LockConfig(command_timeout=2)) as locks:
        names = [name_on(fragile, server) for server in fragile.primaries]
        for name in names:
            await acquire_and_release(locks.lock(name))
        for server in (fragile.primaries[2], fragile.replicas[2]):
            server.kill()
        with pytest.raises(BackendError):
            await locks.lock(names[2]).acquire()
        for name in names[:2]:
            await acquire_and_release(locks.lock(name))
    await cluster.aclose()


async def test_servers_that_disagree_about_a_slot_are_asked_until_they_agree(
    calm: ClusterOf, cluster: RedisCluster
) -> None:
    """Each says that the other has it: a move that is ended where the slot was before it is where it will be."""
    name = "disputed"
    async with LockClient(cluster, config=LockConfig(command_timeout=20)) as locks:
        source, target = begin_to_move(calm, name)
        ask(source, "CLUSTER", "SETSLOT", key_slot(name.encode()), "NODE", calm.id_of(target))
        sent, began = locks.statistics().commands, monotonic()
        acquiring = asyncio.create_task(acquire_and_release(locks.lock(name)))
        try:
            await until(lambda: acquiring.done() or locks.statistics().commands > sent + 40, within=15)
        finally:
            end_move(calm, name, target)
        await asyncio.wait_for(acquiring, 20)
        assert locks.statistics().commands - sent < 100 + 400 * (monotonic() - began), "it rests now and then"
