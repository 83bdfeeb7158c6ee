"""Each primitive, as a thread uses it."""

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from queue import Queue
from typing import Any

import pytest
import redis as synchronous

from aiolock import BackendError, LeaseLostError, LockConfig, LossReason, NotHeldError, OnceFailedError
from aiolock._embedded_server import Server
from aiolock.blocking import Leader, Lease, LockClient, MultiLease, RLock, Term
from tests.blocking.threads import begin, in_thread, until


def test_fair_lock(client: LockClient) -> None:
    lock = client.fair_lock("orders")
    with lock.hold(wait=1) as lease:
        assert in_thread(client.lock("orders").try_lock) is None
        assert lease.token > 0
    assert not lock.locked()


def test_read_write_lock(client: LockClient) -> None:
    lock = client.read_write_lock("orders")
    with lock.read, lock.read.hold(wait=0):
        assert in_thread(lock.read.try_lock) is not None
        assert in_thread(lock.write.try_lock) is None
        with pytest.raises(RuntimeError, match="wait for itself"):
            lock.write.acquire()
    with lock.write, lock.read:
        assert len(lock.holders()) == 2
    assert (lock.name, lock.statistics().held) == ("orders", 0)


def test_multi_lock(client: LockClient, elsewhere: LockClient) -> None:
    both = client.multi("a", client.lock("b"))
    with both as lease:
        assert isinstance(lease, MultiLease)
        assert {name: each.token for name, each in lease.leases.items()} == lease.tokens
        assert elsewhere.multi("b", "c").try_lock() is None
        assert not elsewhere.lock("c").locked()
    with both.hold(wait=1, lease=5) as lease:
        lease.renew(6)
        assert lease.remaining > 5
    lease = both.acquire()
    both.release()
    assert lease.given_back


@pytest.mark.parametrize(
    "use",
    [
        lambda client, lock: client.multi("a", lock),
        lambda client, lock: client.synchronized("a", of=lambda _, name: lock)(lambda: None)(),
        lambda client, lock: client.semaphore("b", 1).release(lock),
        lambda client, lock: client.semaphore("b", 1).renew(lock),
    ],
    ids=["multi", "of", "release", "renew"],
)
def test_a_client_takes_no_locks_of_another_client(
    client: LockClient, server: Server, use: Callable[[LockClient, Any], object]
) -> None:
    with LockClient.from_url(server.url) as another:
        with pytest.raises(ValueError, match=r"'b'>, which is of another client: each has an event loop of its own$"):
            use(client, another.lock("b"))
        with pytest.raises(TypeError, match=r"(that client|this client|returned), not <AsyncRLock 'b'>$"):
            use(client, another.lock("b")._async)
        another.ping()


def test_semaphore(client: LockClient) -> None:
    semaphore = client.counting_semaphore("orders", 3)
    with semaphore as given, semaphore.hold(wait=1, permits=2):
        assert given is None
        assert (semaphore.available(), semaphore.try_acquire()) == (0, False)
    semaphore.taking(2).acquire()
    assert semaphore.available() == 1
    in_thread(lambda: semaphore.release(2))
    assert semaphore.drain() == 3


def test_a_block_of_a_semaphore_ends_with_its_thread(client: LockClient) -> None:
    semaphore = client.counting_semaphore("orders", 1)
    in_thread(semaphore.__enter__)
    assert semaphore.try_acquire(30)


def test_permits(client: LockClient) -> None:
    semaphore = client.semaphore("orders", 3)
    with semaphore as permit, semaphore.hold(permits=2):
        assert isinstance(permit, Lease)
        assert (semaphore.available(), semaphore.try_acquire()) == (0, None)
        semaphore.renew(permit, 40)
        assert permit.remaining > 30
    permit = semaphore.taking(2).acquire()
    semaphore.release(permit)
    semaphore.acquire()
    semaphore.release()
    assert semaphore.available() == 3
    with pytest.raises(TypeError, match="must be a Lease"):
        semaphore.release("permit")  # type: ignore[arg-type]


def test_latch(client: LockClient) -> None:
    latch = client.count_down_latch("orders")
    assert latch.try_set_count(1)
    waiting = begin(latch.wait)
    until(lambda: client.statistics().parked)
    latch.count_down()
    assert waiting.result()
    assert latch.wait(0)


def test_once_runs_in_one_thread_and_all_get_its_result(client: LockClient, elsewhere: LockClient) -> None:
    calls: list[int] = []

    def report(number: int) -> str:
        calls.append(number)
        return f"report {number}"

    running = [begin(partial(each.once("report", keep=60).run, report, 7)) for each in (client, client, elsewhere)]
    assert [each.result() for each in running] == ["report 7"] * 3
    assert calls == [7]


def test_a_turn_sets_its_result(client: LockClient) -> None:
    with client.once("report", keep=60) as turn:
        assert turn
        assert turn.lease is not None
        turn.result = b"done"
        assert not turn.done
    assert turn.done
    with client.once("report", keep=60, wait=0) as turn:
        assert (bool(turn), turn.done, turn.result, turn.lease) == (False, True, b"done", None)


def test_a_body_that_failed_is_run_again_or_remembered(client: LockClient) -> None:
    def fail() -> None:
        raise KeyError("broken")

    with pytest.raises(KeyError):
        client.once("again", keep=60).run(fail)
    assert client.once("again", keep=60).run(str, 1) == "1"
    remembering = client.once("never", keep=60, failures="remember")
    with pytest.raises(KeyError):
        remembering.run(fail)
    with pytest.raises(OnceFailedError, match="KeyError: 'broken'"):
        remembering.run(str, 1)


def test_once_is_refused_within_itself(client: LockClient) -> None:
    once = client.once("report", keep=60)
    with once, pytest.raises(RuntimeError, match="wait for itself"):
        once.__enter__()


def test_one_term_at_a_time(client: LockClient, elsewhere: LockClient) -> None:
    with client.leader("scheduler") as term:
        term.check()
        assert (term.name, term.token > 0, term.lost.is_set()) == ("scheduler", True, False)
        assert elsewhere.leader("scheduler").try_lead() is None
    tried = elsewhere.leader("scheduler").try_lead()
    assert isinstance(tried, Term)
    with pytest.raises(RuntimeError, match="use the block of the term"):
        tried.lease.__enter__()
    with tried:
        assert client.leader("scheduler").holder() is not None
    assert client.leader("scheduler").holder() is None


def test_terms_follow_each_other_and_the_loop_gives_each_lock_back(client: LockClient) -> None:
    leader, tokens = client.leader("scheduler", pause=0), []
    for term in leader:
        tokens.append(term.token)
        if len(tokens) == 3:
            break
        term.step_down()
    assert tokens == sorted(tokens)
    assert leader.holder() is None


def test_a_leader_that_lost_its_term_runs_for_election_again(client: LockClient) -> None:
    terms: list[Term] = []

    def work(term: Term) -> None:
        terms.append(term)
        if len(terms) == 1:
            client.lock("scheduler").force_release()
            term.check()
        if len(terms) == 2:
            term.step_down()
            term.check()
        raise KeyError("ends it")

    with pytest.raises(KeyError):
        client.leader("scheduler", pause=0).run(work)
    assert len(terms) == 3


def test_a_leader_runs_for_election_again_if_its_release_failed(server: Server, database: "synchronous.Redis") -> None:
    terms = 0

    def work(term: Term) -> None:
        nonlocal terms
        terms += 1
        if terms == 2:
            raise BackendError("the failure of the work ends the run")
        # Servers answer commands late during a pause.
        database.client_pause(2000)

    config, ends = LockConfig(release_timeout=0.3, command_timeout=30), "failure of the work"
    with LockClient.from_url(server.url, config=config) as client, pytest.raises(BackendError, match=ends):
        client.leader("scheduler", pause=0).run(work)
    assert terms == 2


@pytest.mark.parametrize(
    "block",
    [
        lambda locks: locks.lock("a"),
        lambda locks: locks.lock("a").hold(),
        lambda locks: locks.multi("a", "b"),
        lambda locks: locks.once("a", keep=1),
        lambda locks: locks.leader("a"),
    ],
    ids=["lock", "hold", "multi", "once", "leader"],
)
def test_the_holder_of_a_client_that_another_thread_has_closed_is_told_of_the_loss(
    server: Server, database: "synchronous.Redis", block: Callable[[LockClient], AbstractContextManager[object]]
) -> None:
    client = LockClient.from_url(server.url, config=LockConfig(release_timeout=0.3))
    with pytest.raises(LeaseLostError) as caught, block(client):
        begin(client.close).result()
    assert caught.value.reason == "closed"


def test_a_lease_of_a_closed_client_is_lost(server: Server, database: "synchronous.Redis") -> None:
    client, reasons = LockClient.from_url(server.url), Queue[LossReason]()
    lease = client.lock("a").acquire()
    client.close()
    lease.on_loss(reasons.put)
    assert reasons.get(timeout=30) == "closed"
    for act in (lease.check, lease.release, lease.renew):
        with pytest.raises(LeaseLostError, match="closed"):
            act()


def test_a_lease_that_was_given_back_is_told_of_no_loss(server: Server, database: "synchronous.Redis") -> None:
    client, reasons = LockClient.from_url(server.url), Queue[LossReason]()
    _, inner = client.lock("a").acquire(), client.lock("a").acquire()
    inner.release()
    client.close()
    inner.on_loss(reasons.put)
    assert reasons.empty()


def test_a_leader_whose_work_releases_what_it_does_not_hold_has_failed(client: LockClient) -> None:
    def work(term: Term) -> None:
        term.step_down()
        client.lock("another").release()

    with pytest.raises(NotHeldError, match="another"):
        client.leader("scheduler", pause=0).run(work)


def test_the_loop_of_a_leader_ends_with_the_client(client: LockClient) -> None:
    def lead(leader: Leader) -> int:
        number = 0
        for _ in leader:
            number += 1
            began.set()
            assert closed.wait(30)
        return number

    began, closed = threading.Event(), threading.Event()
    leading = begin(lambda: lead(client.leader("scheduler")))
    assert began.wait(30)
    client.close()
    closed.set()
    assert leading.result() == 1


def test_a_decorated_function_runs_under_the_locks_that_its_arguments_name(client: LockClient) -> None:
    @client.synchronized("order:{order}", "customer:{customer}", wait=1)
    def ship(order: int, customer: str = "a") -> list[bool]:
        return [client.lock(name).held() for name in (f"order:{order}", f"customer:{customer}")]

    @client.synchronized("{order}", of=lambda locks, name: locks.read_write_lock(name).read)
    def look(order: str) -> int:
        return len(client.read_write_lock(order).read.holders())

    @client.synchronized("pool", of=lambda locks, name: locks.counting_semaphore(name, 1))
    def draw() -> int:
        return client.counting_semaphore("pool").available()

    assert ship(7) == [True, True]
    assert look("x") == 1
    assert draw() == 0
    assert ship.__name__ == "ship"


async def coroutine(*_: object) -> None: ...


async def asynchronous_generator(*_: object) -> AsyncIterator[None]:
    yield


def generator(*_: object) -> Iterator[None]:
    yield


def returns_a_coroutine(*_: object) -> object:
    """A function like a decorator or a lambda around a coroutine function."""
    return coroutine()


USES: dict[str, Callable[[LockClient, Any], object]] = {
    "synchronized": lambda locks, function: locks.synchronized("a")(function)(),
    "once": lambda locks, function: locks.once("a", keep=60).run(function),
    "leader": lambda locks, function: locks.leader("a").run(function),
    "on_loss": lambda locks, function: locks.lock("a").acquire().on_loss(function),
}


def test_a_function_may_have_an_argument_of_any_name(client: LockClient) -> None:
    def work(function: str) -> str:
        return function

    assert client.once("a", keep=60).run(work, function="x") == "x"
    assert client.synchronized("{function}")(work)(function="x") == "x"


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("function", [coroutine, asynchronous_generator, generator, None])
def test_a_function_that_is_not_plain_is_refused(
    client: LockClient, use: Callable[[LockClient, Any], object], function: object
) -> None:
    with pytest.raises(TypeError, match=r"returns when it is done, not .*; for a coroutine function use"):
        use(client, function)


@pytest.mark.parametrize("use", [USES[each] for each in ("synchronized", "once", "leader")])
def test_a_function_that_returns_a_coroutine_is_refused_after_its_call(
    client: LockClient, use: Callable[[LockClient, Any], object]
) -> None:
    with pytest.raises(TypeError, match="returned a coroutine"):
        use(client, returns_a_coroutine)
    assert client.statistics().held == 0


def test_a_template_that_names_no_parameter_is_refused(client: LockClient) -> None:
    with pytest.raises(ValueError, match="names no parameter"):
        client.synchronized("{order}")(print)


def test_slots_and_the_records_of_a_client(client: LockClient, orders: RLock) -> None:
    assert client.slot("nightly", every=60).remaining > 0
    with orders:
        assert [each.name for each in client.activity()] == ["orders"]
        assert (client.statistics().held, orders.statistics().held) == (1, 1)
