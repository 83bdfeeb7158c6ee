"""A cluster that speaks TLS and asks for certificates of both sides: everything works as it does without."""

import shutil
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

import pytest
from redis.asyncio import RedisCluster

from aiolock import BackendError, LockClient, LockConfig
from tests.deployments.session import session
from tests.support.calls import acquire_and_release
from tests.support.certificates import Certificates
from tests.support.inside import keys_of, slots_are_settled
from tests.support.observe import renewed, until
from tests.support.resharding import begin_to_move, end_move, move, move_keys
from tests.support.topologies import ClusterOf, ask, replicated, waited
from tests.support.waiters import parked

NAME = "orders"


@pytest.fixture(scope="session")
def executable() -> str:
    """Always the `redis-server` on the path: the embedded Valkey is built without TLS."""
    found = shutil.which("redis-server")
    return found or pytest.skip("no redis-server on the path")


@pytest.fixture(scope="module")
def calm(executable: str, certificates: Certificates) -> Iterator[ClusterOf]:
    with ClusterOf(executable, certificates=certificates) as running:
        yield running


@pytest.fixture
def fragile(executable: str, certificates: Certificates) -> Iterator[ClusterOf]:
    with ClusterOf(executable, replicas=1, certificates=certificates) as running:
        yield running


@asynccontextmanager
async def client_of(cluster: ClusterOf, settings: dict[str, Any], **config: Any) -> AsyncIterator[LockClient]:
    """A client that knows the first server."""
    first = cluster.primaries[0]
    redis = RedisCluster(host=first.host, port=cluster.port_of(first), ssl=True, **settings)
    async with LockClient(redis, config=LockConfig(**({"command_timeout": 10} | config))) as client:
        yield client
    await redis.aclose()


def reached(cluster: ClusterOf, name: str) -> set[str]:
    """The addresses that the clients of that name are connected to."""
    clients = [line for server in cluster.servers for line in ask(server, "CLIENT", "LIST").splitlines()]
    found = [dict(field.split("=", 1) for field in line.split()) for line in clients]
    return {client["laddr"] for client in found if client["name"] == name}


async def test_locks_on_every_server(calm: ClusterOf, certificates: Certificates) -> None:
    """The session runs every script, and has waits that messages end."""
    names = [next(f"name {n}" for n in range(99) if calm.owner_of(f"name {n}") is server) for server in calm.servers]
    async with (
        client_of(calm, certificates.settings, client_name="ours") as ours,
        client_of(calm, certificates.settings) as theirs,
    ):
        for name in names:
            tokens = await session(ours, theirs, name)
            assert tokens == sorted(set(tokens))
            assert ask(calm.owner_of(name), "EXISTS", f"aiolock_token:{{{name}}}") == 1
        assert reached(calm, "ours") == {f"{server.host}:{calm.port_of(server)}" for server in calm.servers}


async def test_a_slot_that_moved_is_found_at_its_new_place(calm: ClusterOf, certificates: Certificates) -> None:
    async with client_of(calm, certificates.settings) as locks:
        name = next(f"name {n}" for n in range(99) if calm.owner_of(f"name {n}") is calm.primaries[0])
        async with locks.lock(name) as lease:
            target = move(calm, name)
            # The old server answers MOVED.
            await lease.renew(60)
            assert ask(target, "HGET", name, "aiolock:token") == str(lease.token)
        assert ask(target, "EXISTS", name) == 0


async def test_a_slot_moves_while_its_lock_is_held_and_waited_for(calm: ClusterOf, certificates: Certificates) -> None:
    async with (
        client_of(calm, certificates.settings, lease=60) as theirs,
        client_of(calm, certificates.settings) as ours,
        theirs.lock(f"{{{NAME}}} beside") as beside,
        parked(ours, theirs, NAME, 3, go=True) as (lease, waiters),
    ):
        source, target = begin_to_move(calm, NAME)
        move_keys(calm, NAME, source, target)
        # The server redirects it by ASK. The watchdog would give up a handshake that takes long.
        await beside.renew()
        end_move(calm, NAME, target)
        await until(lambda: ask(target, "PUBSUB", "SHARDCHANNELS") == [keys_of(waiters.lock).channel], within=20)
        await until(waiters.quiet, within=20)
        await lease.release()
        await waiters.granted(3, within=20)
        assert theirs.statistics().losses == 0


async def test_a_primary_that_dies_is_followed_by_its_replica(fragile: ClusterOf, certificates: Certificates) -> None:
    settings = certificates.settings
    async with (
        client_of(fragile, settings, lease=30, renew_interval=2, command_timeout=25) as holder,
        client_of(fragile, settings, command_timeout=25) as locks,
        parked(locks, holder, NAME, 2, go=True, lease=120) as (lease, waiters),
    ):
        # Both clients have to know all servers: each was given one server only, which may be the one that dies.
        await until(lambda: slots_are_settled(holder), within=25)
        await until(lambda: slots_are_settled(locks), within=25)
        old = fragile.owner_of(NAME)
        others = [server for server in fragile.primaries if server is not old]
        async with holder.lock(f"{{{NAME}}} watched") as watched:
            await replicated(old, 1)
            old.kill()
            await waited(lambda: fragile.owner_of(NAME, others) is not old, "a replica is promoted")
            new = fragile.owner_of(NAME, others)
            await renewed(holder, 1, within=25)
            watched.check()
        # A third of the command timeout may pass between two attempts to reach the dead server; and the server that the
        # client then asks for the slots may not know of the failover yet.
        channel = keys_of(waiters.lock).channel
        await until(lambda: waiters.none_failed() and ask(new, "PUBSUB", "SHARDCHANNELS") == [channel], within=40)
        await until(waiters.quiet, within=25)
        await lease.release()
        await waiters.granted(2, within=25)
        assert holder.statistics().losses == 0


async def test_a_certificate_of_a_stranger_is_refused_at_once(calm: ClusterOf, certificates: Certificates) -> None:
    settings = certificates.settings | {"ssl_ca_certs": certificates.stranger}
    async with client_of(calm, settings, command_timeout=30) as client:
        started = monotonic()
        with pytest.raises(BackendError, match="certificate verify failed") as raised:
            await client.lock(NAME).acquire()
        assert monotonic() - started < 15
    assert isinstance(raised.value.__cause__, ssl.SSLCertVerificationError)


async def test_a_client_without_a_certificate_is_turned_away(calm: ClusterOf, certificates: Certificates) -> None:
    async with client_of(calm, {"ssl_ca_certs": certificates.authority}, command_timeout=3) as client:
        with pytest.raises(BackendError, match=r"(?i)certificate required|reset by peer|closed|broken pipe"):
            await client.lock(NAME).acquire()
    async with client_of(calm, certificates.settings) as client:
        await acquire_and_release(client.lock(NAME))
