"""The types of the public surface: checked by mypy and pyright, never run."""

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, Literal, assert_type

from redis.asyncio import Redis

import aiolock
from aiolock import (
    AsyncLeader,
    AsyncOnce,
    AsyncRLock,
    ClientStatistics,
    HeldLock,
    HeldMultiLock,
    HeldSemaphore,
    Holder,
    Lease,
    LeaseLostError,
    LockActivity,
    LockClient,
    LockConfig,
    LockEvent,
    LockStatistics,
    LockTimeoutError,
    Loss,
    LossReason,
    Lost,
    NotHeldError,
    Slot,
    Term,
    Turn,
)

Reason = Literal["expired", "taken", "forced", "unreachable", "closed", "orphaned", "max_hold"]


async def clients(redis: Redis) -> None:
    config = LockConfig(lease=timedelta(seconds=10), renew_interval=1, client_name="web", on_event=print)
    async with LockClient(redis, config=config) as locks:
        assert_type(locks, LockClient)
        assert_type(locks.lock("orders"), AsyncRLock)
        assert_type(locks.lock("orders", owner="job-17"), AsyncRLock)
        assert_type(locks.statistics(), ClientStatistics)
        assert_type(locks.activity(), list[LockActivity])
    assert_type(LockClient.from_url("redis://localhost", config=config, db=3), LockClient)
    await LockClient(redis).aclose()


async def locks_and_leases(lock: AsyncRLock) -> None:
    assert_type(await lock.acquire(), Lease)
    assert_type(await lock.acquire(lease=timedelta(seconds=1)), Lease)
    assert_type(await lock.try_lock(), Lease | None)
    assert_type(await lock.try_lock(1, 2.5), Lease | None)
    assert_type(await lock.try_lock(at_least=5), Lease | None)
    assert_type(await lock.try_lock(wait=None, lease=timedelta(seconds=1)), Lease | None)
    assert_type(lock.hold(wait=1, lease=2), HeldLock)
    async with lock as lease:
        assert_type(lease, Lease)
    async with lock.hold(2, 10) as lease:
        assert_type(lease, Lease)
    await lock.release()
    assert_type(lock.name, str)
    assert_type(await lock.locked(), bool)
    assert_type(await lock.held(), bool)
    assert_type(await lock.hold_count(), int)
    assert_type(await lock.remaining(), float | None)
    assert_type(await lock.force_release(), bool)
    assert_type(await lock.force_release(token=7), bool)
    await lock.force_release(token=None)  # type: ignore[arg-type]
    assert_type(await lock.holder(), Holder | None)
    assert_type(lock.statistics(), LockStatistics)


async def a_walrus(lock: AsyncRLock) -> int:
    if lease := await lock.try_lock(wait=2, lease=10):
        return assert_type(lease, Lease).token
    return 0


async def a_body_that_may_be_cancelled_does_not_swallow_errors(lock: AsyncRLock) -> int:
    async with lock as lease:
        # A checker reports no "missing return" after it: the scope hides no exception.
        return lease.token


async def leases(lease: Lease) -> None:
    assert_type(lease.name, str)
    assert_type(lease.token, int)
    assert_type(lease.lease, float)
    assert_type(lease.remaining, float)
    assert_type(lease.holds, int)
    assert_type(lease.watched, bool)
    assert_type(lease.given_back, bool)
    lost = lease.lost
    assert_type(lost.is_set(), bool)
    losses: list[Loss] = [lost]
    assert losses
    assert_type(await lease.lost, Reason)
    await lease.renew()
    await lease.renew(timedelta(seconds=1))
    await lease.release()
    lease.check()


def decorated(locks: LockClient) -> None:
    @locks.synchronized("order:{order_id}", wait=1, lease=timedelta(seconds=2))
    async def ship(order_id: int, *, region: str = "eu") -> list[str]:
        return [region] * order_id

    class Shop:
        @locks.synchronized("{order_id}")
        async def ship(self, order_id: int) -> str:
            return str(order_id)

    async def calls() -> None:
        assert_type(await ship(1, region="us"), list[str])
        assert_type(await Shop().ship(2), str)
        await ship("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        await ship(1, "us")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        await ship(1, depot="x")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]

    _: Callable[[], Coroutine[Any, Any, None]] = locks.synchronized("calls")(calls)

    def plain(order_id: int) -> None: ...

    locks.synchronized("{order_id}")(plain)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def conducted(locks: LockClient) -> None:
    @locks.synchronized("calls", busy="skip", on_unavailable="run")
    async def perhaps(number: int) -> bytes:
        return bytes(number)

    assert_type(await perhaps(1), bytes | None)
    assert_type(await locks.synchronized("calls", busy="raise", on_unavailable="refuse")(make)(), bytes)
    locks.synchronized("calls", busy="wait")  # type: ignore[call-overload]  # pyright: ignore
    locks.synchronized("calls", on_unavailable="skip")  # type: ignore[call-overload]  # pyright: ignore
    _: Callable[[], Coroutine[Any, Any, bytes]] = locks.synchronized("a", busy="skip")(make)  # type: ignore[assignment]  # pyright: ignore


async def kept(locks: LockClient) -> None:
    assert_type(locks.lock("orders").hold(at_least=timedelta(seconds=1)), HeldLock)
    _: Callable[[], Coroutine[Any, Any, bytes]] = locks.synchronized("calls", at_least=1)(make)
    locks.read_write_lock("a").read.hold(at_least=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


async def make() -> bytes:
    return b""


async def once(locks: LockClient) -> None:
    async def write(number: int, *, text: str) -> str:
        return text * number

    async def nothing() -> None: ...

    async def count() -> int:
        return 1

    once = locks.once("report", keep=timedelta(days=1), wait=0, failures="remember")
    assert_type(once, AsyncOnce)
    assert_type(await once.run(make), bytes | None)
    assert_type(await once.run(write, 2, text="a"), str | None)
    await once.run(nothing)
    async with once as turn:
        assert_type(turn, Turn)
        assert_type(turn.lease, Lease | None)
        assert_type(turn.failure, str | None)
        turn.result = b"done" if turn else "not"
    fresh = locks.once("token", keep=lambda token: len(token) - 30, stale=timedelta(minutes=1), on_unavailable="run")
    async with fresh as turn:
        assert_type((turn.stale, turn.bypassed), tuple[bool, bool])
    slot = await locks.slot("nightly", every=3600)
    assert_type(slot, Slot)
    assert_type((slot.name, slot.number, slot.remaining), tuple[str, int, float])
    await once.run(count)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    await once.run(write, "2", text="a")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    locks.once("report")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    locks.once("a", keep=1, failures="retry")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def leaders(locks: LockClient) -> None:
    leader = locks.leader("scheduler", pause=2)
    assert_type(leader, AsyncLeader)
    async with leader as term:
        assert_type(term, Term)
        assert_type(term.token, int)
        assert_type(await term.lost, Reason)
        assert_type(await term.start(make()), bytes)
    async for term in leader:
        assert_type(term, Term)
        await term.run(make(), make())
    await leader.run(lead)
    assert_type(await leader.try_lead(), Term | None)
    assert_type(await leader.try_lead(wait=timedelta(seconds=1)), Term | None)
    term.step_down()
    assert_type(await leader.holder(), Holder | None)
    _ = term.start(make)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def lead(term: Term) -> None:
    term.check()


def errors(lost: LeaseLostError, late: LockTimeoutError, not_held: NotHeldError) -> None:
    assert_type(lost.reason, LossReason)
    assert_type(lost.reason, Reason)
    assert_type((lost.name, lost.token), tuple[str, int])
    assert_type((late.name, late.waited), tuple[str, float])
    assert_type((not_held.name, not_held.owner, not_held.holder), tuple[str, str, Holder | None])
    builtin: list[TimeoutError | RuntimeError] = [late, not_held]
    assert builtin


def events(event: LockEvent) -> str | None:
    match event:
        case aiolock.Acquired(name=name, waited=waited):
            return f"{name} {assert_type(waited, float)}"
        case aiolock.Lost(reason=reason):
            return assert_type(reason, Reason)
        case _:
            return None


def refused(lock: AsyncRLock, locks: LockClient, event: aiolock.Acquired) -> None:
    lock.hold(wait="2")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    locks.lock(7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    locks.lock("orders", "job-17")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    LockConfig("prefix")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    event.token = 1  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


async def beside(lease: Lease) -> None:
    def write(lease: Lease, *, times: int) -> list[str]:
        return [lease.name] * times

    async def work() -> int:
        return 1

    async with aiolock.background(work(), work()) as nothing:
        assert_type(nothing, None)
        assert_type(await aiolock.to_thread(write, lease, times=2), list[str])
    await aiolock.to_thread(write, lease)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    aiolock.background(work)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def words_of_redis_py(locks: LockClient, lock: AsyncRLock, lease: Lease) -> None:
    locks.lock("a", timeout=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await lock.acquire(blocking=False)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    lock.hold(timeout=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await lease.extend(1)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]


async def behind(locks: LockClient, event: LockEvent) -> None:
    config = LockConfig(release="behind")
    assert_type(config.release, Literal["answered", "behind"])
    LockConfig(release="later")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type(locks.lock("orders").hold(release="behind"), HeldLock)
    assert_type(locks.fair_lock("orders").hold(release="answered"), HeldLock)
    assert_type(locks.read_write_lock("orders").write.hold(release="behind"), HeldLock)
    assert_type(locks.semaphore("seats").hold(release="behind"), HeldSemaphore)
    assert_type(locks.multi("a", "b").hold(release="behind"), HeldMultiLock)
    locks.counting_semaphore("seats").hold(release="behind")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    locks.lock("orders").hold(release="later")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    _: Callable[[], Coroutine[Any, Any, bytes]] = locks.synchronized("calls", release="behind")(make)
    assert_type(locks.statistics().losses_behind, int)
    if isinstance(event, Lost):
        assert_type(event.behind, bool)
