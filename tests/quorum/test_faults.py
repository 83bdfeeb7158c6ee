"""Servers of a quorum fail, one after the other: no two hold a lock, and work goes on while a majority is there."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from redis.asyncio import Redis

from aiolock import LeaseLostError, LockClient, LockConfig, QuorumError
from aiolock._embedded_server import Server
from tests.contract.acts import nothing_under_way
from tests.processes.store import Entry, Store
from tests.quorum.several import remember, who_has
from tests.support.observe import until
from tests.support.proxy import Proxy

pytestmark = pytest.mark.slow
LEASE = 1.0
SOON = 30.0  # Seconds; the machine is busy.
Fault = Callable[[list[Server], list[Redis], int], Coroutine[Any, Any, None]]


# From one process.


@pytest.mark.parametrize("how", ["killed", "paused", "black-holed"])
async def test_with_any_one_away_all_goes_on(
    how: str, server: Server, mine: list[Server], of_mine: list[Redis]
) -> None:
    config = LockConfig(lease=LEASE, command_timeout=1.5)
    for number, away in enumerate(mine):
        async with Proxy(away.host, away.port) as proxy:
            redises = [Redis.from_url(each.url) for each in mine]
            redises[number] = Redis.from_url(proxy.url)
            async with LockClient.redlock(redises, config=config) as locks, LockClient.redlock(redises) as other:
                before = await locks.lock("before").acquire()
                await take_away(how, away, proxy)
                async with locks.lock("orders"):
                    assert await other.lock("orders").try_lock() is None
                async with other.lock("orders").hold(wait=SOON):
                    pass
                renewals = locks.statistics().renewals
                await until(lambda renewals=renewals: locks.statistics().renewals >= renewals + 4)
                assert not before.lost.is_set()
                assert await other.lock("before").try_lock() is None
                await before.release()
                assert await other.lock("before").try_lock() is not None
            await bring_back(how, away, proxy)
            for redis in redises:
                await redis.aclose()
        for redis in of_mine:
            await redis.connection_pool.disconnect()
            await redis.flushall()
            await remember(redis)


async def take_away(how: str, server: Server, proxy: Proxy) -> None:
    if how == "killed":
        server.kill()
    elif how == "paused":
        server.pause()
    else:
        proxy.black_hole()


async def bring_back(how: str, server: Server, proxy: Proxy) -> None:
    if how == "killed":
        server.start()
    elif how == "paused":
        server.resume()
    proxy.restore()


async def test_without_a_majority_nothing_is_granted_and_holders_are_told(
    mine: list[Server], of_mine: list[Redis]
) -> None:
    async with LockClient.redlock(of_mine, config=LockConfig(lease=LEASE, command_timeout=0.6)) as locks:
        lease = await locks.lock("orders").acquire()
        for each in mine[:2]:
            each.pause()
        with pytest.raises(QuorumError) as raised:
            await locks.lock("others").acquire()
        assert set(raised.value.errors) == {f"{each.host}:{each.port}" for each in mine}
        assert "no answer in time" in raised.value.errors[f"{mine[0].host}:{mine[0].port}"]
        assert "answered [1, " in raised.value.errors[f"{mine[2].host}:{mine[2].port}"]
        with pytest.raises(QuorumError):
            await locks.ping()
        async with asyncio.timeout(SOON):
            assert await lease.lost == "unreachable"
        for each in mine[:2]:
            each.resume()
        async with locks.lock("others").hold(wait=SOON):
            await locks.ping()
        await until(lambda: nothing_under_way(locks) or locks.statistics().held == 1)


async def test_closing_waits_for_no_dead_server(mine: list[Server], of_mine: list[Redis]) -> None:
    locks = LockClient.redlock(of_mine)
    await locks.lock("orders").acquire()
    await until(lambda: locks.statistics().pending == 0)
    mine[0].pause()
    began = monotonic()
    await locks.aclose()
    assert monotonic() < began + 3  # The release timeout is five seconds.
    assert (await who_has(of_mine[1:], "orders")) == [False, False]
    mine[0].resume()


async def test_a_server_that_crashed_empty_has_no_vote(mine: list[Server], of_mine: list[Redis]) -> None:
    """Nobody else gets the lock of who holds it by two, one of which forgot it."""
    config = LockConfig(lease=LEASE)
    async with (
        LockClient.redlock(of_mine, config=config, longest_lease=10) as locks,
        LockClient.redlock(of_mine, config=config, longest_lease=10) as other,
    ):
        mine[2].pause()  # Only two have it.
        lease = await locks.lock("orders").acquire(lease=8)
        mine[1].kill()
        mine[1].start()
        mine[2].resume()
        await until(lambda: locks.statistics().pending == 0)
        await of_mine[2].delete("orders")  # Had its grant come late.
        assert await other.lock("orders").try_lock(1) is None
        assert not lease.lost.is_set()
        with pytest.raises(LeaseLostError):  # A majority has forgotten it, and says so.
            await lease.release()


async def test_a_server_that_started_from_its_disk_waits_too(server: Server) -> None:
    """What it has on disk may be of a moment ago: but what it still has, counts."""
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
            assert await locks.lock("others").try_lock(0.1) is None
            await lease.release()
        for redis in redises:
            await redis.aclose()
    finally:
        for each in servers:
            each.__exit__(None, None, None)


# From several processes, judged by a file.


async def kill_and_start_empty(servers: list[Server], redises: list[Redis], number: int) -> None:
    servers[number].kill()
    await asyncio.sleep(LEASE / 4)
    servers[number].start()


async def pause_and_resume(servers: list[Server], redises: list[Redis], number: int) -> None:
    servers[number].pause()
    await asyncio.sleep(LEASE * 1.5)
    servers[number].resume()


async def flush(servers: list[Server], redises: list[Redis], number: int) -> None:
    await redises[number].flushall()


async def nothing(servers: list[Server], redises: list[Redis], number: int) -> None:
    """The votes of many are split all the same."""


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


@pytest.mark.parametrize("fault", [nothing, kill_and_start_empty, pause_and_resume, flush])
async def test_counted_by_many_processes(
    fault: Fault, mine: list[Server], of_mine: list[Redis], tmp_path: Path
) -> None:
    path = tmp_path / "counted"
    store = Store(path)

    def counted() -> int:
        return sum(entry.kind == "write" for entry in store.entries())

    with crew(mine, path, processes=3, tasks=20) as workers:
        for number in (0, 1, 2, 1):
            before = counted()
            await until(lambda before=before: counted() >= before + 30, within=60)
            await fault(mine, of_mine, number)
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
