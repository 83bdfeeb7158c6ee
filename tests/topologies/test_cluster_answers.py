"""The servers of a cluster answer, or do not answer, which server owns a slot; clients cope with wrong answers."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from time import monotonic

import pytest
from redis.asyncio import RedisCluster
from redis.crc import key_slot
from redis.exceptions import ResponseError

from aiolock import BackendError, ClientClosedError, LockClient, LockConfig
from aiolock._embedded_server import Server
from aiolock._keys import LockKeys
from aiolock._scripts import ACQUIRE, RENEW
from tests.support.calls import acquire_and_release
from tests.support.inside import backend_of, cluster_of, keys_of, submit
from tests.support.observe import until
from tests.support.proxy import Proxy, command, script
from tests.support.topologies import ClusterOf, ask, errors
from tests.support.waiters import parked

NAME = "orders"
NAMES = [f"name {number}" for number in range(20)]


@pytest.fixture
def quarrel(server: Server) -> Iterator[ClusterOf]:
    """A cluster of one test, which tells its servers different owners of a slot."""
    with ClusterOf(server._executable) as running:
        yield running


@contextmanager
def silent_about_slots(cluster: ClusterOf) -> Iterator[None]:
    """The servers do not list the slots; a server still names the owner when it is asked for a key that it lacks."""
    for server in cluster.servers:
        ask(server, "ACL", "SETUSER", "default", "-cluster|slots")
    try:
        yield
    finally:
        for server in cluster.servers:
            ask(server, "ACL", "SETUSER", "default", "+cluster|slots")


def redirections(cluster: ClusterOf) -> int:
    """The number of times that a server has answered MOVED."""
    return sum(errors(server, "MOVED") for server in cluster.servers)


async def test_a_servers_word_about_a_slot_counts_at_once(calm: ClusterOf, cluster: RedisCluster) -> None:
    with silent_about_slots(calm):
        async with LockClient(cluster) as locks:
            for name in NAMES:
                await acquire_and_release(locks.lock(name))
            before = redirections(calm)
            assert before > 0
            for name in NAMES:
                await acquire_and_release(locks.lock(name))
            assert redirections(calm) == before


async def test_once_the_slots_are_known_nothing_is_sent_astray(calm: ClusterOf, cluster: RedisCluster) -> None:
    async with LockClient(cluster) as locks:
        topology = cluster_of(locks)
        await acquire_and_release(locks.lock(NAME))
        await until(lambda: all(topology._owners))
        before = redirections(calm)
        for name in NAMES:
            await acquire_and_release(locks.lock(name))
        assert redirections(calm) == before


async def test_waiters_that_park_before_the_kind_of_messages_is_known_are_woken(calm: ClusterOf) -> None:
    seed = calm.primaries[0]
    name = next(name for name in NAMES if calm.owner_of(name) is seed)
    cluster = RedisCluster(host=seed.host, port=seed.port)
    # A late list of the slots could hide the fault.
    with silent_about_slots(calm):
        async with (
            LockClient(cluster) as locks,
            LockClient(cluster) as other,
            parked(locks, other, name, 3, go=True) as (lease, waiters),
        ):
            await lease.release()
            await waiters.granted(3)
    await cluster.aclose()


async def test_a_close_while_a_server_hangs_leaves_no_question_for_slots(calm: ClusterOf) -> None:
    seed = calm.primaries[0]
    lock = next(name for name in NAMES if calm.owner_of(name) is seed)
    cluster = RedisCluster(host=seed.host, port=seed.port)
    with silent_about_slots(calm):
        try:
            async with LockClient(cluster, config=LockConfig(release_timeout=0.1)) as locks:
                await acquire_and_release(locks.lock(lock))
                seed.pause()
                sent = locks.statistics().commands
                acquiring = asyncio.create_task(acquire_and_release(locks.lock(lock)))
                await until(lambda: locks.statistics().commands > sent)
            with pytest.raises(ClientClosedError):
                await acquiring
        finally:
            seed.resume()
    await cluster.aclose()


@pytest.mark.parametrize(
    ("preferred", "silent"), [("unknown-endpoint", True), ("unknown-endpoint", False), ("hostname", False)]
)
async def test_a_server_that_does_not_know_its_own_name_is_found(
    calm: ClusterOf, cluster: RedisCluster, preferred: str, silent: bool
) -> None:
    """The client uses the address at which it asked or, if the server is to have a host name and has none, the IP."""
    for server in calm.servers:
        ask(server, "CONFIG", "SET", "cluster-preferred-endpoint-type", preferred)
    try:
        async with AsyncExitStack() as stack:
            if silent:
                stack.enter_context(silent_about_slots(calm))
            locks = await stack.enter_async_context(LockClient(cluster))
            for name in NAMES:
                await acquire_and_release(locks.lock(name))
            if not silent:
                topology = cluster_of(locks)
                await until(lambda: all(topology._owners))
    finally:
        for server in calm.servers:
            ask(server, "CONFIG", "SET", "cluster-preferred-endpoint-type", "ip")


@pytest.fixture
async def proxies(calm: ClusterOf) -> AsyncIterator[dict[int, Proxy]]:
    """A proxy before each server, by the server's port."""
    async with AsyncExitStack() as stack:
        yield {server.port: await stack.enter_async_context(Proxy(server.host, server.port)) for server in calm.servers}


async def test_servers_are_reached_where_the_users_client_reaches_them(
    calm: ClusterOf, proxies: dict[int, Proxy]
) -> None:
    """Behind a NAT, the addresses that the cluster gives lead nowhere; the address of the user is mapped already."""

    def outside(address: tuple[str, int]) -> tuple[str, int]:
        return address[0], proxies[address[1]].port

    first = proxies[calm.primaries[0].port]
    cluster = RedisCluster(host="127.0.0.1", port=first.port, address_remap=outside)
    async with (
        LockClient(cluster) as locks,
        LockClient(cluster) as other,
        parked(locks, other, NAME, 2, go=True) as (lease, waiters),
    ):
        for name in NAMES:
            await acquire_and_release(locks.lock(name))
        await lease.release()
        await waiters.granted(2)
    for server in calm.primaries:
        asked = {request.args[3] for request in proxies[server.port].requests if script(ACQUIRE)(request)}
        assert {name for name in NAMES if calm.owner_of(name) is server} <= {key.decode() for key in asked}
    await proxies[calm.owner_of(NAME).port].saw(command(b"SSUBSCRIBE"))
    await cluster.aclose()


def let_go(cluster: ClusterOf, keys: LockKeys) -> None:
    """Delete the keys of a lock without a message, because a slot that has keys could not move."""
    for key in (keys.lock, keys.tokens):
        ask(cluster.owner_of(keys.lock), "DEL", key)


def take(cluster: ClusterOf, name: str, new: Server) -> None:
    """Let *new* have the slot of *name*, which has no keys."""
    # Otherwise the claim of the old owner might have the higher epoch.
    ask(new, "CLUSTER", "BUMPEPOCH")
    ask(new, "CLUSTER", "SETSLOT", key_slot(name.encode()), "NODE", cluster.id_of(new))


def move(cluster: ClusterOf, name: str, old: Server, new: Server) -> None:
    """Let *new* have the slot of *name*, which has no keys, and *old* know of it."""
    take(cluster, name, new)
    ask(old, "CLUSTER", "SETSLOT", key_slot(name.encode()), "NODE", cluster.id_of(new))


def set_at_odds(cluster: ClusterOf, name: str) -> tuple[Server, Server]:
    """Two servers, each of which says that the other has the slot of *name*."""
    one = cluster.owner_of(name)
    other = next(server for server in cluster.primaries if server is not one)
    ask(one, "CLUSTER", "SETSLOT", key_slot(name.encode()), "NODE", cluster.id_of(other))
    return one, other


async def test_a_call_that_servers_send_round_in_circles_rests_until_they_agree(quarrel: ClusterOf) -> None:
    one, other = set_at_odds(quarrel, NAME)
    cluster = RedisCluster(host=one.host, port=one.port)
    async with LockClient(cluster, config=LockConfig(command_timeout=20)) as locks:
        acquiring = asyncio.create_task(acquire_and_release(locks.lock(NAME)))
        await until(lambda: redirections(quarrel) > 30)
        before, began = redirections(quarrel), monotonic()
        await asyncio.sleep(0.5)
        assert redirections(quarrel) - before < 400 * (monotonic() - began)
        assert not acquiring.done()
        ask(other, "CLUSTER", "SETSLOT", key_slot(NAME.encode()), "NODE", quarrel.id_of(other))
        await asyncio.wait_for(acquiring, 15)
    await cluster.aclose()


async def test_a_renewal_that_servers_send_round_in_circles_does_not_multiply(
    quarrel: ClusterOf,
) -> None:
    one, _ = set_at_odds(quarrel, NAME)
    cluster = RedisCluster(host=one.host, port=one.port)
    async with LockClient(cluster, config=LockConfig(command_timeout=20)) as locks:
        keys = LockKeys.of(NAME, "")
        renewal = submit(backend_of(locks), RENEW, (keys.lock, keys.tokens), (1000, 1000, "acquisition", 1, 1000), 20)
        most = 0

        def gone_round() -> bool:
            nonlocal most
            most = max(most, locks.statistics().pending)
            return redirections(quarrel) > 60

        await until(gone_round)
        # Two connections to each of the two servers.
        assert most <= 4
        assert not renewal.ended
    await cluster.aclose()


async def test_a_call_that_servers_send_round_in_circles_fails_in_time(quarrel: ClusterOf) -> None:
    one, _ = set_at_odds(quarrel, NAME)
    cluster = RedisCluster(host=one.host, port=one.port)
    async with LockClient(cluster, config=LockConfig(command_timeout=0.5)) as locks:
        with pytest.raises(BackendError, match=r"refused all the time .*MOVED"):
            await locks.lock(NAME).acquire()
    await cluster.aclose()


async def test_a_server_that_lost_a_slot_is_not_believed_about_the_others(quarrel: ClusterOf) -> None:
    """The old owner has lost a slot and does not know the new owner; the other servers know it."""
    old = quarrel.owner_of(NAME)
    new, third = (server for server in quarrel.primaries if server is not old)
    slot = key_slot(NAME.encode())
    # The client would ask this server for the slots first, if it did not doubt its answers.
    cluster = RedisCluster(host=old.host, port=old.port)
    async with LockClient(cluster, config=LockConfig(command_timeout=20)) as locks:
        await acquire_and_release(locks.lock(NAME))
        for server in (new, third):
            await acquire_and_release(locks.lock(next(name for name in NAMES if quarrel.owner_of(name) is server)))
        take(quarrel, NAME, new)
        ask(third, "CLUSTER", "SETSLOT", slot, "NODE", quarrel.id_of(new))
        ask(old, "CLUSTER", "FORGET", quarrel.id_of(new))
        # The server may have heard of the new owner, and forgotten the slot with it.
        with suppress(ResponseError):
            ask(old, "CLUSTER", "DELSLOTS", slot)
        async with locks.lock(NAME):
            assert ask(new, "EXISTS", NAME) == 1
    await cluster.aclose()


async def test_a_server_that_repeats_a_doubtful_answer_is_not_asked_first_again(quarrel: ClusterOf) -> None:
    """A server that has lost touch with the others still gives the old answer."""
    old = quarrel.owner_of(NAME)
    new, behind = (server for server in quarrel.primaries if server is not old)
    cluster = RedisCluster(host=behind.host, port=behind.port)
    async with LockClient(cluster, config=LockConfig(command_timeout=20)) as locks:
        for server in (old, behind):
            await acquire_and_release(locks.lock(next(name for name in NAMES if quarrel.owner_of(name) is server)))
        # It tells the old owner, which may forget it, too.
        ask(behind, "CLUSTER", "FORGET", quarrel.id_of(new))
        take(quarrel, NAME, new)
        old.kill()
        async with locks.lock(NAME):
            assert ask(new, "EXISTS", NAME) == 1
    await cluster.aclose()


async def test_a_waiter_follows_its_slot_also_when_servers_hear_late_that_it_moved(quarrel: ClusterOf) -> None:
    cluster = RedisCluster(host=quarrel.primaries[0].host, port=quarrel.primaries[0].port)
    async with (
        LockClient(cluster) as locks,
        LockClient(cluster) as other,
        parked(locks, other, NAME, 2, go=True) as (_, waiters),
    ):
        let_go(quarrel, keys_of(waiters.lock))
        _, new = set_at_odds(quarrel, NAME)
        before = redirections(quarrel)
        await until(lambda: redirections(quarrel) > before + 3, within=15)
        assert waiters.order == []
        take(quarrel, NAME, new)
        await waiters.granted(2, within=15)
    await cluster.aclose()


async def test_a_waiter_follows_its_slot_though_the_servers_refuse_at_first_to_list_the_slots(
    quarrel: ClusterOf,
) -> None:
    old, new, _ = quarrel.primaries
    name = next(name for name in NAMES if quarrel.owner_of(name) is old)
    cluster = RedisCluster(host=old.host, port=old.port)
    config = LockConfig(command_timeout=3)

    def refusals() -> int:
        """The number of times that the servers refused to list the slots."""
        return sum(errors(server, "NOPERM") for server in quarrel.servers)

    async with (
        LockClient(cluster, config=config) as locks,
        LockClient(cluster, config=config) as other,
        parked(locks, other, name, 2, go=True) as (_, waiters),
    ):
        let_go(quarrel, keys_of(waiters.lock))
        with silent_about_slots(quarrel):
            move(quarrel, name, old, new)
            await until(lambda: refusals() > 4)
            before, began = refusals(), monotonic()
            await asyncio.sleep(0.5)
            assert refusals() - before < 100 * (monotonic() - began + 0.1)
            assert waiters.order == []
        await waiters.granted(2, within=15)
    await cluster.aclose()


async def test_the_slots_are_asked_of_another_server_when_one_hangs(quarrel: ClusterOf) -> None:
    hung, new, old = quarrel.primaries
    name = next(name for name in NAMES if quarrel.owner_of(name) is old)
    # The client asks the hung server first, as it knows nothing bad of it, and redis-py would not give up by itself.
    cluster = RedisCluster(host=hung.host, port=hung.port, socket_connect_timeout=120)
    config = LockConfig(command_timeout=3)
    async with (
        LockClient(cluster, config=config) as locks,
        LockClient(cluster, config=config) as other,
        parked(locks, other, name, 2, go=True) as (_, waiters),
    ):
        await acquire_and_release(locks.lock(next(each for each in NAMES if quarrel.owner_of(each) is hung)))
        channel = keys_of(waiters.lock).channel
        let_go(quarrel, keys_of(waiters.lock))
        topology = cluster_of(locks)
        await until(lambda: topology._asking is None)
        hung.pause()
        try:
            move(quarrel, name, old, new)
            await until(lambda: ask(new, "PUBSUB", "SHARDCHANNELS") == [channel] or len(waiters.order) == 2, within=30)
        finally:
            hung.resume()
        await waiters.granted(2, within=15)
    await cluster.aclose()
