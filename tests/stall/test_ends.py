"""A thread stands in for the event loop of a process that is paused, forks or ends, or forgets its client."""

import os
import signal
import subprocess
import textwrap
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import cast

import pytest
from redis import Redis

from aiolock._embedded_server import Server
from tests.blocking.threads import until
from tests.support.programs import Program, python, rest, said, tell

NAME = "orders"
LEASE = 1.0

_HEAD = f"""
import asyncio, gc, os, sys, threading, time, warnings
from aiolock import LeaseLostError, LockClient, LockConfig

NAME, LEASE = {NAME!r}, {LEASE!r}

def client(**config):
    settings = {{"lease": LEASE, "renew_interval": LEASE / 5, "max_stall": 600, **config}}
    return LockClient.from_url(sys.argv[1], config=LockConfig(**settings))

def threads():
    return sum(thread.name == "aiolock" for thread in threading.enumerate())

def no_threads():
    ends = time.monotonic() + 10
    while threads() and time.monotonic() < ends:
        time.sleep(0.01)
    print("threads", threads())
"""


def program(source: str, server: Server) -> AbstractContextManager[Program]:
    """A program with `client()`, which prints what it does, and its errors."""
    return python("-c", _HEAD + textwrap.dedent(source), server.url, stderr=subprocess.STDOUT)


@pytest.fixture
def observer(server: Server) -> Iterator[Redis]:
    with Redis.from_url(server.url) as client:
        client.flushall()
        yield client


def renewed(observer: Redis) -> None:
    """Return when the lock has been renewed once more."""
    before = renewals(observer)
    until(lambda: renewals(observer) > before)


def renewals(observer: Redis) -> int:
    """The number of the lock's last renewal; 0 when nobody has it."""
    return int(cast("bytes | None", observer.hget(NAME, "aiolock:renewal")) or 0)


def expired_unrenewed(observer: Redis) -> None:
    """Return when nobody has the lock; check that nobody renews it until then."""
    left = observer.pttl(NAME)
    while left >= 0:
        time.sleep(0.002)
        before, left = left, observer.pttl(NAME)
        assert left <= before
    # The key does not exist.
    assert left == -2


def test_a_paused_process_loses_its_lock(server: Server, observer: Redis) -> None:
    source = """
    async def main():
        async with client() as locks, locks.lock(NAME) as lease:
            print("holds")
            for _ in range(100):  # In one turn of the loop.
                time.sleep(LEASE / 5)
                if lease.lost.is_set():
                    break
            try:
                lease.check()
            except LeaseLostError as error:
                print(error.reason)
    asyncio.run(main())
    """
    with program(source, server) as holder:
        assert said(holder) == "holds"
        renewed(observer)
        holder.send_signal(signal.SIGSTOP)
        os.waitpid(holder.pid, os.WUNTRACED)
        # The server executes the commands that have arrived in the meantime.
        observer.ping()
        expired_unrenewed(observer)
        holder.send_signal(signal.SIGCONT)
        assert said(holder) in ("expired", "unreachable")


@pytest.mark.parametrize("how", ["sys.exit(3)", "raise SystemExit(3)", "asyncio.get_running_loop().stop()"])
def test_a_program_ends_with_a_lock_held_and_the_client_open(server: Server, observer: Redis, how: str) -> None:
    source = f"""
    warnings.simplefilter("ignore", ResourceWarning)
    async def main():
        locks = client()
        await locks.lock(NAME, owner="a").acquire()
        time.sleep(2 * LEASE)
        print("holds")
        {how}
        await asyncio.sleep(60)
    try:
        asyncio.run(main())
    except RuntimeError as error:
        sys.exit(3)
    """
    with program(source, server) as running:
        assert said(running) == "holds"
        assert running.wait(20) == 3
        told = rest(running)
        assert "Fatal" not in told, told
        assert "max_stall" not in told, told


def test_the_thread_ends_when_the_program_does_even_if_the_loop_never_was_closed(
    server: Server, observer: Redis
) -> None:
    source = """
    async def main():
        locks = client()
        await locks.lock(NAME, owner="a").acquire()
        return locks
    loop = asyncio.new_event_loop()
    locks = loop.run_until_complete(main())
    print("threads", threads())
    sys.stdin.readline()
    """
    with program(source, server) as running:
        assert said(running) == "threads 1"
        renewed(observer)
        tell(running)
        assert running.wait(20) == 0


def test_the_thread_ends_with_a_collected_client_whose_loop_stands_still(server: Server, observer: Redis) -> None:
    source = """
    warnings.simplefilter("ignore", ResourceWarning)
    async def main():
        async with client().lock(NAME):
            print("threads", threads())
    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    del loop
    gc.collect()
    no_threads()
    """
    with program(source, server) as running:
        assert said(running) == "threads 1"
        assert "threads 0" in rest(running)


_CHILDREN = {
    "it exits": "sys.exit(0)",
    "it collects": "del locks, lock; gc.collect(); os._exit(0)",
    "it has a client of its own": "own(); os._exit(0)",
}


@pytest.mark.parametrize("child", _CHILDREN.values(), ids=_CHILDREN)
def test_a_fork_during_a_stall_leaves_the_thread_of_the_parent_at_work(
    server: Server, observer: Redis, child: str
) -> None:
    source = f"""
    warnings.simplefilter("ignore")
    async def theirs():
        async with client() as mine, mine.lock("another"):
            time.sleep(2 * LEASE)
            assert threads() == 1, threading.enumerate()

    def own():
        asyncio._set_running_loop(None)
        asyncio.run(theirs())

    async def main():
        async with client() as locks:
            lock = locks.lock(NAME)
            async with lock as lease:
                time.sleep(2 * LEASE)
                if os.fork() == 0:
                    try:
                        {child}
                    except SystemExit:
                        raise
                    except BaseException as error:
                        print("child", repr(error))
                        os._exit(1)
                _, status = os.wait()
                print("child", status)
                time.sleep(4 * LEASE)
                lease.check()
                await asyncio.sleep(0.1)
                print("kept", locks.statistics().losses)
    try:
        asyncio.run(main())
    except SystemExit:
        pass
    """
    with program(source, server) as running:
        told = rest(running)
        assert [line for line in told.splitlines() if line in ("child 0", "kept 0")] == ["child 0", "kept 0"], told
