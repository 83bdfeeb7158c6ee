"""One server that is restarted, loading, paused, flushed or out of memory while locks are held and waited for."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest
from redis.asyncio import Redis
from redis.exceptions import BusyLoadingError, RedisError

from aiolock import AioLockError, AsyncRLock, BackendError, LeaseLostError, LockClient
from aiolock._embedded_server import Server
from tests.support.holding import lock_client
from tests.support.observe import renewed, until
from tests.support.waiters import parked

NAME = "orders:42"
# At half a millisecond for each key, the server loads for three seconds. It answers after every kilobyte.
KEYS = 6000
LOADING = ("--key-load-delay", "500", "--loading-process-events-interval-bytes", "1024")
PATIENT = {"lease": 30, "renew_interval": 0.5, "command_timeout": 25, "release_timeout": 25}


@pytest.fixture
def lasting(server: Server) -> Iterator[Server]:
    """A server that keeps its keys, and takes its time to load them."""
    with Server(server._executable, append_only=True, options=LOADING) as running:
        yield running


def start_loading(server: Server) -> None:
    """Start it, and do not wait until it has loaded its keys."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "_wait_for_pong", lambda process: None)
        server._start_on(server.port)


async def fill(server: Server) -> None:
    async with Redis.from_url(server.url) as admin, admin.pipeline(transaction=False) as pipeline:
        for number in range(KEYS):
            await pipeline.set(f"filler:{number}", "x")
        await pipeline.execute()
        await admin.bgrewriteaof()
        await until(lambda: rewritten(admin), within=20)


async def rewritten(admin: Redis) -> bool:
    info = await admin.info("persistence")
    return not (info["aof_rewrite_in_progress"] or info["aof_rewrite_scheduled"])


async def is_loading(server: Server) -> bool:
    async with Redis.from_url(server.url) as user:
        try:
            await user.ping()
        except BusyLoadingError:
            return True
        # The server may not listen yet.
        except RedisError:
            return False
        return False


async def token_of(lock: AsyncRLock) -> int:
    async with lock as lease:
        return lease.token


@pytest.mark.slow
async def test_a_restart_that_loads_for_a_while_keeps_locks_waiters_and_tokens(lasting: Server) -> None:
    await fill(lasting)
    async with lock_client(lasting.url, **PATIENT) as holder, lock_client(lasting.url, **PATIENT) as client:
        async with parked(client, holder, NAME, 2, go=True) as (theirs, waiters), holder.lock("kept") as kept:
            lasting.kill()
            start_loading(lasting)
            asked = asyncio.create_task(token_of(client.lock("asked meanwhile")))
            await until(lambda: is_loading(lasting), within=20)
            assert not asked.done()
            assert await asyncio.wait_for(asked, 30) > kept.token
            await renewed(holder, 2, within=30)
            assert await holder.lock("kept").held()
            assert waiters.order == []
            await theirs.release()
            await waiters.granted(2, within=20)
            await asyncio.wait(waiters.tasks)
            assert waiters.order == [0, 1]
        assert await token_of(client.lock(NAME)) > theirs.token
        assert holder.statistics().losses == client.statistics().losses == 0


@pytest.mark.slow
async def test_a_server_that_loads_for_too_long_is_named_in_the_failure(lasting: Server) -> None:
    await fill(lasting)
    lasting.kill()
    start_loading(lasting)
    await until(lambda: is_loading(lasting), within=20)
    async with lock_client(lasting.url, command_timeout=0.9) as client:
        with pytest.raises(BackendError, match="is loading the dataset in memory"):
            await client.lock(NAME).acquire()


async def test_a_restart_that_forgets_everything_is_told_to_holders_and_lets_waiters_in(own: Server) -> None:
    async with lock_client(own.url, **PATIENT) as holder, lock_client(own.url, **PATIENT) as client:
        async with parked(client, holder, NAME, 2, go=True) as (theirs, waiters):
            renewed_lease = await holder.lock("renewed").acquire()
            own.kill()
            own.start()
            assert await asyncio.wait_for(renewed_lease.lost, 20) == "expired"
            await waiters.granted(2, within=20)
            await asyncio.wait(waiters.tasks)
            with pytest.raises(LeaseLostError):
                await theirs.release()
        assert await token_of(client.lock(NAME)) > theirs.token


@pytest.mark.parametrize("writes_only", [False, True], ids=["ALL", "WRITE"])
@pytest.mark.parametrize("timeout", [20, 5], ids=["patient", "sent again meanwhile"])
async def test_client_pause_holds_everything_up_and_harms_nothing(
    own: Server, writes_only: bool, timeout: float
) -> None:
    settings = {"lease": 30, "renew_interval": 0.5, "command_timeout": timeout, "release_timeout": 20}
    async with lock_client(own.url, **settings) as holder, lock_client(own.url, **settings) as client:
        async with parked(client, holder, NAME, 2, go=True) as (theirs, waiters), Redis.from_url(own.url) as admin:
            await token_of(client.lock("asked meanwhile"))
            before = theirs.token
            await admin.client_pause(2000, all=not writes_only)
            asked = asyncio.create_task(token_of(client.lock("asked meanwhile")))
            released = asyncio.create_task(theirs.release())
            await asyncio.sleep(0.3)
            assert [task for task in (asked, released) if task.done()] == []
            assert waiters.order == []
            assert await asyncio.wait_for(asked, 20) > before
            await asyncio.wait_for(released, 20)
            await waiters.granted(2, within=20)
            await asyncio.wait(waiters.tasks)
            assert waiters.order == [0, 1]
        assert await token_of(holder.lock(NAME)) > before
        assert holder.statistics().losses == client.statistics().losses == 0


async def test_a_holder_is_told_in_time_of_a_pause_longer_than_its_lease(own: Server) -> None:
    async with (
        lock_client(own.url, lease=1, command_timeout=20, release_timeout=20) as holder,
        lock_client(own.url, **PATIENT) as client,
        Redis.from_url(own.url) as admin,
    ):
        lease = await holder.lock(NAME).acquire()
        await admin.client_pause(3000)
        following = asyncio.create_task(token_of(client.lock(NAME)))
        assert await asyncio.wait_for(lease.lost, 20) in ("unreachable", "expired")
        assert not following.done(), "told before anybody else can have it"
        assert await asyncio.wait_for(following, 20) > lease.token


# Tokens grow in spite of all disturbances.


class Grants:
    """Two clients of two tasks each that take a lock in turns; the tokens of each, as they came."""

    def __init__(self, *clients: LockClient) -> None:
        self.tokens: list[list[int]] = [[] for _ in clients]
        self._tasks = [
            asyncio.create_task(self._take_turns(client, tokens))
            for client, tokens in zip(clients, self.tokens, strict=True)
            for _ in range(2)
        ]

    async def more(self) -> int:
        """Wait until each client has had the lock some more times; the highest token until now."""
        wanted = [len(tokens) + 5 for tokens in self.tokens]
        await until(lambda: all(len(t) >= n for t, n in zip(self.tokens, wanted, strict=True)), within=30)
        return max(map(max, self.tokens))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    async def _take_turns(self, client: LockClient, tokens: list[int]) -> None:
        while True:
            try:
                async with client.lock(NAME) as lease:
                    tokens.append(lease.token)
                    await asyncio.sleep(0.005)
            except AioLockError:
                await asyncio.sleep(0)


async def forget_scripts(server: Server, admin: Redis) -> None:
    for _ in range(20):
        await admin.script_flush()


async def flush_everything(server: Server, admin: Redis) -> None:
    for _ in range(5):
        await admin.flushall()


async def pause_everything(server: Server, admin: Redis) -> None:
    await admin.client_pause(200)


async def pause_writes(server: Server, admin: Redis) -> None:
    await admin.client_pause(200, all=False)


async def restart(server: Server, admin: Redis) -> None:
    server.kill()
    server.start()


async def run_out_of_memory(server: Server, admin: Redis) -> None:
    await admin.config_set("maxmemory-policy", "noeviction")
    await admin.config_set("maxmemory", "1")
    await asyncio.sleep(0.2)
    await admin.config_set("maxmemory", "0")


async def evict_everything(server: Server, admin: Redis) -> None:
    await admin.config_set("maxmemory-policy", "allkeys-random")
    await admin.config_set("maxmemory", "1")
    await asyncio.sleep(0.2)
    await admin.config_set("maxmemory", "0")


Harm = Callable[[Server, Redis], Awaitable[None]]
HARMS: list[Harm] = [
    *(forget_scripts, flush_everything, pause_everything, pause_writes),
    *(restart, run_out_of_memory, evict_everything),
]


@pytest.mark.parametrize("lasts", [True, False], ids=["append only", "in memory"])
@pytest.mark.parametrize("harm", HARMS, ids=lambda harm: harm.__name__)
async def test_tokens_keep_growing_through(server: Server, harm: Harm, lasts: bool) -> None:
    settings = {"lease": 2, "command_timeout": 10, "release_timeout": 10}
    with Server(server._executable, append_only=lasts) as own:
        async with lock_client(own.url, **settings) as one, lock_client(own.url, **settings) as two:
            grants = Grants(one, two)
            before = await grants.more()
            seen = [len(tokens) for tokens in grants.tokens]
            async with Redis.from_url(own.url) as admin:
                await harm(own, admin)
            await grants.more()
            await grants.stop()
    later = [tokens[count + 2 :] for tokens, count in zip(grants.tokens, seen, strict=True)]
    assert min(map(min, later)) > before
    for tokens in grants.tokens:
        assert tokens == sorted(tokens)
    everything = [token for tokens in grants.tokens for token in tokens]
    assert len(set(everything)) == len(everything)
