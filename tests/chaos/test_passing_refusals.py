"""A server that refuses every write for a while, for one of several reasons: an acquire waits for its recovery."""

import asyncio
import pickle
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from time import monotonic

import pytest
from redis import ResponseError
from redis.asyncio import Redis

from aiolock import AsyncRLock, BackendError, LeaseLostError, LockClient, LockEvent, Lost, RenewalLate
from aiolock._embedded_server import Server
from aiolock._scripts import ACQUIRE
from tests.support.holding import lock_client
from tests.support.observe import all_parked, until
from tests.support.proxy import Proxy, script

TIMEOUT = 1.5
NAME = "refused"


@pytest.fixture(scope="module")
def own(server: Server) -> Iterator[Server]:
    """A server of the same kind, to be configured; every test leaves it well."""
    with Server(server._executable) as running:
        yield running


@pytest.fixture
async def admin(own: Server) -> AsyncIterator[Redis]:
    async with Redis.from_url(own.url) as client:
        yield client
        await promoted(client)
        await has_memory(client)
        await wants_no_replica(client)
        await can_save(client)
        await client.config_set("save", "")
        await client.flushall()


async def out_of_memory(admin: Redis) -> None:
    await admin.config_set("maxmemory-policy", "noeviction")
    await admin.config_set("maxmemory", "1")


async def has_memory(admin: Redis) -> None:
    await admin.config_set("maxmemory", "0")


async def saved(admin: Redis) -> str:
    """The result of an attempt to save."""
    await admin.bgsave()

    async def over() -> bool:
        return not (await admin.info("persistence"))["rdb_bgsave_in_progress"]

    await until(over)
    return str((await admin.info("persistence"))["rdb_last_bgsave_status"])


async def dump(admin: Redis) -> Path:
    return Path(str((await admin.config_get("dir"))["dir"]), "dump.rdb")


async def cannot_save(admin: Redis) -> None:
    """A directory has the name of the file, so that not even root can write it."""
    path = await dump(admin)
    path.unlink(missing_ok=True)
    path.mkdir()
    # A server that cannot save refuses writes only if it is to save at all.
    await admin.config_set("save", "3600 1")
    assert await saved(admin) == "err"


async def can_save(admin: Redis) -> None:
    path = await dump(admin)
    if path.is_dir():
        path.rmdir()
    assert await saved(admin) == "ok"


async def wants_a_replica(admin: Redis) -> None:
    await admin.config_set("min-replicas-to-write", 1)


async def wants_no_replica(admin: Redis) -> None:
    await admin.config_set("min-replicas-to-write", 0)


Change = Callable[[Redis], Awaitable[None]]
each_refusal = pytest.mark.parametrize(
    ("refuse", "recover", "code"),
    [
        pytest.param(out_of_memory, has_memory, "OOM", id="out of memory"),
        pytest.param(cannot_save, can_save, "MISCONF", id="cannot save"),
        pytest.param(wants_a_replica, wants_no_replica, "NOREPLICAS", id="too few replicas"),
    ],
)


async def demoted(admin: Redis) -> None:
    await admin.replicaof("127.0.0.1", "1")


async def promoted(admin: Redis) -> None:
    await admin.replicaof("NO", "ONE")


async def connections_made(admin: Redis) -> int:
    return int((await admin.info("stats"))["total_connections_received"])


async def refused_writes(admin: Redis) -> bool:
    try:
        return not await admin.set("anything", "more")
    except ResponseError:
        return True


async def acquired(lock: AsyncRLock) -> int:
    return (await lock.acquire()).token


async def test_a_server_out_of_memory_takes_all_that_holders_give_back(own: Server, admin: Redis) -> None:
    async with LockClient.from_url(own.url) as locks, LockClient.from_url(own.url) as others:
        lease, _ = [await locks.read_write_lock("rw", owner=owner).read.acquire() for owner in ("a", "b")]
        handed_over = await locks.lock("handed over").acquire()
        async with locks.lock("kept").hold(at_least=60), locks.once("done", keep=60) as turn:
            assert turn
            await out_of_memory(admin)
        await lease.release()
        assert await handed_over.detach(keep=60)
        await has_memory(admin)
        assert not await others.lock("kept").try_lock()
        async with others.once("done", keep=60) as turn:
            assert not turn


async def test_a_server_out_of_memory_refuses_changes_of_counts_as_ever(own: Server, admin: Redis) -> None:
    async with LockClient.from_url(own.url) as locks, LockClient.from_url(own.url) as others:
        await others.count_down_latch("set").try_set_count(1)
        await others.counting_semaphore("set").try_set_permits(1)
        await out_of_memory(admin)
        assert not await locks.count_down_latch("set").try_set_count(2)
        assert not await locks.counting_semaphore("set").try_set_permits(2)
        await locks.count_down_latch("open").count_down()


@each_refusal
async def test_an_acquire_waits_for_a_server_that_recovers_in_time(
    own: Server, admin: Redis, refuse: Change, recover: Change, code: str
) -> None:
    async with Proxy(own.host, own.port) as proxy, lock_client(proxy.url, command_timeout=10) as locks:
        lock = locks.lock(NAME, owner="me")
        await refuse(admin)
        assert await refused_writes(admin)
        acquiring = asyncio.create_task(acquired(lock))
        await proxy.saw(script(ACQUIRE), 4)
        assert not acquiring.done()
        await recover(admin)
        async with asyncio.timeout(5):
            assert await acquiring > 0
        assert await lock.hold_count() == 1
        assert len({request.connection for request in proxy.requests}) == 1, "a refusal is no broken connection"
        await lock.release()
        assert not await admin.exists(NAME)


async def refusal(admin: Redis, code: str) -> str:
    """How the server refuses a write: redis-py takes the *code* off where it has a class for the error."""
    with pytest.raises(ResponseError) as raised:
        await admin.set("anything", "more")
    return f"{code} {str(raised.value).removeprefix(f'{code} ')[:30]}"


@each_refusal
async def test_ping_fails_with_the_servers_words(
    own: Server, admin: Redis, refuse: Change, recover: Change, code: str
) -> None:
    async with lock_client(own.url, command_timeout=30) as locks:
        await locks.ping()
        await refuse(admin)
        # A ping fails at once, where an acquire would be tried for half a minute.
        async with asyncio.timeout(15):
            with pytest.raises(BackendError, match=re.escape(await refusal(admin, code))) as raised:
                await locks.ping()
        assert isinstance(raised.value.__cause__, ResponseError)
        await recover(admin)
        await locks.ping()
        assert not await admin.keys()


async def test_ping_fails_on_a_replica(own: Server, admin: Redis) -> None:
    async with lock_client(own.url, command_timeout=2) as locks:
        await locks.ping()
        await demoted(admin)
        with pytest.raises(BackendError, match="replica"):
            await locks.ping()
        await promoted(admin)
        await locks.ping()


async def test_ping_leaves_a_key_of_another_kind_alone(own: Server, admin: Redis) -> None:
    async with lock_client(own.url) as locks:
        await admin.set("aiolock-ping", "mine")
        await locks.ping()
        assert await admin.get("aiolock-ping") == b"mine"


async def test_a_loss_after_refused_renewals_quotes_the_server(
    own: Server, admin: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[LockEvent] = []
    async with lock_client(own.url, lease=1.5, on_event=events.append) as locks:
        with pytest.raises(LeaseLostError, match="snapshots") as raised:
            async with locks.lock(NAME):
                await cannot_save(admin)
                words = await refusal(admin, "MISCONF")
                await asyncio.sleep(10)
        await can_save(admin)
    assert raised.value.reason == "unreachable"
    assert words in str(raised.value.trouble)
    assert pickle.loads(pickle.dumps(raised.value)).trouble == raised.value.trouble
    troubles = [event.trouble for event in events if isinstance(event, (RenewalLate, Lost))]
    assert len(troubles) >= 2
    assert set(troubles) == {raised.value.trouble}
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 2, "that it is late, and that it is lost"
    assert all(words in warning for warning in warnings)


async def test_a_loss_on_a_server_that_becomes_a_replica_quotes_the_code_word(own: Server, admin: Redis) -> None:
    async with lock_client(own.url, lease=1.5, release_timeout=0.1) as locks:
        with pytest.raises(LeaseLostError, match="the last renewal failed: READONLY ") as raised:
            async with locks.lock(NAME):
                await demoted(admin)
                await asyncio.sleep(10)
        assert str(raised.value.trouble).startswith("READONLY ")
        await promoted(admin)


@each_refusal
async def test_an_acquire_that_is_refused_for_too_long_fails_with_the_servers_words(
    own: Server, admin: Redis, refuse: Change, recover: Change, code: str
) -> None:
    async with lock_client(own.url, command_timeout=TIMEOUT) as locks:
        await refuse(admin)
        words = await refusal(admin, code)
        started = monotonic()
        with pytest.raises(BackendError) as raised:
            await locks.lock(NAME).acquire()
        assert TIMEOUT * 0.9 < monotonic() - started < TIMEOUT + 2
        assert words in str(raised.value)
        assert isinstance(raised.value.__cause__, ResponseError)
        await recover(admin)
        await until(lambda: locks.statistics().pending == 0)
        assert not await admin.exists(NAME)
        async with asyncio.timeout(5), locks.lock(NAME) as lease:
            assert lease.holds == 1


@each_refusal
async def test_a_waiter_whose_turn_comes_meanwhile_gets_the_lock_when_the_server_recovers(
    own: Server, admin: Redis, refuse: Change, recover: Change, code: str
) -> None:
    async with lock_client(own.url, command_timeout=10) as locks, LockClient(admin) as other:
        theirs = await other.lock(NAME).acquire(lease=2)
        waiting = asyncio.create_task(acquired(locks.lock(NAME)))
        await all_parked(locks, 1)
        await refuse(admin)
        assert await theirs.lost == "expired"
        await until(lambda: locks.statistics().pending == 1)
        await recover(admin)
        async with asyncio.timeout(5):
            assert await waiting > theirs.token


async def test_a_server_that_is_read_only_is_not_connected_to_without_a_pause(own: Server, admin: Redis) -> None:
    """The client connects again, as the address may lead to a new primary; here it leads to the same server."""
    async with lock_client(own.url, command_timeout=30, release_timeout=30) as locks:
        lease = await locks.lock(NAME, owner="me").acquire(lease=60)
        await demoted(admin)
        before = await connections_made(admin)
        releasing = asyncio.create_task(lease.release())
        await asyncio.sleep(1)
        # The first pause takes some milliseconds, and each next pause twice as long.
        assert 2 <= await connections_made(admin) - before <= 12
        assert not releasing.done()
        await promoted(admin)
        async with asyncio.timeout(10):
            await releasing
        assert not await admin.exists(NAME)
