"""The thread that acquires a lock owns it, as a task does in the asynchronous library."""

import gc
import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

import pytest
import redis as synchronous

import aiolock
from aiolock import LeaseLostError, LockTimeoutError, NotHeldError
from aiolock._embedded_server import Server
from aiolock.blocking import Lease, LockClient, RLock, Term
from tests.blocking.threads import begin, in_thread, until


def test_a_block_holds_the_lock_and_gives_it_back(orders: RLock, elsewhere: LockClient) -> None:
    with orders as lease:
        assert (lease.name, lease.holds, lease.given_back) == ("orders", 1, False)
        assert elsewhere.lock("orders").try_lock() is None
        assert elsewhere.lock("orders").locked()
    assert lease.given_back
    assert not elsewhere.lock("orders").locked()


def test_a_thread_leaves_the_last_block_of_a_handle_that_it_entered(orders: RLock) -> None:
    with orders as outer:
        with orders as inner:
            pass
        assert (outer.given_back, inner.given_back) == (False, True)


def test_another_thread_is_another_owner(orders: RLock) -> None:
    with orders:
        assert in_thread(orders.try_lock) is None
        assert in_thread(orders.hold_count) == 0
        with pytest.raises(NotHeldError):
            begin(orders.release).result()
        with pytest.raises(LockTimeoutError, match="thread MainThread"):
            begin(lambda: orders.hold(wait=0.01).__enter__()).result()


def test_each_call_of_a_thread_is_of_the_same_owner_and_threads_never_share_a_number(orders: RLock) -> None:
    def owner() -> str:
        with orders:
            holder = orders.holder()
            assert holder is not None
            return holder.owner

    owners = [owner(), owner(), *(in_thread(owner) for _ in range(5))]
    assert owners[0] == owners[1]
    assert len(set(owners)) == 6


def test_locks_of_a_dead_thread_are_freed_with_a_warning(
    client: LockClient, elsewhere: LockClient, caplog: pytest.LogCaptureFixture
) -> None:
    lease = in_thread(client.lock("orders").acquire, name="import-7")
    with elsewhere.lock("orders").hold(wait=30):
        assert lease.lost.wait(30) == "orphaned"
    assert any("thread import-7" in each.message and each.levelno == logging.WARNING for each in caplog.records)
    with pytest.raises(LeaseLostError, match="has ended"):
        lease.check()


def test_a_block_whose_thread_has_died_within_it_is_over(client: LockClient, elsewhere: LockClient) -> None:
    lock = client.lock("orders")
    in_thread(lock.__enter__)
    with elsewhere.lock("orders").hold(wait=30):
        pass
    with pytest.raises((RuntimeError, LeaseLostError)):
        lock.__exit__(None, None, None)


def test_a_block_may_be_left_by_another_thread_than_entered_it(client: LockClient) -> None:
    """A block of a generator, which FastAPI and others enter and leave in a pool of threads."""
    hold, left = client.lock("orders").hold(wait=30), threading.Event()
    # This thread has died: nobody can mean its block any more.
    in_thread(hold.__enter__)

    def enter() -> Lease:
        lease = hold.__enter__()
        entered.set()
        assert left.wait(30)
        return lease

    entered = threading.Event()
    entering = begin(enter)
    assert entered.wait(30)
    hold.__exit__(None, None, None)
    assert not client.lock("orders").locked()
    left.set()
    assert entering.result().given_back


def test_threads_that_share_a_handle_leave_their_own_blocks(client: LockClient) -> None:
    reading, entered, over = client.read_write_lock("orders").read, threading.Event(), threading.Event()

    def read() -> Lease:
        with reading as lease:
            entered.set()
            assert over.wait(30)
            assert not lease.given_back
        return lease

    with reading as mine:
        other = begin(read)
        assert entered.wait(30)
    assert mine.given_back
    over.set()
    assert other.result().given_back
    assert not reading.locked()


def test_a_block_that_was_not_entered_is_refused(orders: RLock) -> None:
    with pytest.raises(RuntimeError, match="entered no `with`"):
        orders.__exit__(None, None, None)


def test_a_release_by_the_handle_is_refused_for_the_hold_of_a_block(orders: RLock) -> None:
    with orders, pytest.raises(RuntimeError, match="gives it back"):
        orders.release()
    assert not orders.locked()


def test_an_error_of_the_body_leaves_as_it_is(orders: RLock) -> None:
    def fail() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"), orders:
        fail()
    assert not orders.locked()


def test_a_lease_may_be_used_as_a_block(orders: RLock) -> None:
    with orders.acquire() as lease:
        assert orders.held()
        with pytest.raises(RuntimeError, match="in a block already"):
            lease.__enter__()
    assert lease.given_back


def test_wrong_arguments_are_refused_as_by_the_asynchronous_library(client: LockClient, orders: RLock) -> None:
    with pytest.raises(TypeError, match="name must be a str"):
        client.lock(7)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="lease must be more than zero"):
        orders.acquire(lease=0)
    with pytest.raises(TypeError, match="the time to hold a lock is `lease=`"):
        orders.try_lock(timeout=3)  # type: ignore[call-arg]
    assert not orders.locked()


def test_a_client_that_is_closed_releases_and_refuses(server: Server, elsewhere: LockClient) -> None:
    with LockClient.from_url(server.url) as locks:
        lease = locks.lock("orders").acquire()
    assert not elsewhere.lock("orders").locked()
    assert lease.lost.is_set()
    with pytest.raises(LeaseLostError, match="closed"):
        lease.renew()
    for use in (locks.ping, locks.lock("orders").acquire, locks.__enter__):
        with pytest.raises(aiolock.ClientClosedError, match="is closed"):
            use()
    with pytest.raises(aiolock.ClientClosedError, match="is closed"):
        begin(locks.ping).result()
    locks.close()
    assert locks.statistics().held == 0


BLOCKS: dict[str, Callable[[LockClient], AbstractContextManager[Lease | Term]]] = {
    "with lock": lambda locks: locks.lock("orders"),
    "with lease": lambda locks: locks.lock("orders").acquire(),
    "with leader": lambda locks: locks.leader("orders"),
}


@pytest.mark.parametrize("is_called_back", [False, True], ids=["", "on_loss"])
@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
def test_closing_lets_another_thread_leave_its_block_under_its_lock(
    server: Server,
    elsewhere: LockClient,
    block: Callable[[LockClient], AbstractContextManager[Lease | Term]],
    is_called_back: bool,
) -> None:
    locks, entered, seen = LockClient.from_url(server.url), threading.Event(), elsewhere.lock("orders")
    under: list[bool] = []

    def work() -> None:
        with block(locks) as lease:
            if is_called_back:
                (lease.lease if isinstance(lease, Term) else lease).on_loss(lambda reason: None)
            entered.set()
            assert lease.lost.wait() == "closed"
            for _ in range(20):
                under.append(seen.locked())

    working = begin(work)
    assert entered.wait(30)
    locks.close()
    working.result()
    assert under == [True] * 20
    assert not seen.locked()


def test_a_client_that_was_never_used_has_no_thread(server: Server) -> None:
    before = threading.active_count()
    with LockClient.from_url(server.url) as locks:
        locks.lock("orders")
        assert locks.statistics().held == 0
        assert threading.active_count() == before
    with pytest.raises(aiolock.ClientClosedError):
        locks.ping()


def test_a_waiter_is_told_when_the_client_is_closed(server: Server, elsewhere: LockClient) -> None:
    locks = LockClient.from_url(server.url)
    with elsewhere.lock("orders"):
        waiting = begin(locks.lock("orders").acquire)
        until(lambda: locks.statistics().parked)
        locks.close()
        with pytest.raises(aiolock.ClientClosedError, match="is closed"):
            waiting.result()


def test_a_client_that_was_forgotten_ends_its_thread_with_a_warning(
    server: Server, database: "synchronous.Redis"
) -> None:
    def forget() -> None:
        LockClient.from_url(server.url).lock("orders").acquire()
        gc.collect()

    before = threading.active_count()
    with pytest.warns(ResourceWarning, match=r"unclosed aiolock\.blocking\.LockClient"):
        forget()
    until(lambda: threading.active_count() == before)
    assert not database.exists("orders")


def test_an_error_of_the_server_is_that_of_the_asynchronous_library(
    client: LockClient, database: "synchronous.Redis"
) -> None:
    database.set("orders", "a string")
    with pytest.raises(aiolock.NotALockError):
        client.lock("orders").acquire()
    with suppress(aiolock.NotALockError), client.lock("orders"):
        raise AssertionError("it was entered")


def test_a_block_that_leaves_its_release_behind_frees_the_lock(server: Server, elsewhere: LockClient) -> None:
    config = aiolock.LockConfig(release="behind")
    with LockClient.from_url(server.url, config=config) as locks:
        for block in (locks.lock("orders"), locks.lock("orders").hold(), locks.multi("orders", "a").hold()):
            with block:
                assert elsewhere.lock("orders").try_lock() is None
            with elsewhere.lock("orders").hold(wait=30):
                pass
        with pytest.raises(ValueError, match="at_least"):
            locks.lock("orders").hold(at_least=1, release="behind")
