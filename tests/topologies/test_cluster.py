"""A cluster: each lock on the server that owns its slot, and messages from there."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from time import monotonic
from typing import Any

import pytest
from redis.asyncio import Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import AbstractConnection
from redis.crc import key_slot
from redis.exceptions import ResponseError

from aiolock import BackendError, LockClient, LockConfig
from aiolock._embedded_server import Server
from aiolock._redis import raw
from tests.deployments.test_permissions import RULES
from tests.docs.pages import ROOT
from tests.support.calls import acquire_and_release
from tests.support.inside import cluster_of, keys_of
from tests.support.observe import all_parked, answered, renewed, until
from tests.support.topologies import ClusterOf, ask, waited
from tests.support.waiters import Waiters, parked

NAMES = [f"name {number}" for number in range(60)]


def scripts_run(server: Server) -> int:
    """How often the server has run a script."""
    stats = ask(server, "INFO", "commandstats")
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("eval", "evalsha"))


async def test_every_lock_is_on_the_server_that_owns_its_slot(calm: ClusterOf, ours: LockClient) -> None:
    leases = [await ours.lock(name).acquire() for name in NAMES]
    for name in NAMES:
        owner = calm.owner_of(name)
        for key in (name, f"aiolock_token:{{{name}}}"):
            assert ask(owner, "EXISTS", key) == 1
    assert ours.statistics().held == len(NAMES)
    for lease in leases:
        await lease.release()
    assert not any(ask(calm.owner_of(name), "EXISTS", name) for name in NAMES)


async def test_several_locks_cost_one_round_trip_for_each_server(
    calm: ClusterOf, ours: LockClient, theirs: LockClient
) -> None:
    many = ours.multi(*NAMES[:12])
    async with many:
        pass
    owners = {calm.owner_of(name).port for name in NAMES[:12]}
    for act in (many.acquire, many.release):
        before = ours.statistics()
        await act()
        after = ours.statistics()
        assert (after.batches - before.batches, after.commands - before.commands) == (len(owners), 12)
    async with theirs.lock(NAMES[5]):
        assert await many.try_lock() is None
    assert not await many.locked()


async def test_a_waiter_is_woken_by_a_sharded_message(calm: ClusterOf, ours: LockClient, theirs: LockClient) -> None:
    async with parked(ours, theirs, "waited for", 3, go=True) as (lease, waiters):
        owner = calm.owner_of("waited for")
        channel = keys_of(waiters.lock).channel
        assert ask(owner, "PUBSUB", "SHARDCHANNELS") == [channel]
        assert all(ask(server, "PUBSUB", "CHANNELS") == [] for server in calm.servers)
        assert waiters.lock.statistics().subscriptions == ours.statistics().subscriptions == 1
        assert any(server.notifier.connection.connected for server in cluster_of(ours).servers())
        await lease.release()
        await waiters.granted(3)


async def test_a_hand_off_is_two_commands(calm: ClusterOf, ours: LockClient) -> None:
    """A script on a cluster may not use a key again that it has deleted: the slot of the key may be moving."""
    lock, owner = ours.lock("a"), calm.owner_of("a")
    async with lock:
        pass

    async def take() -> int:
        async with lock:
            return scripts_run(owner)

    async with lock:
        task = asyncio.create_task(take())
        await all_parked(ours, 1)
        before = scripts_run(owner)
    assert await task - before == 2


async def test_a_cluster_without_sharded_messages_broadcasts_them(
    calm: ClusterOf, ours: LockClient, theirs: LockClient
) -> None:
    """Before Redis 7 no cluster had them; aiolock, like Redisson, assumes that they are missing if it may not ask."""
    for server in calm.servers:
        ask(server, "ACL", "SETUSER", "default", "-pubsub|shardnumsub")
    try:
        async with parked(ours, theirs, "broadcast", 3, go=True) as (lease, waiters):
            assert ask(calm.owner_of("broadcast"), "PUBSUB", "CHANNELS") == [keys_of(waiters.lock).channel]
            await lease.release()
            await waiters.granted(3)
    finally:
        for server in calm.servers:
            ask(server, "ACL", "SETUSER", "default", "+pubsub|shardnumsub")


async def test_a_server_that_is_busy_when_it_is_asked_of_sharded_messages_is_asked_again(
    calm: ClusterOf, ours: LockClient, theirs: LockClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[object] = []

    async def ask_and_count(of: AbstractConnection, *command: str) -> object:
        answers.append(await raw.ask(of, *command))
        return answers[-1]

    monkeypatch.setattr("aiolock._redis.cluster.topology.ask", ask_and_count)
    # A client asks this server first.
    busy = calm.primaries[0]
    name = next(name for name in NAMES if calm.owner_of(name) is busy)
    lease = await theirs.lock(name).acquire()
    async with busy_with_a_script(busy):
        asking = asyncio.create_task(ours.lock(name).locked())
        await until(lambda: len(answers) >= 2)
        before, started = len(answers), monotonic()
        await asyncio.sleep(0.5)
        assert len(answers) - before <= 2 + 25 * (monotonic() - started)
    assert await asking
    async with Waiters(ours, name, go=True) as waiters:
        await waiters.park(1)
        assert ask(busy, "PUBSUB", "SHARDCHANNELS") == [keys_of(waiters.lock).channel]
        await lease.release()
        await waiters.granted(1)


@asynccontextmanager
async def busy_with_a_script(server: Server) -> AsyncIterator[None]:
    """The server runs a script without end, and answers BUSY meanwhile."""

    def run() -> None:
        with suppress(ResponseError):
            ask(server, "EVAL", "while true do end", 0)

    def is_busy() -> bool:
        try:
            return not ask(server, "PING")
        except ResponseError as error:
            return "BUSY" in str(error)

    ask(server, "CONFIG", "SET", "lua-time-limit", "50")
    running = asyncio.create_task(asyncio.to_thread(run))
    try:
        await waited(is_busy, "the script runs for long")
        yield
    finally:
        ask(server, "SCRIPT", "KILL")
        await running
        ask(server, "CONFIG", "SET", "lua-time-limit", "5000")


async def test_calls_of_one_tick_leave_as_one_batch_for_each_server(calm: ClusterOf, ours: LockClient) -> None:
    locks = [ours.lock(name, owner="job") for name in NAMES[:20]]
    assert {calm.owner_of(lock.name).port for lock in locks} == {server.port for server in calm.primaries}
    await asyncio.gather(*(acquire_and_release(lock) for lock in locks))
    await answered(ours)
    before = ours.statistics()
    leases = await asyncio.gather(*(lock.acquire() for lock in locks))
    assert ours.statistics().batches - before.batches == len(calm.primaries)
    assert ours.statistics().connections <= 3 * len(calm.primaries)
    await asyncio.gather(*(lease.release() for lease in leases))


async def test_an_idle_waiter_sends_nothing(calm: ClusterOf, ours: LockClient, theirs: LockClient) -> None:
    async with parked(ours, theirs, "idle", 5) as (_, waiters):
        await until(waiters.quiet)
        before = [scripts_run(server) for server in calm.servers]
        assert sum(before) > 0
        await asyncio.sleep(0.5)
        assert [scripts_run(server) for server in calm.servers] == before


async def test_a_thousand_names_take_three_connections_for_each_server_at_most(ours: LockClient) -> None:
    await asyncio.gather(*(acquire_and_release(ours.lock(f"many {number}")) for number in range(1000)))
    assert ours.statistics().connections <= 9
    assert ours.statistics().pending == ours.statistics().held == 0


# All of redis-py knows it.
@pytest.mark.filterwarnings("ignore:.*read_from_replicas:DeprecationWarning")
async def test_no_connection_lets_replicas_answer(calm: ClusterOf) -> None:
    """If replicas answered, a demoted primary would go on answering, too."""
    for server in calm.servers:
        ask(server, "CONFIG", "RESETSTAT")
    nodes = [ClusterNode(server.host, server.port) for server in calm.primaries]
    cluster = RedisCluster(startup_nodes=nodes, read_from_replicas=True)
    async with LockClient(cluster) as locks, LockClient(cluster) as other:
        for server in calm.primaries:
            name = next(name for name in NAMES if calm.owner_of(name) is server)
            async with parked(locks, other, name, 1, go=True) as (lease, waiters):
                await lease.release()
                await waiters.granted(1)
            stats = ask(server, "INFO", "commandstats")
            assert "cmdstat_evalsha" in stats
            assert "cmdstat_readonly" not in stats
    await cluster.aclose()


@pytest.mark.parametrize("settings", [{"decode_responses": True}, {"protocol": 3}, {"protocol": 2}])
async def test_the_settings_of_the_users_client_do_not_matter(calm: ClusterOf, settings: dict[str, Any]) -> None:
    nodes = [ClusterNode(server.host, server.port) for server in calm.primaries]
    cluster = RedisCluster(startup_nodes=nodes, **settings)
    async with (
        LockClient(cluster) as locks,
        LockClient(cluster) as other,
        parked(locks, other, "settings", 2, go=True) as (lease, waiters),
    ):
        await lease.release()
        await waiters.granted(2)
    await cluster.aclose()


async def test_the_users_own_connections_are_not_used(calm: ClusterOf, cluster: RedisCluster, ours: LockClient) -> None:
    def theirs() -> int:
        return sum(len(node._connections) for node in cluster.get_nodes())

    before = theirs()
    await asyncio.gather(*(acquire_and_release(ours.lock(name)) for name in NAMES))
    assert theirs() == before


async def test_seeds_that_are_gone_do_not_matter(calm: ClusterOf) -> None:
    nobody = [ClusterNode("127.0.0.1", port) for port in (1, 2)]
    cluster = RedisCluster(startup_nodes=[*nobody, *(ClusterNode(each.host, each.port) for each in calm.primaries)])
    async with LockClient(cluster) as locks, locks.lock("seed") as lease:
        lease.check()


async def test_a_connection_that_breaks_casts_doubt_on_the_locks_of_its_own_server_only(
    calm: ClusterOf, ours: LockClient
) -> None:
    one, other = calm.primaries[:2]
    for server in (one, other):
        name = next(name for name in NAMES if calm.owner_of(name) is server)
        await ours.lock(name, owner="job").acquire(lease=60)
    await answered(ours)
    before = scripts_run(one), scripts_run(other)
    ask(one, "CLIENT", "KILL", "TYPE", "normal")
    await until(lambda: scripts_run(one) > before[0])
    await answered(ours)
    assert scripts_run(other) == before[1]


async def test_closing_leaves_no_connection_and_no_lock(calm: ClusterOf, cluster: RedisCluster) -> None:
    async with LockClient(cluster) as locks:
        for name in NAMES:
            await locks.lock(name).acquire()
    assert locks.statistics().connections == 0
    assert not any(ask(calm.owner_of(name), "EXISTS", name) for name in NAMES)


async def test_a_client_of_one_server_of_a_cluster_is_refused_for_every_name(calm: ClusterOf) -> None:
    """The server is refused also for its own names: clients of the cluster would not hear of the releases."""
    before = scripts_run(calm.primaries[0])
    async with Redis.from_url(calm.primaries[0].url) as redis, LockClient(redis) as locks:
        for name in NAMES[:10]:
            with pytest.raises(BackendError, match="this server is part of a cluster: give LockClient a RedisCluster"):
                await locks.lock(name).acquire()
        with pytest.raises(BackendError, match="part of a cluster"):
            await locks.lock(NAMES[0]).locked()
    assert scripts_run(calm.primaries[0]) == before


async def test_one_server_that_is_taken_for_a_cluster_is_refused(redis: Redis, server: Server) -> None:
    """The server would serve, but clients that take it for a single server would not hear the messages of a cluster."""
    async with LockClient(RedisCluster(host=server.host, port=server.port)) as locks:
        with pytest.raises(BackendError, match="this server is part of no cluster: give LockClient a Redis"):
            await locks.lock("one server").acquire()
    assert await redis.keys("*") == []


async def test_the_permissions_that_are_documented_are_enough(calm: ClusterOf) -> None:
    page = (ROOT / "docs/deployments/cluster.md").read_text()
    [more] = re.findall(r"and these: `([^`]+)`", page)
    for server in calm.primaries:
        ask(server, *RULES, *more.split())
        ask(server, "ACL", "LOG", "RESET")
    cluster = RedisCluster(
        host=calm.primaries[0].host, port=calm.primaries[0].port, username="locker", password="secret"
    )
    config = LockConfig(prefix="shop:", command_timeout=10)
    try:
        async with LockClient(cluster, config=config) as locks, LockClient(cluster, config=config) as other:
            for name in NAMES[:10]:
                async with parked(locks, other, name, 2, go=True) as (lease, waiters):
                    await lease.renew(60)
                    await lease.release()
                    await waiters.granted(2)
        for server in calm.primaries:
            refused = {entry["object"] for entry in ask(server, "ACL", "LOG")}
            assert refused <= {"client|setinfo", "client"}, "redis-py works without these"
    finally:
        await cluster.aclose()
        for server in calm.primaries:
            ask(server, "ACL", "DELUSER", "locker")


def test_names_are_where_redisson_has_them() -> None:
    """With braces in the name, or without: the lock, its tokens and its channel have one slot."""
    from aiolock._keys import LockKeys

    for name in ("orders", "{orders}:42", "a{b}c", "a{}c", "{"):
        keys = LockKeys.of(name, "")
        slots = {key_slot(key.encode()) for key in (keys.lock, keys.tokens, keys.channel)}
        assert len(slots) == 1 or name in ("a{}c", "{"), name


async def test_locks_are_kept_while_no_new_connection_can_be_made(
    cluster: RedisCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> object:
        raise OSError("Too many open files")

    async with LockClient(cluster, config=LockConfig(lease=3)) as locks:
        leases = [await locks.lock(name).acquire() for name in NAMES[:6]]
        with monkeypatch.context() as patch:
            patch.setattr(asyncio, "open_connection", fail)
            await renewed(locks, 4 * len(leases))
            for lease in leases:
                lease.check()
        for lease in leases:
            await lease.release()
