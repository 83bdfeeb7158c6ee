"""A cluster that changes: slots move, servers die, and some are slow."""

import asyncio
import select
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

import pytest
from redis.asyncio import RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.crc import key_slot
from redis.exceptions import ResponseError

import aiolock._redis.notifier
from aiolock import BackendError, Lease, LockClient, LockConfig
from aiolock._embedded_server import Server
from aiolock._scripts import INSPECT
from tests.support.calls import acquire_and_release
from tests.support.inside import backend_of, cluster_of, hold_of, keys_of, ordinary_of, submit
from tests.support.observe import renewed, until
from tests.support.resharding import begin_to_move, end_move, move_keys
from tests.support.topologies import ClusterOf, ask, cut_off, errors, mute, replicated, role, waited
from tests.support.waiters import Waiters, parked

NAME = "orders"


def users_client(cluster: ClusterOf) -> RedisCluster:
    return RedisCluster(host=cluster.primaries[0].host, port=cluster.primaries[0].port)


def has_connections(server: Server, client_name: str) -> bool:
    return f"name={client_name} " in str(ask(server, "CLIENT", "LIST"))


def successor(cluster: ClusterOf, primary: Server) -> Server:
    return cluster.replicas[cluster.primaries.index(primary)]


def name_on(cluster: ClusterOf, server: Server) -> str:
    """A name whose lock is on this server."""
    return next(name for number in range(1000) if cluster.owner_of(name := f"name {number}") is server)


@pytest.fixture(params=["ip", "unknown-endpoint", "hostname"])
def named(request: pytest.FixtureRequest, calm: ClusterOf, cluster: RedisCluster) -> Iterator[None]:
    """The servers name each other by IP, by no host, or, as they should have host names and have none, by `?`."""
    del cluster
    for server in calm.servers:
        ask(server, "CONFIG", "SET", "cluster-preferred-endpoint-type", request.param)
    yield
    for server in calm.servers:
        ask(server, "CONFIG", "SET", "cluster-preferred-endpoint-type", "ip")


@pytest.mark.usefixtures("named")
async def test_a_slot_moves_while_its_lock_is_held_and_waited_for(calm: ClusterOf, cluster: RedisCluster) -> None:
    config = LockConfig(lease=6, renew_interval=0.4)
    async with LockClient(cluster, config=config) as theirs, LockClient(cluster) as ours:
        lease = await theirs.lock(NAME).acquire()
        async with Waiters(ours, NAME, go=True) as waiters:
            await waiters.park(3)
            source, target = begin_to_move(calm, NAME)
            await renewed(theirs, 2)
            move_keys(calm, NAME, source, target)
            # The server redirects the renewals by ASK.
            await renewed(theirs, 2)
            assert await theirs.lock(NAME).holder() is not None
            end_move(calm, NAME, target)
            await renewed(theirs, 2)
            channel = keys_of(waiters.lock).channel
            await until(lambda: ask(target, "PUBSUB", "SHARDCHANNELS") == [channel])
            await until(waiters.quiet)
            await lease.release()
            await waiters.granted(3)
        assert theirs.statistics().losses == 0
        await until(lambda: ours.statistics().subscriptions == 0)


async def test_the_slots_are_asked_for_again_after_other_code_has_cancelled_the_question(cluster: RedisCluster) -> None:
    async with LockClient(cluster) as locks:
        topology = cluster_of(locks)
        await acquire_and_release(locks.lock(NAME))
        await until(lambda: topology._asking is None)
        doubted = topology.owner(NAME)
        topology.doubt(doubted)
        assert topology._asking is not None
        # The question has not begun.
        topology._asking.cancel()
        await until(lambda: topology._asking is None)
        topology.doubt(doubted)
        assert topology._asking is not None
        await until(lambda: topology._asking is None)


async def test_a_channel_that_ended_while_nobody_waited_is_subscribed_to_again(
    calm: ClusterOf, cluster: RedisCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aiolock._redis.notifier, "LINGER", 60)
    async with LockClient(cluster) as ours, LockClient(cluster) as theirs:
        lease = await theirs.lock(NAME).acquire(lease=60)
        async with Waiters(ours, NAME) as waiters:
            await waiters.park(1)
            channel = keys_of(waiters.lock).channel
        listening = cluster_of(ours).owner(channel).notifier
        assert listening.confirmed(channel)
        home = calm.owner_of(NAME)
        # The slot is back when the client asks for it.
        for to in (None, home):
            source, target = begin_to_move(calm, NAME, to)
            move_keys(calm, NAME, source, target)
            end_move(calm, NAME, target)
        await until(lambda: not listening.confirmed(channel))
        await until(lambda: cluster_of(ours)._asking is None)
        assert listening.watches(channel)
        async with Waiters(ours, NAME, go=True) as waiters:
            await waiters.park(1)
            await lease.release()
            await waiters.granted(1)


async def test_a_lock_whose_slot_is_moving_is_granted_when_it_has_moved(calm: ClusterOf, cluster: RedisCluster) -> None:
    """Meanwhile a server has one of the two keys, and answers TRYAGAIN."""
    name = "moving"
    async with LockClient(cluster) as locks:
        await acquire_and_release(locks.lock(name))
        source, target = begin_to_move(calm, name)
        before = errors(source, "TRYAGAIN")
        acquiring = asyncio.create_task(acquire_and_release(locks.lock(name)))
        await until(lambda: errors(source, "TRYAGAIN") > before + 1)
        assert not acquiring.done()
        move_keys(calm, name, source, target)
        end_move(calm, name, target)
        await asyncio.wait_for(acquiring, 10)
        async with locks.lock(name) as lease:
            assert ask(target, "HGET", name, "aiolock:token") == str(lease.token)


async def test_a_name_without_keys_is_granted_when_its_slot_has_moved(calm: ClusterOf, cluster: RedisCluster) -> None:
    """The old server may no longer make the two missing keys, and the new server may not make them yet."""
    name = "never used"
    _, target = begin_to_move(calm, name)
    async with LockClient(cluster, config=LockConfig(command_timeout=1)) as locks:
        with pytest.raises(BackendError, match="refused all the time"):
            await locks.lock(name).acquire()
    async with LockClient(cluster) as locks:
        before = errors(target, "TRYAGAIN")
        acquiring = asyncio.create_task(acquire_and_release(locks.lock(name)))
        await until(lambda: errors(target, "TRYAGAIN") > before + 1)
        end_move(calm, name, target)
        await asyncio.wait_for(acquiring, 10)


async def test_a_lock_is_handed_over_while_its_slot_begins_to_move(calm: ClusterOf, cluster: RedisCluster) -> None:
    """The old server has both keys, and cuts a script short that uses a key after it has deleted it."""
    name = "handed over"
    async with LockClient(cluster) as ours, LockClient(cluster) as theirs:
        lease = await ours.lock(name).acquire()
        source, target = begin_to_move(calm, name)
        async with theirs.adopt(await lease.detach(keep=60)) as adopted:
            assert ask(source, "HGET", name, "aiolock:token") == str(adopted.token)
            assert adopted.token > lease.token
        move_keys(calm, name, source, target)
        end_move(calm, name, target)


async def test_a_result_is_kept_while_its_slot_begins_to_move(calm: ClusterOf, cluster: RedisCluster) -> None:
    name = "runs once"
    async with LockClient(cluster) as locks:
        async with locks.once(name, keep=60) as turn:
            source, target = begin_to_move(calm, name)
            assert turn
        async with locks.once(name, keep=60) as turn:
            assert not turn
        move_keys(calm, name, source, target)
        end_move(calm, name, target)


async def test_a_semaphore_gives_all_its_permits_when_it_is_drained_while_its_slot_moves(
    calm: ClusterOf, cluster: RedisCluster
) -> None:
    """The old server cuts the script short when it has forgotten the only end."""
    name = "drained"
    async with LockClient(cluster) as locks:
        jobs = locks.counting_semaphore(name, 2)
        await jobs.acquire()
        await jobs.release()
        source, target = begin_to_move(calm, name)
        before = errors(source, "TRYAGAIN")
        draining = asyncio.create_task(jobs.drain())
        await until(lambda: errors(source, "TRYAGAIN") > before + 1)
        move_keys(calm, name, source, target)
        end_move(calm, name, target)
        assert await asyncio.wait_for(draining, 10) == 2


@pytest.mark.parametrize("half", ["read", "write"])
async def test_a_reader_or_writer_that_detaches_while_its_slot_moves_is_detached_when_it_has_moved(
    calm: ClusterOf, cluster: RedisCluster, half: str
) -> None:
    """The record of the detached hold is to be made, but the old server makes no new keys any more."""
    name = f"detached {half}"
    async with LockClient(cluster) as ours, LockClient(cluster) as theirs:
        lease = await getattr(ours.read_write_lock(name), half).acquire()
        source, target = begin_to_move(calm, name)
        before = errors(source, "ERR")
        detaching = asyncio.create_task(lease.detach(keep=60))
        await until(lambda: errors(source, "ERR") > before + 1)
        assert not detaching.done()
        move_keys(calm, name, source, target)
        end_move(calm, name, target)
        async with theirs.adopt(await asyncio.wait_for(detaching, 10)) as adopted:
            assert adopted.token > lease.token


async def test_readers_are_freed_by_force_while_their_slot_moves(calm: ClusterOf, cluster: RedisCluster) -> None:
    """Two of them have no record at the old server: one has expired, and the record of the other has moved already."""
    name = "forced"
    async with LockClient(cluster) as locks:
        leases = [await locks.read_write_lock(name, owner=owner).read.acquire(lease=60) for owner in "abc"]
        records = [hold_of(lease).claim.keys[2] for lease in leases]
        source, target = begin_to_move(calm, name)
        ask(source, "DEL", records[1])
        move_key(calm, records[2], source, target)
        assert await locks.read_write_lock(name).read.force_release()
        assert all(lease.lost.is_set() for lease in leases)
        move_keys(calm, name, source, target)
        end_move(calm, name, target)
        async with locks.read_write_lock(name).write:
            pass


def move_key(cluster: ClusterOf, key: str, source: Server, target: Server) -> None:
    ask(source, "MIGRATE", target.host, cluster.port_of(target), key, 0, 5000)


async def test_a_reader_whose_record_has_not_moved_yet_goes_on_reading(calm: ClusterOf, cluster: RedisCluster) -> None:
    """The new server has the lock and no record: this does not mean that the reader has expired."""
    name = "read on"
    async with LockClient(cluster) as locks:
        one, other = [await locks.read_write_lock(name, owner=owner).read.acquire(lease=60) for owner in "ab"]
        source, target = begin_to_move(calm, name)
        for key in hold_of(one).claim.keys:
            move_key(calm, key, source, target)
        await one.release()
        move_keys(calm, name, source, target)
        end_move(calm, name, target)
        assert not await locks.read_write_lock(name, owner="c").write.try_lock()
        await other.renew()
        await other.release()


async def test_a_writer_whose_record_has_not_moved_yet_goes_on_writing(calm: ClusterOf, cluster: RedisCluster) -> None:
    """The owner reads, too: the renewal of its read lock does not end its write lock."""
    name = "write on"
    async with LockClient(cluster) as locks:
        both = locks.read_write_lock(name, owner="a")
        writing, reading = await both.write.acquire(lease=60), await both.read.acquire(lease=60)
        source, target = begin_to_move(calm, name)
        for key in hold_of(reading).claim.keys:
            move_key(calm, key, source, target)
        await reading.renew(80)
        move_keys(calm, name, source, target)
        end_move(calm, name, target)
        assert not await locks.read_write_lock(name, owner="c").read.try_lock()
        await writing.renew()
        await reading.release()
        await writing.release()


async def test_a_holder_is_told_in_time_when_its_keys_stay_on_two_servers(
    calm: ClusterOf, cluster: RedisCluster
) -> None:
    name = "torn"
    async with LockClient(cluster, config=LockConfig(lease=2)) as locks:
        lease = await locks.lock(name).acquire()
        source, target = begin_to_move(calm, name)
        ask(source, "MIGRATE", target.host, calm.port_of(target), name, 0, 5000)
        assert await asyncio.wait_for(lease.lost, 15) == "unreachable"
        assert ask(source, "EXISTS", hold_of(lease).keys.tokens) == 1
        move_keys(calm, name, source, target)
        end_move(calm, name, target)


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
        with pytest.raises(ResponseError, match=target.url.removeprefix("redis://")):
            ask(source, "GET", name)
        move_keys(calm, name, source, target)
        end_move(calm, name, target)
        assert not await lock.locked()


async def test_a_writer_that_reads_renews_and_releases_while_the_slot_is_moving(
    calm: ClusterOf, cluster: RedisCluster
) -> None:
    """At the end another reader comes, whose record is no key of the script."""
    name = "moved by halves"
    async with LockClient(cluster) as locks, LockClient(cluster) as other:
        lock = locks.read_write_lock(name, owner="job")
        writing, reading = await lock.write.acquire(), await lock.read.acquire()
        source, target = begin_to_move(calm, name)
        await writing.renew(60)
        await reading.renew(50)
        await writing.release()
        move_keys(calm, name, source, target)
        end_move(calm, name, target)
        beside = await other.read_write_lock(name).read.acquire(lease=30)
        source, target = begin_to_move(calm, name)
        await reading.renew(70)
        await reading.release()
        assert 0 < ask(source, "PTTL", name) <= 30_000
        await beside.release()
        move_keys(calm, name, source, target)
        end_move(calm, name, target)
        assert not await lock.read.locked()


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
        await replicated(old, 1)
        old.kill()
        await waited(lambda: fragile.owner_of(NAME, others) is not old, "a replica is promoted")
        new = fragile.owner_of(NAME, others)
        channel = keys_of(waiters.lock).channel
        await until(lambda: ask(new, "PUBSUB", "SHARDCHANNELS") == [channel], within=15)
        await until(waiters.quiet, within=15)
        await holder.lock(NAME).release()
        await waiters.granted(2, within=10)
    await cluster.aclose()


async def test_a_primary_that_is_demoted_is_left(fragile: ClusterOf) -> None:
    cluster = users_client(fragile)
    config = LockConfig(lease=20, renew_interval=0.5, client_name="ours")
    async with (
        LockClient(cluster, config=config) as locks,
        LockClient(cluster, config=config) as waiting,
        Waiters(waiting, NAME, go=True) as waiters,
    ):
        lease = await locks.lock(NAME).acquire()
        await waiters.park(2)
        old = fragile.owner_of(NAME)
        new = fragile.replicas[fragile.primaries.index(old)]
        ask(new, "CLUSTER", "FAILOVER")
        await waited(lambda: role(new) == "master", "the replica is promoted")
        await renewed(locks, 3)
        lease.check()
        await until(lambda: "name=ours" not in str(ask(old, "CLIENT", "LIST")), within=20)
        await lease.release()
        await waiters.granted(2, within=15)
    await cluster.aclose()


@pytest.mark.filterwarnings("ignore:.*read_from_replicas:DeprecationWarning")
async def test_a_primary_that_is_demoted_answers_no_more_also_where_replicas_may_be_read(fragile: ClusterOf) -> None:
    first = fragile.primaries[0]
    cluster = RedisCluster(host=first.host, port=first.port, read_from_replicas=True)
    async with LockClient(cluster, config=LockConfig(client_name="ours", command_timeout=15)) as locks:
        assert not await locks.lock(NAME).locked()
        old = fragile.owner_of(NAME)
        new = successor(fragile, old)
        await promote(new, old)
        assert has_connections(old, "ours")
        assert not has_connections(new, "ours")
        assert not await locks.lock(NAME).locked()
        assert has_connections(new, "ours")
    await cluster.aclose()


async def promote(new: Server, old: Server) -> None:
    """A planned change of the primary, without the vote of the others, which do not vote again at once."""
    await waited(lambda: bool(ask(new, "ROLE")[3] == "connected"), "the replica is in step")

    def is_promoted() -> bool:
        # On a busy machine the others may take it for dead, and promote *old* again.
        if role(new) == "slave":
            ask(new, "CLUSTER", "FAILOVER", "TAKEOVER")
        return (role(old), role(new)) == ("slave", "master")

    await waited(is_promoted, "the replica is promoted")


async def test_a_server_that_owns_nothing_is_forgotten_until_it_is_needed_again(fragile: ClusterOf) -> None:
    cluster = users_client(fragile)
    async with LockClient(cluster, config=LockConfig(client_name="ours", command_timeout=15)) as locks:
        topology, lock = cluster_of(locks), locks.lock(NAME)

        def known() -> set[int]:
            return {node.address[1] for node in topology.nodes()}

        for server in fragile.primaries:
            await acquire_and_release(locks.lock(name_on(fragile, server)))
        await until(lambda: topology._asking is None)
        tasks, before = asyncio.all_tasks(), locks.statistics()
        assert len(known()) == 3

        old = fragile.owner_of(NAME)
        new = successor(fragile, old)
        await promote(new, old)
        await acquire_and_release(lock)
        ports = {server.port for server in fragile.primaries} - {old.port} | {new.port}
        await until(lambda: known() == ports, within=20)
        await until(lambda: topology._asking is None)
        await until(lambda: len(asyncio.all_tasks()) == len(tasks))
        await until(lambda: not has_connections(old, "ours"))
        after = locks.statistics()
        assert after.commands > before.commands
        assert after.batches > before.batches

        await promote(old, new)
        await acquire_and_release(lock)
        assert has_connections(old, "ours")
        await until(lambda: known() == ports - {new.port} | {old.port}, within=20)
    await cluster.aclose()


def connections_to(listening: socket.socket) -> int:
    """The number of connections since the last question."""
    count = 0
    while True:
        try:
            listening.accept()[0].close()
        except BlockingIOError:
            return count
        count += 1


async def test_a_server_that_has_vanished_is_not_asked_for_the_slots_while_others_serve(calm: ClusterOf) -> None:
    with mute() as vanished:
        addresses = [vanished.getsockname(), *((server.host, server.port) for server in calm.primaries)]
        cluster = RedisCluster(startup_nodes=[ClusterNode(*address) for address in addresses])
        config = LockConfig(command_timeout=15)
        async with (
            LockClient(cluster, config=config) as ours,
            LockClient(cluster, config=config) as theirs,
            parked(ours, theirs, NAME, 1, go=True) as (lease, waiters),
        ):
            await until(lambda: cluster_of(ours)._asking is None)
            assert connections_to(vanished) > 0
            source, target = begin_to_move(calm, NAME)
            move_keys(calm, NAME, source, target)
            end_move(calm, NAME, target)
            await until(lambda: ask(target, "PUBSUB", "SHARDCHANNELS") == [keys_of(waiters.lock).channel], within=20)
            assert connections_to(vanished) == 0
            await lease.release()
            await waiters.granted(1)
        await cluster.aclose()


async def test_closing_leaves_no_connection_though_a_call_is_sent_to_another_server_meanwhile(
    fragile: ClusterOf,
) -> None:
    cluster = users_client(fragile)
    tasks = asyncio.all_tasks()
    async with LockClient(cluster, config=LockConfig(client_name="ours", command_timeout=15)) as locks:
        backend, topology = backend_of(locks), cluster_of(locks)
        names = [name_on(fragile, server) for server in fragile.primaries]
        for name in names:
            await acquire_and_release(locks.lock(name))
        await until(lambda: topology._asking is None)
        old = fragile.primaries[-1]
        new = successor(fragile, old)
        await promote(new, old)
        # The client closes this server last.
        assert (old.host, old.port) == topology.nodes()[-1].address
        call = submit(backend, INSPECT, (names[-1],), ())
        connection: Any = ordinary_of(topology.nodes()[-1].server)
        while not call.sent:
            await asyncio.sleep(0)
        # MOVED has arrived, with an unknown server: the loop reads it while the client closes the first server.
        assert select.select([connection._writer.get_extra_info("socket").fileno()], [], [], 10)[0]
        await topology.aclose()
        with pytest.raises(BackendError):
            await call
        assert asyncio.all_tasks() == tasks
        await until(lambda: not any(has_connections(server, "ours") for server in (*fragile.primaries, new)))
    await cluster.aclose()


async def test_a_holder_is_told_that_its_lock_did_not_reach_the_new_primary(fragile: ClusterOf) -> None:
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


async def test_an_acknowledged_lock_is_forgotten_when_it_moves_to_a_primary_that_dies_before_its_replica_has_it(
    fragile: ClusterOf,
) -> None:
    """The replicas that acknowledged the lock belong to the old primary of the slot."""
    cluster = users_client(fragile)
    async with (
        LockClient(cluster, config=LockConfig(lease=60, renew_interval=2, command_timeout=20, replicas=1)) as ours,
        LockClient(cluster, config=LockConfig(command_timeout=20)) as theirs,
    ):
        lease = await ours.lock(NAME, owner="job").acquire()
        source, target = begin_to_move(fragile, NAME)
        replica = successor(fragile, target)
        cut_off(target, replica)
        move_keys(fragile, NAME, source, target)
        end_move(fragile, NAME, target)
        target.kill()
        replica.resume()
        ask(replica, "CLUSTER", "FAILOVER", "TAKEOVER")
        await waited(lambda: role(replica) == "master", "the replica is promoted")
        for server in (replica, *(server for server in fragile.primaries if server is not target)):
            ask(server, "CLUSTER", "SETSLOT", key_slot(NAME.encode()), "NODE", fragile.id_of(replica))
        async with theirs.lock(NAME) as other:
            assert other.token > lease.token
        # The reason depends on the time at which the client asks the promoted replica.
        assert await asyncio.wait_for(lease.lost, 30) in ("expired", "taken")
    await cluster.aclose()


async def test_a_lock_whose_release_did_not_reach_the_new_primary_stays_for_its_lease(fragile: ClusterOf) -> None:
    cluster = users_client(fragile)
    async with LockClient(cluster, config=LockConfig(command_timeout=20, replicas="all")) as locks:
        lock = locks.lock(NAME, owner="job")
        lease = await lock.acquire(lease=60)
        old = fragile.owner_of(NAME)
        cut_off(old, successor(fragile, old))
        await lease.release()
        old.kill()
        successor(fragile, old).resume()
        others = [server for server in fragile.primaries if server is not old]
        await waited(lambda: fragile.owner_of(NAME, others) is not old, "the replica is promoted")
        assert await lock.locked()
        assert 0 < ask(successor(fragile, old), "PTTL", NAME) <= 60_000
        assert await lock.force_release()
    await cluster.aclose()


@asynccontextmanager
async def forgotten(fragile: ClusterOf) -> AsyncIterator[tuple[LockClient, Lease, Server]]:
    """A client, its lease that a failover has lost, and the old primary, which hangs, so that no connection broke."""
    cluster = users_client(fragile)
    async with LockClient(cluster, config=LockConfig(command_timeout=9)) as locks:
        for server in fragile.primaries:
            await acquire_and_release(locks.lock(name_on(fragile, server)))
        await until(lambda: cluster_of(locks)._asking is None)
        old = fragile.owner_of(NAME)
        new, others = successor(fragile, old), [server for server in fragile.servers if server is not old]
        cut_off(old, new)
        lease = await locks.lock(NAME, owner="job").acquire(lease=60)
        old.pause()
        new.resume()
        # The client believes any server that it asks for the slots: one that has not heard of the new primary would
        # wrongly end its doubt.
        await waited(lambda: all(fragile.owner_of(NAME, [each]) is new for each in others), "all know the new primary")
        yield locks, lease, old
        old.resume()
    await cluster.aclose()


async def test_a_holder_is_told_too_when_the_old_primary_itself_names_the_new_one(fragile: ClusterOf) -> None:
    async with forgotten(fragile) as (locks, lease, old):
        old.resume()
        await waited(lambda: role(old) == "slave", "the old primary is a replica")
        assert not lease.lost.is_set()
        assert not await locks.lock(NAME).locked()
        assert await asyncio.wait_for(lease.lost, 15) == "expired"


async def test_a_holder_is_told_too_when_the_new_primary_is_known_from_another_server(fragile: ClusterOf) -> None:
    async with forgotten(fragile) as (_, lease, old):
        assert not lease.lost.is_set()
        other = next(server for server in fragile.primaries if server is not old)
        ask(other, "CLIENT", "KILL", "TYPE", "normal")
        assert await asyncio.wait_for(lease.lost, 30) == "expired"


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
    """Each server names the other one: the old owner has ended the move before the new owner."""
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
        assert locks.statistics().commands - sent < 100 + 400 * (monotonic() - began), "the client asks without a pause"
