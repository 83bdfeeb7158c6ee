"""A primary is cut off from its replicas: it goes on granting locks, but with `replicas` the grants do not count."""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from redis.asyncio import Redis, RedisCluster
from redis.asyncio.sentinel import Sentinel

from aiolock import AsyncRLock, BackendError, Lease, LockClient, LockConfig, ReplicationError
from aiolock._embedded_server import Server
from tests.support.calls import acquire_and_release
from tests.support.observe import renewed, until
from tests.support.topologies import NAME as PRIMARY
from tests.support.topologies import ClusterOf, Replicated, ask, replicated, role, waited

NAME = "orders"
PATIENT = {"command_timeout": 25, "release_timeout": 1}

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="servers speak from addresses of their own"),
    pytest.mark.timeout(120),
    pytest.mark.slow,
]


@pytest.fixture
def setup(server: Server) -> Iterator[Replicated]:
    with Replicated(server._executable, replicas=2, sentinels=3, parting=True) as running:
        yield running


@pytest.fixture
def fragile(server: Server) -> Iterator[ClusterOf]:
    with ClusterOf(server._executable, replicas=1, parting=True) as running:
        for each in running.servers:
            ask(each, "CONFIG", "SET", "cluster-node-timeout", 3000)
        yield running


@asynccontextmanager
async def inside(setup: Replicated, **config: Any) -> AsyncIterator[LockClient]:
    """A client on the side of the old primary."""
    redis = Redis.from_url(setup.primary.url)
    async with LockClient(redis, config=LockConfig(**(PATIENT | config))) as client:
        yield client
    await redis.aclose()


@asynccontextmanager
async def outside(setup: Replicated, **config: Any) -> AsyncIterator[LockClient]:
    """A client on the side of the Sentinels, once they have promoted a replica."""
    await asyncio.to_thread(setup.promoted, setup.primary)
    sentinel = Sentinel(setup.addresses, socket_timeout=5)  # type: ignore[no-untyped-call]
    redis = sentinel.master_for(PRIMARY)
    async with LockClient(redis, config=LockConfig(**(PATIENT | config))) as client:
        yield client
    await redis.aclose()
    for each in sentinel.sentinels:
        await each.aclose()


async def two_hold(mine: Lease, lock: AsyncRLock) -> None:
    """Another client gets the lock while it is held, and neither holder is told."""
    theirs = await lock.acquire(lease=300)
    mine.check()
    theirs.check()


async def test_a_primary_that_is_cut_off_goes_on_granting(setup: Replicated) -> None:
    async with inside(setup) as ours:
        setup.part(setup.primary)
        mine = await ours.lock(NAME, owner="job").acquire(lease=300)
        async with outside(setup) as theirs:
            await two_hold(mine, theirs.lock(NAME, owner="job"))
            await acquire_and_release(ours.lock("another"))


async def test_a_primary_that_is_cut_off_goes_on_renewing(setup: Replicated) -> None:
    async with inside(setup, lease=4, renew_interval=0.5) as ours:
        mine = await ours.lock(NAME, owner="job").acquire()
        await replicated(setup.primary, 2)
        setup.part(setup.primary)
        async with outside(setup) as theirs:
            # The other client gets the lock when the lease that the replicas know is over.
            await two_hold(mine, theirs.lock(NAME, owner="job"))
            await renewed(ours, 1)


@pytest.mark.parametrize("replicas", [1, "all"])
async def test_with_replicas_it_grants_nothing(setup: Replicated, replicas: Any) -> None:
    async with inside(setup, replicas=replicas) as ours:
        await acquire_and_release(ours.lock("before"))
        setup.part(setup.primary)
        for gone in (False, True):
            if gone:
                await waited(lambda: not ask(setup.primary, "ROLE")[2], "the replicas are missed")
            with pytest.raises(ReplicationError) as caught:
                await ours.lock(NAME, owner="job").acquire()
            assert caught.value.acks == 0
            await until(lambda: not ask(setup.primary, "EXISTS", NAME))
        async with outside(setup, replicas=1) as theirs:
            await acquire_and_release(theirs.lock(NAME))
        assert ours.statistics().held == 0


async def test_with_replicas_the_former_holder_is_told_before_another_gets_it(setup: Replicated) -> None:
    async with inside(setup, replicas="all", replicas_timeout=0.3, lease=6, renew_interval=0.5) as ours:
        mine = await ours.lock(NAME, owner="job").acquire()
        await renewed(ours, 1)
        setup.part(setup.primary)
        async with outside(setup, replicas=1) as theirs, theirs.lock(NAME):
            assert mine.lost.is_set()
        assert await mine.lost == "unreachable"


async def test_a_primary_that_wants_its_replicas_stops_granting(setup: Replicated) -> None:
    ask(setup.primary, "CONFIG", "SET", "min-replicas-to-write", 1, "min-replicas-max-lag", 2)
    async with inside(setup, command_timeout=0.6) as ours:

        async def is_refused() -> bool:
            try:
                await acquire_and_release(ours.lock(NAME))
            except BackendError as error:
                return "NOREPLICAS" in str(error)
            return False

        await acquire_and_release(ours.lock("before"))
        setup.part(setup.primary)
        await until(is_refused, within=20)
        async with outside(setup) as theirs, theirs.lock(NAME):
            assert await is_refused()


async def test_with_all_a_primary_counts_only_the_replica_on_its_side_after_a_while(setup: Replicated) -> None:
    near, far = setup.replicas
    async with inside(setup, replicas="all") as ours:
        setup.part(setup.primary, near)
        with pytest.raises(ReplicationError):
            await ours.lock(NAME, owner="job").acquire()
        await waited(lambda: len(ask(setup.primary, "ROLE")[2]) == 1, "the other one is given up")
        mine = await ours.lock(NAME, owner="job").acquire(lease=300)
        async with outside(setup) as theirs:
            assert role(far) == "master"
            await two_hold(mine, theirs.lock(NAME, owner="job"))


async def test_with_two_wanted_one_replica_on_its_side_is_not_enough(setup: Replicated) -> None:
    near, far = setup.replicas
    async with inside(setup, replicas=2) as ours:
        setup.part(setup.primary, near)
        await waited(lambda: len(ask(setup.primary, "ROLE")[2]) == 1, "the other one is given up")
        with pytest.raises(ReplicationError) as caught:
            await ours.lock(NAME, owner="job").acquire()
        assert (caught.value.acks, caught.value.wanted) == (1, 2)
        async with outside(setup) as theirs:
            assert role(far) == "master"
            await acquire_and_release(theirs.lock(NAME))


@asynccontextmanager
async def minority(cluster: ClusterOf, primary: Server, **config: Any) -> AsyncIterator[LockClient]:
    """A client that reaches this server and no other."""

    def reached(address: tuple[str, int]) -> tuple[str, int]:
        return (address[0], primary.port if address[1] in (primary.port, cluster.port_of(primary)) else 1)

    redis = RedisCluster(host=primary.host, port=primary.port, address_remap=reached)
    async with LockClient(redis, config=LockConfig(**(PATIENT | config))) as client:
        yield client
    await redis.aclose()


@asynccontextmanager
async def majority(cluster: ClusterOf, lost: Server) -> AsyncIterator[LockClient]:
    """A client of the other servers, once they have replaced the primary that they lost."""
    others = [server for server in cluster.primaries if server is not lost]
    await waited(lambda: cluster.owner_of(NAME, others) is not lost, "a replica is promoted")
    redis = RedisCluster(host=others[0].host, port=cluster.port_of(others[0]))
    async with LockClient(redis, config=LockConfig(command_timeout=25)) as client:
        yield client
    await redis.aclose()


async def test_a_primary_in_a_minority_goes_on_granting_for_a_while(fragile: ClusterOf) -> None:
    primary = fragile.owner_of(NAME)
    async with minority(fragile, primary) as ours:
        await acquire_and_release(ours.lock(f"{{{NAME}}} before"))
        fragile.part(primary)
        mine = await ours.lock(NAME, owner="job").acquire(lease=300)
        async with majority(fragile, primary) as theirs:
            await two_hold(mine, theirs.lock(NAME, owner="job"))
        await waited(lambda: "cluster_state:fail" in ask(primary, "CLUSTER", "INFO"), "the primary knows")
    async with minority(fragile, primary, command_timeout=1) as ours:
        with pytest.raises(BackendError, match="cluster is down"):
            await ours.lock(f"{{{NAME}}} another").acquire()


async def test_with_replicas_a_primary_in_a_minority_grants_nothing(fragile: ClusterOf) -> None:
    primary = fragile.owner_of(NAME)
    async with minority(fragile, primary, replicas=1, replicas_timeout=0.5) as ours:
        await acquire_and_release(ours.lock(f"{{{NAME}}} before"))
        fragile.part(primary)
        with pytest.raises(ReplicationError) as caught:
            await ours.lock(NAME).acquire()
        assert (caught.value.acks, caught.value.wanted) == (0, 1)
        async with majority(fragile, primary) as theirs:
            await acquire_and_release(theirs.lock(NAME))
        assert ours.statistics().held == 0
