"""A fork: a client that was used refuses to work in the child; one that was not used works in both processes."""

import asyncio
import json
import os
import sys
import traceback
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import redis as synchronous

from aiolock import AsyncRLock, ClientClosedError, LockClient
from aiolock._embedded_server import Server
from tests.support.forks import run_in_fork
from tests.support.observe import until

NAME = "fork"
Child = Callable[[], Coroutine[Any, Any, Any]]


def in_child(child: Child) -> Any:
    """The result of the coroutine function, run in a fork of this process, in a loop of its own."""
    readable, writable = os.pipe()
    if os.fork() == 0:
        try:
            told = {"result": asyncio.run(child())}
        except BaseException:
            told = {"error": traceback.format_exc()}
        os.write(writable, json.dumps(told).encode())
        # All that is open here belongs to the parent, too, so nothing is cleaned up.
        os._exit(0)
    os.close(writable)
    with os.fdopen(readable, "rb") as pipe:
        answer = json.loads(pipe.read())
    os.wait()
    assert "error" not in answer, answer["error"]
    return answer["result"]


async def refusals(locks: LockClient) -> list[str]:
    lock = locks.lock(NAME)
    said = []
    for use in (lock.acquire, lock.try_lock, lock.release, lock.locked, lock.held, lock.force_release, locks.aclose):
        with pytest.raises(ClientClosedError, match="another process") as caught:
            await use()
        said.append(str(caught.value))
    return said


async def owner_of(locks: LockClient, name: str) -> tuple[str, int | None]:
    holder = await locks.lock(name).holder()
    assert holder is not None
    return holder.client, holder.pid


@pytest.mark.parametrize("inside", [True, False], ids=["inside of the loop", "outside of the loop"])
def test_a_used_client_is_refused_in_the_child_and_keeps_the_locks_of_the_parent(server: Server, inside: bool) -> None:
    locks = LockClient.from_url(server.url)

    async def child() -> dict[str, Any]:
        said = await refusals(locks)
        with pytest.raises(ClientClosedError, match="make a client in each process"):
            await locks.__aenter__()
        async with LockClient.from_url(server.url) as own:
            mine = own.lock("the child's")
            taken = await own.lock(NAME).try_lock()
            async with mine:
                client, pid = await owner_of(own, "the child's")
        return {"refusals": len(said), "taken": taken is not None, "client": client, "pid": pid}

    async def hold() -> Any:
        await locks.lock(NAME, owner="long").acquire()
        return in_child(child) if inside else None

    async def check(told: dict[str, Any]) -> None:
        assert told["refusals"] == 7
        assert not told["taken"]
        client, pid = await owner_of(locks, NAME)
        assert client not in (told["client"], "")
        assert pid == os.getpid() != told["pid"]
        lock = locks.lock(NAME, owner="long")
        assert await lock.hold_count() == 1
        await lock.release()
        assert not await locks.lock("the child's").locked()
        await locks.aclose()

    with asyncio.Runner() as runner:
        told = runner.run(hold())
        told = told or in_child(child)
        runner.run(check(told))


def test_a_lease_of_the_parent_is_of_no_use_to_the_child(server: Server) -> None:
    async def main() -> None:
        async with LockClient.from_url(server.url) as locks:
            lease = await locks.lock(NAME).acquire()

            async def child() -> int:
                for use in (lease.release, lease.renew):
                    with pytest.raises(ClientClosedError, match="another process"):
                        await use()
                with pytest.raises(ClientClosedError, match="another process"):
                    lease.check()
                return lease.holds

            in_child(child)
            lease.check()
            assert await locks.lock(NAME).hold_count() == 1
            await lease.release()

    asyncio.run(main())


def test_children_of_a_client_that_was_never_started_are_all_different(server: Server) -> None:
    locks = LockClient.from_url(server.url)

    async def child() -> str:
        async with locks, locks.lock(NAME):
            return (await owner_of(locks, NAME))[0]

    assert len({in_child(child) for _ in range(5)}) == 5


async def with_a_client_of_its_own(url: str) -> None:
    async with LockClient.from_url(url) as own, own.lock("the child's"):
        pass


def exit_at_once(url: str) -> None:
    sys.exit(3)


def exit_after_work(url: str) -> None:
    asyncio.run(with_a_client_of_its_own(url))
    sys.exit(3)


def go_on(url: str) -> None:
    pass


@pytest.mark.parametrize(
    ("child", "ends_with"),
    [
        (exit_at_once, ["SystemExit", "3"]),
        (exit_after_work, ["SystemExit", "3"]),
        (go_on, []),
    ],
)
def test_a_child_that_leaves_its_parents_blocks_does_nothing_and_its_own_exception_counts(
    server: Server, caplog: pytest.LogCaptureFixture, child: Callable[[str], None], ends_with: list[str]
) -> None:
    parent = os.getpid()
    readable, writable = os.pipe()
    with synchronous.Redis.from_url(server.url) as observer, os.fdopen(readable, "rb") as pipe:
        observer.flushall()

        def connections() -> set[str]:
            return {client["id"] for client in observer.client_list(_type="normal")}

        async def hold(lock: AsyncRLock) -> None:
            async with lock:
                await asyncio.Event().wait()

        async def main() -> None:
            async with LockClient.from_url(server.url) as locks, locks.lock(NAME) as lease:
                other = asyncio.create_task(hold(locks.lock("other")))
                await until(lambda: locks.statistics().held == 2)
                await until(lambda: locks.statistics().pending == 0)
                before = connections()
                if os.fork() == 0:
                    child(server.url)
                else:
                    os.wait()
                    assert observer.exists(NAME, "other") == 2
                    assert await locks.lock(NAME).hold_count() == 1
                    assert connections() == before
                    lease.check()
                    other.cancel()

        ended: list[str] = []
        try:
            asyncio.run(main())
        except BaseException as error:
            ended = [type(error).__name__, str(error), *getattr(error, "__notes__", [])]
            if os.getpid() == parent:
                raise
        finally:
            if os.getpid() != parent:
                os.write(writable, json.dumps({"ended": ended, "logged": caplog.messages}).encode())
                os._exit(0)
        os.close(writable)
        told = json.loads(pipe.read())
    assert told == {"ended": ends_with, "logged": []}


async def test_a_child_that_goes_on_in_its_parents_coroutine_is_told_the_reason(locks: LockClient) -> None:
    """In a fork, asyncio sees no running loop."""
    lock = locks.lock(NAME)
    assert not await lock.locked()

    async def child() -> None:
        for use in (lock.acquire, lock.try_lock, lock.held, locks.semaphore(NAME, 2).acquire):
            with pytest.raises(ClientClosedError, match="another process"):
                await use()

    await run_in_fork(child, on_loop=False)
