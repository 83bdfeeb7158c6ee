"""A loss ends no body of a thread: the thread asks for it, or gets a callback, or an error as its block ends."""

import threading
from collections.abc import Callable
from weakref import WeakSet

import pytest

from aiolock import LeaseLostError, LockConfig
from aiolock._embedded_server import Server
from aiolock.blocking import LockClient, RLock
from tests.blocking.threads import begin, until


def test_the_body_asks_and_hears_of_it_at_its_end(orders: RLock) -> None:
    with pytest.raises(LeaseLostError) as caught, orders as lease:
        lease.check()
        orders.force_release()
        assert lease.lost.is_set()
        with pytest.raises(LeaseLostError):
            lease.check()
    assert caught.value.reason == "forced"


def test_an_error_of_the_body_is_kept_beside_a_loss(orders: RLock) -> None:
    def lose() -> None:
        orders.force_release()
        raise KeyError("mine")

    with pytest.raises(KeyError) as caught, orders:
        lose()
    assert any("released by force" in note for note in caught.value.__notes__)


def test_the_clock_tells_of_a_lease_that_has_ended(orders: RLock) -> None:
    lease = orders.acquire(lease=0.5)
    until(lease.lost.is_set)
    assert lease.remaining == 0
    assert lease.lost.wait() == "expired"


def test_a_wait_for_a_loss_ends(orders: RLock) -> None:
    lease = orders.acquire()
    assert lease.lost.wait(0.01) is None
    waiting = begin(lease.lost.wait)
    orders.force_release()
    assert waiting.result() == "forced"
    with pytest.raises(LeaseLostError):
        lease.renew()
    with pytest.raises(LeaseLostError):
        lease.release()


def test_a_callback_is_called_in_a_thread_of_its_own_once(orders: RLock) -> None:
    told: list[tuple[str, bool]] = []
    called = threading.Event()

    def call_back(reason: str) -> None:
        told.append((reason, threading.current_thread() is threading.main_thread()))
        assert orders.try_lock() is not None
        called.set()

    lease = orders.acquire()
    lease.on_loss(call_back)
    orders.force_release()
    assert called.wait(30)
    lease.on_loss(lambda reason: told.append((reason, False)))
    until(lambda: len(told) == 2)
    assert told == [("forced", False)] * 2


@pytest.mark.parametrize("several", [False, True], ids=["one lock", "several locks"])
def test_a_lease_with_a_callback_can_be_given_back_by_a_block(orders: RLock, client: LockClient, several: bool) -> None:
    lock = client.multi("a", "b") if several else orders
    lease = lock.acquire()
    lease.on_loss(lambda reason: None)
    with lease:
        assert lock.locked()
    assert not lock.locked()


def test_a_callback_for_which_no_thread_can_be_started_is_logged(
    orders: RLock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    lease = orders.acquire()
    lease.on_loss(lambda reason: None)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        orders.force_release()
    assert "the callback of `on_loss` was not called: can't start new thread" in caplog.text
    with pytest.raises(LeaseLostError):
        lease.release()


def test_a_callback_is_not_called_after_the_release(orders: RLock) -> None:
    told: list[str] = []
    outer = orders.acquire()
    with orders as lease:
        lease.on_loss(told.append)
    orders.force_release()
    assert outer.lost.wait() == "forced"
    seen = threading.Event()
    outer.on_loss(lambda reason: seen.set())
    assert seen.wait(30)
    assert told == []


def test_nothing_is_left_of_the_callbacks_of_leases_that_were_given_back(orders: RLock) -> None:
    def enter_once_more() -> None:
        def call_back(reason: str) -> None: ...

        callbacks.add(call_back)
        with orders as lease:
            lease.on_loss(call_back)

    callbacks = WeakSet[Callable[[str], None]]()
    outer = orders.acquire()
    for _ in range(3):
        enter_once_more()
    outer.on_loss(lambda reason: None)
    until(lambda: not callbacks)


def test_a_multi_lease_calls_back_once(client: LockClient) -> None:
    told: list[str] = []
    lease = client.multi("a", "b").acquire()
    lease.on_loss(told.append)
    client.lock("a").force_release()
    client.lock("b").force_release()
    assert lease.lost.wait() == "forced"
    until(lambda: told)
    with pytest.raises(LeaseLostError):
        lease.check()
    assert told == ["forced"]


def test_a_thread_that_computes_does_not_stop_renewals(server: Server, elsewhere: LockClient) -> None:
    config = LockConfig(lease=10, renew_interval=0.05)
    with LockClient.from_url(server.url, config=config) as locks, locks.lock("orders") as lease:
        wanted = locks.lock("orders").statistics().renewals + 5

        def is_renewed() -> bool:
            return sum(range(100_000)) > 0 and locks.lock("orders").statistics().renewals >= wanted

        while not is_renewed():
            lease.check()
        assert elsewhere.lock("orders").try_lock() is None


def test_the_token_grows(orders: RLock, elsewhere: LockClient) -> None:
    with orders as first:
        pass
    with elsewhere.lock("orders") as second:
        assert second.token > first.token
