"""The types of `aiolock.blocking`: checked by mypy and pyright, never run."""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Literal, assert_type

from redis.asyncio import Redis

from aiolock import ClientStatistics, Holder, LockActivity, LockConfig, LockStatistics, Slot
from aiolock.blocking import (
    CountDownLatch,
    CountingSemaphore,
    FairLock,
    HeldCountingSemaphore,
    HeldLock,
    HeldMultiLock,
    HeldSemaphore,
    Leader,
    Lease,
    LockClient,
    Loss,
    MultiLease,
    MultiLock,
    Once,
    ReadLock,
    RLock,
    Semaphore,
    Term,
    Turn,
    WriteLock,
)

Reason = Literal["expired", "taken", "forced", "unreachable", "closed", "orphaned", "max_hold"]


def clients(redis: Redis) -> None:
    config = LockConfig(lease=timedelta(seconds=10))
    with LockClient(redis, config=config) as locks:
        assert_type(locks, LockClient)
        assert_type(locks.lock("orders", owner="job-17"), RLock)
        assert_type(locks.fair_lock("orders"), FairLock)
        assert_type(locks.multi("a", locks.lock("b")), MultiLock)
        assert_type(locks.counting_semaphore("a", 2), CountingSemaphore)
        assert_type(locks.semaphore("a", permits=2), Semaphore)
        assert_type(locks.count_down_latch("a"), CountDownLatch)
        assert_type(locks.leader("a", pause=2), Leader)
        assert_type(locks.once("a", keep=60, failures="remember"), Once)
        assert_type(locks.slot("a", every=60), Slot)
        assert_type(locks.ping(), None)
        assert_type(locks.statistics(), ClientStatistics)
        assert_type(locks.activity(), list[LockActivity])
    assert_type(LockClient.from_url("redis://localhost", config=config, db=3), LockClient)
    LockClient(redis).close()
    locks.lock(7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    locks.lock("a", timeout=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def locks_and_leases(lock: RLock) -> int:
    assert_type(lock.acquire(lease=timedelta(seconds=1)), Lease)
    assert_type(lock.try_lock(1, 2.5, at_least=5), Lease | None)
    assert_type(lock.hold(wait=1, lease=2), HeldLock)
    assert_type(lock.release(), None)
    assert_type((lock.locked(), lock.held(), lock.hold_count()), tuple[bool, bool, int])
    assert_type(lock.remaining(), float | None)
    assert_type(lock.force_release(token=7), bool)
    assert_type(lock.holder(), Holder | None)
    assert_type(lock.statistics(), LockStatistics)
    lock.acquire("7")  # type: ignore[arg-type, call-arg]  # pyright: ignore[reportCallIssue]
    lock.try_lock(wait="7")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with lock as lease:
        assert_type(lease, Lease)
    with lock.hold(2, 10) as lease:
        # A checker reports no "missing return" after it: the block hides no exception.
        return assert_type(lease.token, int)


def leases(lease: Lease, several: MultiLease) -> None:
    assert_type((lease.name, lease.token, lease.lease), tuple[str, int, float])
    assert_type((lease.remaining, lease.holds, lease.watched, lease.given_back), tuple[float, int, bool, bool])
    assert_type(lease.lost, Loss)
    assert_type((lease.lost.is_set(), lease.lost.wait(5)), tuple[bool, Reason | None])
    lease.renew(timedelta(seconds=1))
    lease.check()
    lease.on_loss(print)
    lease.release()
    assert_type(several.leases, Mapping[str, Lease])
    assert_type(several.tokens, Mapping[str, int])
    lease.on_loss(clients)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def others(locks: LockClient, semaphore: CountingSemaphore, permits: Semaphore, both: MultiLock) -> None:
    lock = locks.read_write_lock("a")
    assert_type((lock.read, lock.write), tuple[ReadLock, WriteLock])
    assert_type(lock.read.holders(), Sequence[Holder])
    lock.read.hold(at_least=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with semaphore as nothing:
        assert_type(nothing, None)
    assert_type(semaphore.try_acquire(1, permits=2), bool)
    assert_type(semaphore.hold(permits=2), HeldCountingSemaphore)
    assert_type(semaphore.taking(2), CountingSemaphore)
    assert_type(permits.acquire(2), Lease)
    assert_type(permits.hold(permits=2), HeldSemaphore)
    permits.release(permits.acquire())
    assert_type(both.try_lock(), MultiLease | None)
    assert_type(both.hold(), HeldMultiLock)
    with both as leases:
        assert_type(leases, MultiLease)


def once(locks: LockClient) -> None:
    def write(number: int, *, text: str) -> str:
        return text * number

    def count() -> int:
        return 1

    once = locks.once("report", keep=timedelta(days=1))
    assert_type(once.run(write, 2, text="a"), str | None)
    with once as turn:
        assert_type(turn, Turn)
        assert_type(turn.lease, Lease | None)
        turn.result = b"done" if turn else "not"
    once.run(count)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]


def leaders(leader: Leader) -> None:
    with leader as term:
        assert_type(term, Term)
        assert_type((term.token, term.lease), tuple[int, Lease])
    for term in leader:
        assert_type(term, Term)
    leader.run(lead)
    assert_type(leader.try_lead(wait=1), Term | None)


def lead(term: Term) -> None:
    term.check()


def decorated(locks: LockClient) -> None:
    @locks.synchronized("order:{order_id}", of=lambda locks, name: locks.read_write_lock(name).read)
    def ship(order_id: int, *, region: str = "eu") -> list[str]:
        return [region] * order_id

    assert_type(ship(1, region="us"), list[str])
    ship("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    perhaps = locks.synchronized("a", busy="skip", on_unavailable="run")(ship)
    assert_type(perhaps(1), list[str] | None)
    _: Callable[[], None] = locks.synchronized("a", wait=1)(clients)  # type: ignore[arg-type]  # pyright: ignore
