"""Replicas: with `LockConfig(replicas=...)` a grant or a renewal counts when they have it."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Literal

import pytest
from redis.asyncio import Redis

from aiolock import AsyncRLock, BackendError, ClientClosedError, LockClient, LockConfig, ReplicationError
from aiolock._embedded_server import Server
from tests.contract.kinds import HAD, Kind, Once
from tests.deployments.test_permissions import RULES
from tests.docs.pages import ROOT
from tests.support.calls import acquire, acquire_and_release
from tests.support.inside import backend_of
from tests.support.observe import answered, commandstats, freed, renewed, until
from tests.support.topologies import Replicated, ask, errors, replicated, wait_until, waited

NAME = "orders"
ONCE_KEY = "aiolock_once:{orders}"


@pytest.fixture(scope="module")
def two(server: Server) -> Iterator[Replicated]:
    """A primary with two replicas."""
    with Replicated(server._executable) as running:
        yield running


@pytest.fixture
async def primary(two: Replicated) -> AsyncIterator[Redis]:
    client = Redis.from_url(two.primary.url)
    await client.flushall()
    wait_until(lambda: len(ask(two.primary, "ROLE")[2]) == 2, "both replicas are in step")
    await replicated(two.primary, 2)
    yield client
    await client.aclose()


@asynccontextmanager
async def paused(*servers: Server) -> AsyncIterator[None]:
    for server in servers:
        server.pause()
    try:
        yield
    finally:
        for server in servers:
            server.resume()


@asynccontextmanager
async def client_of(redis: Redis, replicas: int | Literal["all"], **settings: Any) -> AsyncIterator[LockClient]:
    config = LockConfig(replicas=replicas, **({"replicas_timeout": 1.5, "command_timeout": 12} | settings))
    async with LockClient(redis, config=config) as client:
        yield client


async def paid() -> str:
    return "paid"


async def test_the_permissions_that_are_documented_are_enough(two: Replicated, primary: Redis) -> None:
    page = (ROOT / "docs/deployments/replicas.md").read_text()
    [more] = re.findall(r"and these: `([^`]+)`", page)
    ask(two.primary, *RULES, *more.split())
    async with (
        Redis.from_url(two.primary.url, username="locker", password="secret") as user,
        client_of(user, "all", prefix="shop:", replicas_timeout=5) as locks,
    ):
        async with locks.lock(NAME) as lease:
            await lease.renew(60)
        ask(two.primary, *RULES, *more.split(), "-role")
        with pytest.raises(BackendError, match=r"(?i)no permissions"):
            await acquire(locks.lock(NAME))
    ask(two.primary, "ACL", "DELUSER", "locker")


@pytest.mark.parametrize("replicas", [1, 2, "all"])
async def test_a_grant_that_the_replicas_have_counts(two: Replicated, primary: Redis, replicas: Any) -> None:
    async with client_of(primary, replicas, replicas_timeout=5) as locks, locks.lock(NAME) as lease, locks.lock(NAME):
        assert lease.holds == 2
        held = [ask(replica, "HGET", NAME, "aiolock:token") for replica in two.replicas]
        assert held.count(str(lease.token)) >= (1 if replicas == 1 else 2)


@pytest.mark.parametrize(("replicas", "gone", "acks"), [(2, 1, 1), ("all", 1, 1), (1, 2, 0), (2, 2, 0)])
async def test_a_grant_that_too_few_have_is_undone(
    two: Replicated, primary: Redis, replicas: Any, gone: int, acks: int
) -> None:
    async with client_of(primary, replicas, replicas_timeout=2) as locks:
        async with paused(*two.replicas[:gone]):
            with pytest.raises(ReplicationError) as caught:
                await locks.lock(NAME).acquire()
            wanted = 2 if replicas == "all" else replicas
            assert (caught.value.name, caught.value.acks, caught.value.wanted) == (NAME, acks, wanted)
            await freed(primary, NAME)
        await answered(locks)
        assert locks.statistics().held == 0


async def test_all_means_the_replicas_that_there_are_now(server: Server) -> None:
    with Replicated(server._executable) as group:
        redis = Redis.from_url(group.primary.url)
        async with client_of(redis, "all", replicas_timeout=1) as locks:
            await acquire_and_release(locks.lock(NAME))
            group.replicas[0].kill()
            await waited(lambda: len(ask(group.primary, "ROLE")[2]) == 1, "one replica is gone")
            await acquire_and_release(locks.lock(NAME))
            group.replicas[0].start()
            await waited(lambda: len(ask(group.primary, "ROLE")[2]) == 2, "it is back")
            async with paused(group.replicas[0]):
                with pytest.raises(ReplicationError) as caught:
                    await locks.lock(NAME).acquire()
            assert (caught.value.acks, caught.value.wanted) == (1, 2)
        await redis.aclose()


async def test_all_takes_the_number_of_replicas_from_the_server(two: Replicated, primary: Redis) -> None:
    async with client_of(primary, "all", replicas_timeout=5) as locks:
        async with paused(two.replicas[0]):
            acquiring = asyncio.create_task(acquire(locks.lock(NAME, owner="job")))
            # Until the server tells the number of replicas, one counts as all, and one has the grant.
            await until(lambda: locks.statistics().commands > 1)
            assert not acquiring.done()
        lease = await asyncio.wait_for(acquiring, 10)
        assert ask(two.replicas[0], "HGET", NAME, "aiolock:token") == str(lease.token)


async def test_a_replica_itself_has_no_replicas(own: Server, caplog: pytest.LogCaptureFixture) -> None:
    redis = Redis.from_url(own.url)
    await redis.replicaof("127.0.0.1", "1")
    async with client_of(redis, "all") as locks:
        acquiring = asyncio.create_task(acquire(locks.lock(NAME, owner="job")))
        await until(lambda: errors(own, "READONLY") > 0)
        assert not acquiring.done()
        await redis.replicaof("NO", "ONE")
        with pytest.raises(ReplicationError):
            await asyncio.wait_for(acquiring, 10)
    assert not [record for record in caplog.records if record.name == "asyncio"]
    await redis.aclose()


async def test_one_replica_of_two_is_enough_if_one_is_asked_for(two: Replicated, primary: Redis) -> None:
    async with client_of(primary, 1, replicas_timeout=5) as locks, paused(two.replicas[0]), locks.lock(NAME) as lease:
        lease.check()


async def test_zero_replicas_are_too_few_also_for_all(own: Server) -> None:
    redis = Redis.from_url(own.url)
    async with client_of(redis, "all") as locks:
        with pytest.raises(ReplicationError) as caught:
            await locks.lock(NAME).acquire()
        assert (caught.value.acks, caught.value.wanted) == (0, 1)
        await freed(redis, NAME)
    await redis.aclose()


async def test_a_waiter_goes_on_when_the_holder_was_undone(two: Replicated, primary: Redis) -> None:
    async def attempt(lock: AsyncRLock) -> bool:
        try:
            async with lock:
                return True
        except ReplicationError:
            return False

    async with client_of(primary, 2) as locks:
        async with paused(two.replicas[0]):
            assert await asyncio.gather(*(attempt(locks.lock(NAME)) for _ in range(3))) == [False] * 3
        assert await attempt(locks.lock(NAME)) or await attempt(locks.lock(NAME))


async def test_a_nested_acquire_that_too_few_have_is_undone_alone(two: Replicated, primary: Redis) -> None:
    async with client_of(primary, 2) as locks:
        lock = locks.lock(NAME, owner="job")
        lease = await lock.acquire()
        async with paused(two.replicas[0]):
            with pytest.raises(ReplicationError, match=r"^one more hold of lock 'orders' reached 1 of 2 replicas and"):
                await lock.acquire()
            await answered(locks)
            assert lease.holds == 1
        assert await lock.hold_count() == 1
        await lease.release()


async def test_a_renewal_that_too_few_have_moves_no_deadline(two: Replicated, primary: Redis) -> None:
    async with client_of(primary, 2, lease=3, renew_interval=0.9, replicas_timeout=0.7) as locks:
        lease = await locks.lock(NAME, owner="job").acquire()
        await renewed(locks, 1)
        async with paused(*two.replicas):
            with pytest.raises(ReplicationError, match=r"^the renewal of lock 'orders' reached 0 of 2 replicas and"):
                await lease.renew(60)
            assert lease.remaining < 3
            before = locks.statistics().renewals
            assert await asyncio.wait_for(lease.lost, 20) == "unreachable"
            assert locks.statistics().renewals == before


async def test_replicas_that_come_back_in_time_keep_the_lock(two: Replicated, primary: Redis) -> None:
    async with client_of(primary, 2, lease=10, renew_interval=0.5) as locks, locks.lock(NAME) as lease:
        async with paused(*two.replicas):
            sent = locks.statistics().commands
            await until(lambda: locks.statistics().commands > sent + 4, within=8)
        await renewed(locks, 1)
        lease.check()


async def test_a_grant_whose_primary_is_demoted_while_replicas_are_asked_is_sent_again(server: Server) -> None:
    with Replicated(server._executable) as servers:
        redis = Redis.from_url(servers.primary.url)
        wait_until(lambda: len(ask(servers.primary, "ROLE")[2]) == 2, "both replicas are in step")
        async with redis, client_of(redis, 2, replicas_timeout=5) as locks:
            async with paused(*servers.replicas):
                acquiring = asyncio.create_task(acquire(locks.lock(NAME)))
                await until(lambda: "cmd=wait" in ask(servers.primary, "CLIENT", "LIST"))
                ask(servers.primary, "REPLICAOF", "127.0.0.1", str(servers.replicas[0].port))
                ask(servers.primary, "REPLICAOF", "NO", "ONE")
            await acquiring


async def test_the_replicas_are_asked_once_for_a_batch(primary: Redis) -> None:
    async with client_of(primary, 2, replicas_timeout=5) as locks:
        names = [locks.lock(f"name {number}", owner="job") for number in range(20)]
        leases = [await names[0].acquire()]
        before = await commandstats(primary)
        leases += await asyncio.gather(*(lock.acquire() for lock in names[1:]))
        after = await commandstats(primary)
        assert after["eval"] - before["eval"] == 1, "19 calls as one"
        assert after["wait"] - before["wait"] == 1
        await asyncio.gather(*(lease.release() for lease in leases))
        await answered(locks)
        assert (await commandstats(primary))["wait"] == after["wait"], "a release waited for the replicas"


def waiting_for_replicas(client: LockClient) -> int:
    """The number of grants and renewals that wait for the replicas."""
    [server] = backend_of(client).servers()
    return sum(len(pipeline._replication.granted) for pipeline in server._both)


async def test_calls_during_a_wait_for_replicas_become_one_batch(two: Replicated, primary: Redis) -> None:
    async with client_of(primary, 2, replicas_timeout=5) as locks:
        await acquire_and_release(locks.lock("first"))
        await answered(locks)
        async with paused(two.replicas[0]):
            acquiring = [asyncio.create_task(acquire_and_release(locks.lock("first")))]
            await until(lambda: waiting_for_replicas(locks) == 1)
            before = locks.statistics().batches
            for number in range(3):
                assert locks.statistics().pending == len(acquiring)
                acquiring.append(asyncio.create_task(acquire_and_release(locks.lock(f"name {number}"))))
                await until(lambda: locks.statistics().pending == len(acquiring))
                # Each of these turns of the loop would send a batch.
                await asyncio.sleep(0.01)
            assert locks.statistics().batches == before
            stats = await commandstats(primary)
        await asyncio.gather(*acquiring)
        assert (await commandstats(primary))["wait"] - stats.get("wait", 0) <= 2


async def test_the_time_that_replicas_take_is_not_taken_for_a_dead_connection(two: Replicated, primary: Redis) -> None:
    async with client_of(primary, 2, lease=12, command_timeout=6, replicas_timeout=3) as locks:
        lock = locks.lock("renewed", owner="job")
        lease = await lock.acquire(lease=20)
        async with paused(*two.replicas):
            outcomes = await asyncio.gather(
                lease.renew(), locks.lock(NAME, owner="job").acquire(), return_exceptions=True
            )
        assert [type(outcome) for outcome in outcomes] == [ReplicationError] * 2
        await lease.release()


async def test_a_grant_that_replicas_have_not_when_the_connection_breaks_is_asked_for_again(
    two: Replicated, primary: Redis
) -> None:
    async with client_of(primary, 2, replicas_timeout=5) as locks:
        lock = locks.lock(NAME, owner="job")
        async with paused(two.replicas[0]):
            acquiring = asyncio.create_task(acquire(lock))
            await until(lambda: waiting_for_replicas(locks) == 1)
            sent = locks.statistics().commands
            await primary.client_kill_filter(_type="normal", skipme=True)
            await until(lambda: locks.statistics().commands > sent)
            await until(lambda: waiting_for_replicas(locks) > 0)
            assert locks.statistics().pending == waiting_for_replicas(locks) == 1
        lease = await asyncio.wait_for(acquiring, 20)
        assert lease.holds == await lock.hold_count() == 1
        held = [ask(replica, "HGET", NAME, "aiolock:token") for replica in two.replicas]
        assert held == [str(lease.token)] * 2


@pytest.mark.parametrize("kind", [kind for kind in HAD if not isinstance(kind, Once)], ids=repr)
async def test_a_grant_of_each_kind_that_is_sent_again_waits_for_the_replicas_again(
    two: Replicated, primary: Redis, kind: Kind
) -> None:
    """WAIT is about writes of its own connection, so the second copy has to write something."""
    async with client_of(primary, 2, replicas_timeout=5) as locks:
        async with paused(two.replicas[0]):
            taking = asyncio.create_task(kind.take(locks, owner="job"))
            await until(lambda: waiting_for_replicas(locks) > 0)
            sent = locks.statistics().commands
            await primary.client_kill_filter(_type="normal", skipme=True)
            await until(lambda: locks.statistics().commands > sent)

            async def is_answered_or_waits() -> bool:
                return taking.done() or (await primary.info("clients"))["blocked_clients"] > 0

            # The server keeps the WAIT behind the second copy until the replica has acknowledged it.
            await until(is_answered_or_waits)
            assert not taking.done()
        await kind.give(locks, await asyncio.wait_for(taking, 20))


async def test_a_renewal_that_replicas_have_not_when_the_connection_breaks_is_asked_for_again(
    two: Replicated, primary: Redis
) -> None:
    async with client_of(primary, 2, replicas_timeout=5) as locks:
        lease = await locks.lock(NAME, owner="job").acquire(lease=60)
        async with paused(two.replicas[0]):
            renewing = asyncio.create_task(lease.renew(120))
            # A renewal goes by both connections while the connection for renewals is not open yet.
            await until(lambda: waiting_for_replicas(locks) > 0)
            sent = locks.statistics().commands
            await primary.client_kill_filter(_type="normal", skipme=True)
            await until(lambda: locks.statistics().commands > sent)
            await until(lambda: waiting_for_replicas(locks) > 0)
            assert not renewing.done()
            assert lease.remaining < 60
        await asyncio.wait_for(renewing, 20)
        assert lease.remaining > 60


async def test_a_result_that_the_replicas_have_counts(two: Replicated, primary: Redis) -> None:
    async with client_of(primary, 2, replicas_timeout=5) as locks:
        assert await locks.once(NAME, keep=60).run(paid) == "paid"
        assert [ask(replica, "HGET", ONCE_KEY, "aiolock:outcome") for replica in two.replicas] == ["spaid"] * 2


async def test_a_result_that_too_few_have_is_reported_and_remembered(two: Replicated, primary: Redis) -> None:
    async with client_of(primary, 2, replicas_timeout=1) as locks:
        async with AsyncExitStack() as stack:
            with pytest.raises(ReplicationError, match="the result of once 'orders' reached 1 of 2 replicas") as caught:
                async with locks.once(NAME, keep=60) as turn:
                    await stack.enter_async_context(paused(two.replicas[0]))
                    turn.result = "paid"
        assert (caught.value.name, caught.value.acks, caught.value.wanted) == (NAME, 1, 2)
        assert await locks.once(NAME, keep=60).run(paid) == "paid"


async def test_a_failure_that_too_few_have_is_reported_by_a_note(two: Replicated, primary: Redis) -> None:
    async with client_of(primary, 2, replicas_timeout=1) as locks, AsyncExitStack() as stack:
        with pytest.raises(ValueError, match="broken") as caught:
            async with locks.once(NAME, keep=60, failures="remember"):
                await stack.enter_async_context(paused(two.replicas[0]))
                raise ValueError("broken")
        assert "1 of 2 replicas" in "".join(caught.value.__notes__)


async def test_a_result_that_replicas_have_not_when_the_connection_breaks_is_asked_for_again(
    two: Replicated, primary: Redis
) -> None:
    async with client_of(primary, 2, replicas_timeout=5) as locks:
        may_end, begun = asyncio.Event(), asyncio.Event()

        async def pay() -> str:
            begun.set()
            await may_end.wait()
            return "paid"

        running = asyncio.create_task(locks.once(NAME, keep=60).run(pay))
        await begun.wait()
        async with paused(two.replicas[0]):
            may_end.set()
            await until(lambda: waiting_for_replicas(locks) == 1)
            sent = locks.statistics().commands
            await primary.client_kill_filter(_type="normal", skipme=True)
            await until(lambda: locks.statistics().commands > sent)
            await until(lambda: waiting_for_replicas(locks) > 0)
            assert not running.done()
        assert await asyncio.wait_for(running, 20) == "paid"
        assert [ask(replica, "HGET", ONCE_KEY, "aiolock:outcome") for replica in two.replicas] == ["spaid"] * 2


async def test_every_grant_of_a_batch_is_judged(two: Replicated, primary: Redis) -> None:
    async with client_of(primary, 2, replicas_timeout=1) as locks:
        await acquire_and_release(locks.lock(NAME))
        async with paused(two.replicas[0]):
            waiting = [locks.lock(f"name {number}", owner="job").acquire() for number in range(3)]
            outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [ReplicationError] * 3
        assert locks.statistics().held == 0


async def test_closing_waits_no_longer_than_it_may_for_replicas(two: Replicated, primary: Redis) -> None:
    async with paused(*two.replicas):
        async with client_of(primary, 2, replicas_timeout=6, release_timeout=0.2) as locks:
            acquiring = asyncio.create_task(acquire(locks.lock(NAME, owner="job")))
            await until(lambda: waiting_for_replicas(locks) == 1)
        with pytest.raises(ClientClosedError):
            await asyncio.wait_for(acquiring, 5)


async def test_a_call_without_a_grant_does_not_wait_for_replicas(two: Replicated, primary: Redis) -> None:
    async with client_of(primary, 2, replicas_timeout=6) as locks, LockClient(primary) as other, other.lock(NAME):
        mine = await locks.lock("mine", owner="job").acquire()
        async with paused(*two.replicas):
            await mine.release()
            assert await locks.lock(NAME).locked()
            # The release has not reached them, so that WAIT takes time.
            async with asyncio.timeout(5):
                assert await locks.lock(NAME).try_lock() is None


async def test_a_server_without_wait_is_refused_with_words(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    with Server(server._executable, config='rename-command WAIT ""\n') as bare:
        redis = Redis.from_url(bare.url)
        async with client_of(redis, 1) as locks:
            with pytest.raises(BackendError, match=r"does not report on its replicas.*WAIT"):
                await locks.lock(NAME).acquire()
            await freed(redis, NAME)
            await answered(locks)
        assert not [record for record in caplog.records if record.name == "asyncio"]
        await redis.aclose()


async def test_all_is_refused_on_a_server_that_hides_its_number_of_replicas(server: Server) -> None:
    with Server(server._executable, config='rename-command ROLE ""\n') as bare:
        redis = Redis.from_url(bare.url)
        async with client_of(redis, "all") as locks:
            with pytest.raises(BackendError, match=r"does not report on its replicas.*ROLE"):
                await locks.lock(NAME).acquire()
            await freed(redis, NAME)
            await answered(locks)
        await redis.aclose()
