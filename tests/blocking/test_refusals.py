"""A message names the asynchronous face wherever threads cannot wait."""

import asyncio
import gc
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import aiolock
from aiolock._embedded_server import Server
from aiolock.blocking import LockClient, RLock
from tests.blocking.threads import in_thread, until


def test_a_running_loop_is_refused(client: LockClient, orders: RLock) -> None:
    async def use() -> None:
        for each in (client.ping, orders.acquire, orders.__enter__, client.close):
            with pytest.raises(RuntimeError, match="Use the asynchronous aiolock"):
                each()

    asyncio.run(use())
    assert not orders.locked()
    assert client.statistics().held == 0


def test_a_hold_whose_with_is_refused_was_entered(client: LockClient, recwarn: pytest.WarningsRecorder) -> None:
    client.close()
    for lock in (client.lock("a"), client.multi("a", "b"), client.counting_semaphore("a")):
        with pytest.raises(aiolock.ClientClosedError), lock.hold(wait=1):
            pass
    gc.collect()
    assert not recwarn.list


def test_a_thread_of_a_loop_may_use_it(client: LockClient, orders: RLock) -> None:
    async def use() -> bool:
        return await aiolock.to_thread(lambda: orders.try_lock() is not None)

    assert asyncio.run(use())


def test_a_generator_that_is_destroyed_in_a_loop_leaves_its_block(orders: RLock) -> None:
    def numbers() -> Iterator[int]:
        with orders:
            yield 1

    async def destroy(generator: Iterator[int]) -> None:
        del generator
        gc.collect()

    each = [numbers()]
    assert next(each[0]) == 1
    asyncio.run(destroy(each.pop()))
    until(lambda: not orders.locked())


@pytest.mark.parametrize("name", ["gevent", "eventlet"])
def test_patched_threads_are_refused(server: Server, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def get_ident() -> int:
        return 1

    with LockClient.from_url(server.url) as locks:
        with monkeypatch.context() as patched:
            patched.setitem(sys.modules, name, sys)
            patched.setattr(threading, "get_ident", get_ident)
            with pytest.raises(RuntimeError, match=f"{name} has replaced them.*asynchronous aiolock.LockClient"):
                locks.ping()
        locks.ping()


@pytest.mark.usefixtures("database")
def test_messages_to_threads_are_about_threads(
    client: LockClient, orders: RLock, caplog: pytest.LogCaptureFixture
) -> None:
    def wrong() -> list[str]:
        """The messages of each wrong use, while another thread holds the lock."""
        failures = []
        for use in (orders.release, orders.hold(wait=0).__enter__):
            with pytest.raises(aiolock.AioLockError) as caught:
                use()
            failures.append(str(caught.value))
        return failures

    with orders, client.once("report", keep=60) as turn:
        told = in_thread(wrong)
        with pytest.raises(RuntimeError) as caught:
            client.once("report", keep=60).__enter__()
        told.append(str(caught.value))
        assert turn
    lost = in_thread(orders.acquire)
    until(lost.lost.is_set)
    with pytest.raises(aiolock.LeaseLostError) as orphaned:
        lost.check()
    in_thread(client.lock("left").__enter__)
    until(lambda: len(caplog.messages) == 2)
    told += [str(orphaned.value), *caplog.messages]
    assert [each for each in told if "thread" not in each or "async with" in each] == []


def test_a_hook_cannot_wait_in_the_loop(server: Server) -> None:
    told: list[str] = []

    def hook(event: object) -> None:
        try:
            locks.ping()
        except RuntimeError as error:
            told.append(str(error))

    with LockClient.from_url(server.url, config=aiolock.LockConfig(on_event=hook)) as locks, locks.lock("orders"):
        pass
    assert told
    assert all("would block the event loop" in each for each in told)


def test_the_word_of_redis_py_is_answered_without_await(client: LockClient) -> None:
    lock: Any = client.lock("orders")
    with pytest.raises(AttributeError, match=r"^'RLock' object has no attribute 'extend': write lease\.renew\(30\),"):
        lock.extend(3)
    with lock as lease, pytest.raises(AttributeError, match=r"'reacquire': write lease\.renew\(\)$"):
        lease.reacquire()
    both: Any = client.read_write_lock("orders")
    with pytest.raises(AttributeError, match=r"'is_locked': write lock\.locked\(\)$"):
        both.is_locked()
