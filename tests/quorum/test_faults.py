"""Servers of a quorum fail, one after the other: no two clients hold a lock; work goes on while a majority lives."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from itertools import combinations, cycle, pairwise, product
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from redis.asyncio import Redis

from aiolock import LeaseLostError, LockClient, LockConfig, QuorumError
from aiolock._embedded_server import Server
from tests.contract.acts import nothing_under_way
from tests.processes.store import Entry, Store
from tests.quorum.several import everywhere, remember, who_has
from tests.support.inside import members_of
from tests.support.observe import until
from tests.support.proxy import Proxy
from tests.support.told import Told

pytestmark = pytest.mark.slow
LEASE = 1.0
SOON = 30.0
HOWS = ["killed", "paused", "black-holed"]
Fault = Callable[[list[Server], list[Redis]], Coroutine[Any, Any, None]]


# From one process.


@pytest.mark.parametrize(
    ("mine", "hows"),
    [(3, ["killed"]), (3, ["paused"]), (3, ["black-holed"]), (5, HOWS)],
    indirect=["mine"],
    ids=["one killed", "one paused", "one black-holed", "two of five"],
)
async def test_with_any_minority_away_all_goes_on(hows: list[str], mine: list[Server], of_mine: list[Redis]) -> None:
    """Each minority is tried; of five servers, two fail in each pair of ways."""
    minority = len(mine) // 2
    ways = cycle(product(hows, repeat=minority))
    for numbers, how in zip(combinations(range(len(mine)), minority), ways, strict=False):
        await check_with_some_away(dict(zip(numbers, how, strict=True)), mine)
        for redis in of_mine:
            await redis.connection_pool.disconnect()
            await redis.flushall()
            await remember(redis)


async def check_with_some_away(away: dict[int, str], servers: list[Server]) -> None:
    """Some servers fail, each in its way: a holder keeps its lock, others are excluded, and get the lock afterwards."""
    config = LockConfig(lease=LEASE, command_timeout=1.5)
    async with AsyncExitStack() as stack:
        proxies = {
            number: await stack.enter_async_context(Proxy(servers[number].host, servers[number].port))
            for number in away
        }
        redises = [Redis.from_url(proxies.get(number, each).url) for number, each in enumerate(servers)]
        for redis in redises:
            stack.push_async_callback(redis.aclose)
        async with LockClient.redlock(redises, config=config) as locks, LockClient.redlock(redises) as other:
            before = await locks.lock("before").acquire()
            for number, how in away.items():
                take_away(how, servers[number], proxies[number])
            async with locks.lock("orders"):
                assert await other.lock("orders").try_lock() is None
            async with other.lock("orders").hold(wait=SOON):
                pass
            renewals = locks.statistics().renewals
            await until(lambda: locks.statistics().renewals >= renewals + 4)
            assert not before.lost.is_set()
            assert await other.lock("before").try_lock() is None
            await before.release()
            assert await other.lock("before").try_lock() is not None
        for number, how in away.items():
            bring_back(how, servers[number], proxies[number])


def take_away(how: str, server: Server, proxy: Proxy) -> None:
    if how == "killed":
        server.kill()
    elif how == "paused":
        server.pause()
    else:
        proxy.black_hole()


def bring_back(how: str, server: Server, proxy: Proxy) -> None:
    if how == "killed":
        server.start()
    elif how == "paused":
        server.resume()
    proxy.restore()


@pytest.mark.parametrize("mine", [3, 5], indirect=True)
async def test_without_a_majority_nothing_is_granted_and_holders_are_told(
    mine: list[Server], of_mine: list[Redis]
) -> None:
    told, majority = Told(), mine[: len(mine) // 2 + 1]
    config = LockConfig(lease=LEASE, command_timeout=0.6, on_event=told.hear)
    async with LockClient.redlock(of_mine, config=config) as locks:
        lease = await locks.lock("orders").acquire()
        for each in majority:
            each.pause()
        in_time = asyncio.create_task(told.in_time(lease))
        with pytest.raises(QuorumError) as raised:
            await locks.lock("others").acquire()
        assert set(raised.value.errors) == {f"{each.host}:{each.port}" for each in mine}
        assert "no answer in time" in raised.value.errors[f"{mine[0].host}:{mine[0].port}"]
        assert raised.value.errors[f"{mine[-1].host}:{mine[-1].port}"] == "answered yes"
        with pytest.raises(QuorumError):
            await locks.ping()
        async with asyncio.timeout(SOON):
            assert await in_time
            assert await lease.lost == "unreachable"
        with pytest.raises(LeaseLostError, match="no majority of servers") as lost:
            lease.check()
        assert f"{mine[0].host}:{mine[0].port}" in str(lost.value.trouble)
        for each in majority:
            each.resume()
        async with locks.lock("others").hold(wait=SOON):
            await locks.ping()
        await until(lambda: nothing_under_way(locks) or locks.statistics().held == 1)


async def test_closing_waits_for_no_dead_server(mine: list[Server], of_mine: list[Redis]) -> None:
    locks = LockClient.redlock(of_mine, config=LockConfig(release_timeout=20))
    await locks.lock("orders").acquire()
    # A release counts when two servers have freed the lock: all must have granted it, so that any two will do.
    await everywhere(of_mine, "orders")
    mine[0].pause()
    began = monotonic()
    await locks.aclose()
    # The release timeout is twice as long.
    assert monotonic() < began + 10
    assert (await who_has(of_mine[1:], "orders")) == [False, False]
    mine[0].resume()


async def test_a_server_that_cannot_be_reached_is_logged_once(
    mine: list[Server], of_mine: list[Redis], caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise nobody hears of it, as no call fails, until a second server is away, too."""
    stranger = Redis.from_url(mine[0].url, username="somebody", password="wrong")

    def told() -> int:
        return sum(f"127.0.0.1:{mine[0].port} cannot be reached" in record.message for record in caplog.records)

    async def refused() -> int:
        [attempts] = await of_mine[0].acl_log() or [{"count": 0}]
        return int(str(attempts["count"]))

    async with LockClient.redlock([stranger, *of_mine[1:]]) as locks:
        while await refused() < 3:
            async with locks.lock("orders"):
                pass
        assert told() == 1
        assert "WRONGPASS" in caplog.text
        await of_mine[0].acl_setuser(
            "somebody", enabled=True, passwords=["+wrong"], keys=["*"], channels=["*"], categories=["+@all"]
        )
        async with locks.lock("orders"):
            await until(lambda: members_of(locks)[0].only.connected > 0)
        mine[0].kill()
        async with locks.lock("orders"):
            await until(lambda: told() == 2)


async def test_a_server_that_crashed_empty_has_no_vote(mine: list[Server], of_mine: list[Redis]) -> None:
    """No other client gets a lock that is held by two servers, one of which forgot it."""
    config = LockConfig(lease=LEASE)
    async with (
        LockClient.redlock(of_mine, config=config, longest_lease=10) as locks,
        LockClient.redlock(of_mine, config=config, longest_lease=10) as other,
    ):
        mine[2].pause()
        lease = await locks.lock("orders").acquire(lease=8)
        mine[1].kill()
        mine[1].start()
        mine[2].resume()
        await until(lambda: members_of(locks)[2].statistics().pending == 0)
        await of_mine[2].delete("orders")
        assert await other.lock("orders").try_lock(1) is None
        assert not lease.lost.is_set()
        with pytest.raises(LeaseLostError):
            await lease.release()


async def test_a_server_that_started_from_its_disk_waits_too(server: Server) -> None:
    """The file of the server may be older than its last writes, so that it waits; but the keys in the file count."""
    servers = [Server(server._executable, append_only=True) for _ in range(3)]
    try:
        for each in servers:
            each.start()
        redises = [Redis.from_url(each.url) for each in servers]
        for redis in redises:
            await remember(redis)
        async with LockClient.redlock(redises, config=LockConfig(lease=LEASE)) as locks:
            lease = await locks.lock("orders").acquire()
            for each in servers[:2]:
                each.kill()
                each.start()
            renewals = locks.statistics().renewals
            await until(lambda: locks.statistics().renewals >= renewals + 3)
            with pytest.raises(QuorumError, match="no vote"):
                await locks.lock("others").try_lock(0.1)
            await lease.release()
        for redis in redises:
            await redis.aclose()
    finally:
        for each in servers:
            each.__exit__(None, None, None)


# Several processes, which a file judges.


async def kill_and_start_empty(servers: list[Server], redises: list[Redis]) -> None:
    for each in servers:
        each.kill()
    await asyncio.sleep(LEASE / 4)
    for each in servers:
        each.start()


async def pause_and_resume(servers: list[Server], redises: list[Redis]) -> None:
    for each in servers:
        each.pause()
    await asyncio.sleep(LEASE * 1.5)
    for each in servers:
        each.resume()


async def flush(servers: list[Server], redises: list[Redis]) -> None:
    for redis in redises:
        await redis.flushall()


async def kill_one_and_pause_the_other(servers: list[Server], redises: list[Redis]) -> None:
    await asyncio.gather(kill_and_start_empty(servers[:1], []), pause_and_resume(servers[1:], []))


async def nothing(servers: list[Server], redises: list[Redis]) -> None:
    """The votes of many clients are split also on healthy servers."""


@contextmanager
def crew(servers: list[Server], path: Path, processes: int, tasks: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    path.touch()
    urls = ",".join(server.url for server in servers)
    over = path.with_suffix(".over")
    arguments = ["-m", "tests.quorum.worker", urls, str(path), str(over), str(tasks), str(LEASE)]
    workers = [subprocess.Popen([sys.executable, *arguments]) for _ in range(processes)]
    try:
        yield workers
    finally:
        over.touch()
        for worker in workers:
            worker.kill()
            worker.wait()


@pytest.mark.parametrize(
    ("mine", "fault"),
    [
        *((3, fault) for fault in (nothing, kill_and_start_empty, pause_and_resume, flush)),
        (5, kill_one_and_pause_the_other),
    ],
    indirect=["mine"],
)
async def test_counted_by_many_processes(
    fault: Fault, mine: list[Server], of_mine: list[Redis], tmp_path: Path
) -> None:
    path = tmp_path / "counted"
    store = Store(path)

    def counted() -> int:
        return sum(entry.kind == "write" for entry in store.entries())

    minority = len(mine) // 2
    with crew(mine, path, processes=3, tasks=20) as workers:
        for first in (0, 1, 2, 1) if minority == 1 else (0, 3):
            before = counted()
            await until(lambda before=before: counted() >= before + 30, within=60)
            await fault(mine[first : first + minority], of_mine[first : first + minority])
            before = counted()
            await until(lambda before=before: counted() >= before + 30, within=60)
        path.with_suffix(".over").touch()
        await until(lambda: all(worker.poll() is not None for worker in workers), within=60)
        assert [worker.returncode for worker in workers] == [0] * len(workers)
    entries = store.entries()
    check(entries)
    assert len({entry.pid for entry in entries}) == len(workers)
    assert os.getpid() not in {entry.pid for entry in entries}


def check(entries: list[Entry]) -> None:
    """No two were inside at a time, and every token was greater than those before."""
    assert not [entry for entry in entries if entry.kind == "refused"]
    reads = [entry for entry in entries if entry.kind == "read"]
    assert all(earlier.token < later.token for earlier, later in pairwise(reads))
    until_when = {entry.token: entry.at for entry in entries if entry.kind == "left"}
    inside = sorted((entry.at, until_when[entry.token]) for entry in reads if entry.token in until_when)
    assert all(earlier[1] <= later[0] for earlier, later in pairwise(inside))
    writes = [entry for entry in entries if entry.kind == "write"]
    assert [entry.count for entry in writes] == list(range(1, len(writes) + 1))
