"""`break` frees a lock from the grant that it saw, and from no other."""

import asyncio
import json
import os
import pty
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from aiolock import LeaseLostError, LockClient
from aiolock._cli.breaking.scripts import breaking
from aiolock._cli.locks.model import Lock
from aiolock._cli.locks.node import Node
from aiolock._cli.locks.reader import Reader
from aiolock._cli.servers import Servers, connected
from aiolock._cli.verb import VerbError
from aiolock._cli.verbs.break_ import break_
from aiolock._embedded_server import Server
from aiolock._keys import QUORUM_KEY
from tests.support.cli import run
from tests.support.holding import foreign, seize
from tests.support.observe import until

REQUEST = "break:1"


@pytest.fixture
async def servers(server: Server) -> AsyncIterator[Servers]:
    async with connected(server.url, None) as found:
        yield found


async def seen(servers: Servers, name: str) -> tuple[Lock, Node]:
    reader = Reader(servers)
    [lock] = await reader.named(name)
    return lock, reader.node_of(name)


async def test_it_frees_the_lock_and_the_next_one_gets_it_at_once(
    server: Server, locks: LockClient, other: LockClient, capsys: pytest.CaptureFixture[str]
) -> None:
    lease = await locks.lock("orders").acquire()
    assert await run(server.url, break_, "break", "orders", "--token", str(lease.token), "--yes") == 0
    assert f"token {lease.token}" in capsys.readouterr().out
    async with other.lock("orders").hold(0):
        with pytest.raises(LeaseLostError) as lost:
            await lease.release()
    assert lost.value.reason == "forced"


async def test_a_waiter_is_woken(server: Server, locks: LockClient, other: LockClient) -> None:
    await locks.lock("orders").acquire()

    async def wait() -> float:
        async with other.lock("orders"):
            return asyncio.get_running_loop().time()

    waits = asyncio.create_task(wait())
    await until(lambda: other.lock("orders").statistics().subscriptions == 1)
    assert await run(server.url, break_, "break", "orders", "--yes") == 0
    # The lease would have taken twice as long.
    await asyncio.wait_for(waits, 15)


@pytest.mark.parametrize("kind", ["lock", "fair", "writer", "reader", "permits", "Redisson"])
async def test_another_grant_is_left_alone_and_twice_is_once(
    kind: str, servers: Servers, redis: Redis, locks: LockClient, other: LockClient
) -> None:
    def of(client: LockClient) -> Any:
        return {
            "lock": client.lock("orders"),
            "fair": client.fair_lock("orders"),
            "writer": client.read_write_lock("orders").write,
            "reader": client.read_write_lock("orders").read,
            "permits": client.semaphore("orders", 1),
        }[kind]

    if kind == "Redisson":
        await seize(redis, "orders", redisson=True)
    lease = None if kind == "Redisson" else await of(locks).acquire()
    lock, node = await seen(servers, "orders")
    [hold] = lock.holds
    sent = breaking(lock, hold, REQUEST, "PUBLISH")
    assert await node.run(*sent) == 1
    assert not await Reader(servers).named("orders")
    if lease is not None:
        with pytest.raises(LeaseLostError, match="force"):
            await lease.release()
    kind = "lock" if kind == "Redisson" else kind
    for client in (other, locks):
        later = await of(client).acquire()
        assert await node.run(*sent) == 1, "the same request gets the same answer"
        assert await node.run(*breaking(lock, hold, f"break:{uuid4()}", "PUBLISH")) == 0, "a new one finds a new grant"
        await later.renew()
        await later.release()


async def test_a_once_is_taken_from_its_runner_and_the_next_one_runs_it_at_once(
    server: Server, locks: LockClient, other: LockClient, capsys: pytest.CaptureFixture[str]
) -> None:
    async def body() -> str:
        return "made"

    with pytest.raises(LeaseLostError, match="force"):
        async with locks.once("report", keep=60, failures="remember") as turn:
            assert turn.lease is not None
            waits = asyncio.create_task(other.once("report", keep=60).run(body))
            await until(lambda: other.statistics().parked == 1)
            assert await run(server.url, break_, "break", "report", "--token", "7", "--yes") == 1
            assert await run(server.url, break_, "break", "report", "--token", str(turn.lease.token), "--yes") == 0
            # `keep` would have taken longer.
            assert await asyncio.wait_for(waits, 15) == "made"
    capsys.readouterr()
    assert await run(server.url, break_, "break", "report", "--yes") == 1
    assert "delete the key 'aiolock_once:{report}'" in capsys.readouterr().out


async def test_the_token_tells_a_lock_from_a_once_of_its_name(server: Server, locks: LockClient) -> None:
    lock = await locks.lock("report").acquire()
    with pytest.raises(LeaseLostError, match="force"):
        async with locks.once("report", keep=60) as turn:
            assert turn.lease is not None
            with pytest.raises(VerbError, match="--token"):
                await run(server.url, break_, "break", "report", "--yes")
            assert await run(server.url, break_, "break", "report", "--token", str(turn.lease.token), "--yes") == 0
    await lock.release()


async def test_a_lock_that_is_kept_after_its_release_is_freed(
    server: Server, locks: LockClient, other: LockClient
) -> None:
    async with locks.lock("poll").hold(at_least=60):
        pass
    assert await run(server.url, break_, "break", "poll", "--yes") == 0
    async with other.lock("poll").hold(0):
        assert await run(server.url, break_, "break", "poll", "--client", "0" * 36, "--yes") == 1


async def test_on_a_server_of_a_quorum_it_says_that_the_server_is_one_of_several(
    server: Server, redis: Redis, locks: LockClient, capsys: pytest.CaptureFixture[str]
) -> None:
    await locks.lock("orders").acquire()
    assert await run(server.url, break_, "break", "orders", "--token", "7", "--yes") == 1
    assert "quorum" not in capsys.readouterr().err
    await redis.set(QUORUM_KEY, "life 1")
    assert await run(server.url, break_, "break", "orders", "--yes") == 0
    assert "one of a quorum" in capsys.readouterr().err


async def test_a_token_chooses_one_of_several_readers(
    server: Server, locks: LockClient, other: LockClient, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = await locks.read_write_lock("prices").read.acquire()
    theirs = await other.read_write_lock("prices").read.acquire()
    assert await run(server.url, break_, "break", "prices", "--token", str(mine.token), "--yes", "--json") == 0
    done = json.loads(capsys.readouterr().out)
    assert [hold["token"] for hold in done["freed"]] == [mine.token]
    await theirs.renew()
    with pytest.raises(LeaseLostError, match="force"):
        await mine.renew()
    await theirs.release()


async def test_a_client_chooses_one_of_several_permits(
    server: Server, servers: Servers, locks: LockClient, other: LockClient
) -> None:
    mine = await locks.semaphore("api", 5).acquire(2)
    theirs = await other.semaphore("api").acquire(3)
    lock, _ = await seen(servers, "api")
    [client] = [hold.client for hold in lock.holds if hold.holds == 2]
    assert await run(server.url, break_, "break", "api", "--client", client[:8], "--yes") == 0
    assert await locks.semaphore("api").available() == 2
    with pytest.raises(LeaseLostError, match="force"):
        await mine.release()
    await theirs.release()


@pytest.mark.parametrize("client", [("--client", ""), ("--client=",)], ids=" ".join)
async def test_an_empty_client_is_not_every_client(
    client: tuple[str, ...], server: Server, locks: LockClient, capsys: pytest.CaptureFixture[str]
) -> None:
    lease = await locks.lock("orders").acquire()
    with pytest.raises(SystemExit) as ended:
        await run(server.url, break_, "break", "orders", *client, "--yes")
    assert ended.value.code == 2
    assert "argument --client: must not be empty" in capsys.readouterr().err
    await lease.release()


async def test_the_writer_goes_and_its_owner_reads_on(server: Server, locks: LockClient, other: LockClient) -> None:
    prices = locks.read_write_lock("prices")
    write, read = await prices.write.acquire(), await prices.read.acquire()
    assert await run(server.url, break_, "break", "prices", "--token", str(write.token), "--yes") == 0
    async with other.read_write_lock("prices").read.hold(0):
        await read.release()
    with pytest.raises(LeaseLostError, match="force"):
        await write.release()


async def test_a_longer_memory_of_tokens_stays(server: Server, redis: Redis, locks: LockClient) -> None:
    await locks.lock("orders").acquire()
    await redis.expire("aiolock_token:{orders}", 86400)
    assert await run(server.url, break_, "break", "orders", "--yes") == 0
    assert await redis.ttl("aiolock_token:{orders}") > 86000


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("nobody", "--yes"), "nobody holds it"),
        (("held", "--token", "7", "--yes"), "none of its holders is the one that you named"),
        (("held", "--client", "nobody", "--yes"), "none of its holders is the one that you named"),
        (("seats", "--yes"), "no owner"),
    ],
)
async def test_where_nothing_is_freed_it_says_why_and_exits_with_1(
    arguments: tuple[str, ...],
    why: str,
    server: Server,
    locks: LockClient,
    capsys: pytest.CaptureFixture[str],
) -> None:
    held = await locks.lock("held").acquire()
    await locks.counting_semaphore("seats", 3).acquire()
    assert await run(server.url, break_, "break", *arguments) == 1
    assert why in capsys.readouterr().out
    await held.renew()


@pytest.mark.parametrize("kind", ["list", "string", "hash"])
async def test_a_key_that_is_no_lock_is_left_alone(
    kind: str, server: Server, redis: Redis, capsys: pytest.CaptureFixture[str]
) -> None:
    await foreign(redis, "orders", kind)
    before = await redis.dump("orders")
    assert await run(server.url, break_, "break", "orders", "--yes") == 2
    why = f"it is not a lock, but a Redis {kind}"
    assert capsys.readouterr().out == f"'orders' was not freed: {why}\n"
    assert await run(server.url, break_, "break", "orders", "--yes", "--json") == 2
    done = json.loads(capsys.readouterr().out)
    assert done == {"name": "orders", "freed": [], "left_alone": [], "why": why}
    assert await redis.dump("orders") == before


@pytest.mark.parametrize("others", [True, False], ids=["same client", "nobody"])
async def test_a_holder_is_told_at_once_if_another_task_of_its_client_has_it(
    others: bool, server: Server, locks: LockClient
) -> None:
    """The page says so: the reason is `taken` then, and otherwise `forced`."""
    lease, waits = await locks.lock("orders", owner="first").acquire(), None
    if others:
        waits = asyncio.create_task(locks.lock("orders", owner="second").acquire())
        await until(lambda: locks.statistics().parked == 1)
    assert await run(server.url, break_, "break", "orders", "--token", str(lease.token), "--yes") == 0
    if waits is not None:
        later = await asyncio.wait_for(waits, 5)
        # The next renewal is due in twice that time.
        await asyncio.wait_for(lease.lost, 5)
        await later.release()
    with pytest.raises(LeaseLostError) as lost:
        await lease.release()
    assert lost.value.reason == ("taken" if others else "forced")


async def test_with_standard_input_closed_it_demands_the_option_yes(
    server: Server, locks: LockClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await locks.lock("orders").acquire()
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(VerbError, match="--yes"):
        await run(server.url, break_, "break", "orders")


async def test_it_asks_before_it_acts(
    server: Server, locks: LockClient, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lease = await locks.lock("orders").acquire()
    with pytest.raises(VerbError, match="--yes"):
        await run(server.url, break_, "break", "orders")
    for answer, code in {"\n": 1, "no\n": 1, "": 1, "y\n": 0}.items():
        monkeypatch.setattr(sys, "stdin", Person(answer))
        assert await run(server.url, break_, "break", "orders") == code
        assert str(lease.token) in capsys.readouterr().err


async def test_ctrl_c_ends_the_question(server: Server, locks: LockClient) -> None:
    lease = await locks.lock("orders").acquire()
    ours, theirs = pty.openpty()
    asking = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "aiolock", "break", "orders", "--url", server.url),
        stdin=theirs,
        stderr=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
    )
    os.close(theirs)
    try:
        assert asking.stderr is not None
        await asyncio.wait_for(asking.stderr.readuntil(b"[y/N]"), 30)
        asking.send_signal(signal.SIGINT)
        assert b"interrupted" in await asyncio.wait_for(asking.stderr.read(), 30)
        assert await asking.wait() == 130
    finally:
        with suppress(ProcessLookupError):
            asking.kill()
        await asking.wait()
        os.close(ours)
    await lease.release()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has it")
async def test_a_question_that_nobody_can_read_frees_nothing(server: Server, locks: LockClient) -> None:
    lease = await locks.lock("orders").acquire()
    ours, theirs = pty.openpty()
    os.write(ours, b"y\n")
    arguments = (sys.executable, "-m", "aiolock", "break", "orders", "--url", server.url)
    with Path("/dev/full").open("w") as full:
        asking = await asyncio.create_subprocess_exec(*arguments, stdin=theirs, stderr=full)
    os.close(theirs)
    assert await asyncio.wait_for(asking.wait(), 30) == 2
    os.close(ours)
    await lease.release()


class Person:
    """A person at a terminal."""

    def __init__(self, answer: str) -> None:
        self.readline = lambda: answer
        self.isatty = lambda: True
