"""AsyncMultiLock: several locks as one, all of them or none."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from time import monotonic
from typing import Any

import pytest
from redis.asyncio import Redis

from aiolock import (
    Acquired,
    AsyncMultiLock,
    BackendError,
    LeaseLostError,
    LockClient,
    LockConfig,
    LockEvent,
    LockTimeoutError,
    MultiLease,
    NotALockError,
    NotHeldError,
    Released,
)
from aiolock._backend import Call
from aiolock._embedded_server import Server
from aiolock._primitives.multi import lock as _multi
from aiolock._scripts import ACQUIRE, RELEASE, RENEW
from aiolock.testing import Fault, around
from tests.support.inside import hold_of
from tests.support.observe import answered, until
from tests.support.proxy import Action, Proxy, Rule, drop_reply, reset, script
from tests.support.waiters import waits_quietly

LONG = 10.0


@pytest.fixture
def three(locks: LockClient) -> AsyncMultiLock:
    return locks.multi("c", "a", "b")


@pytest.fixture
async def elsewhere(server: Server) -> AsyncIterator[LockClient]:
    """A client of another server."""
    with Server(server._executable) as second:
        async with LockClient.from_url(second.url) as client:
            yield client


async def held(redis: Redis) -> list[str]:
    """The locks that anybody holds, in their order."""
    keys: list[bytes] = await redis.keys()  # type: ignore[assignment]
    return sorted(key.decode() for key in keys if not key.startswith(b"aiolock_"))


async def counts(redis: Redis, *names: str) -> list[int]:
    """The hold counts of these locks on the server."""
    found = []
    for name in names:
        fields: dict[bytes, bytes] = await redis.hgetall(name)  # type: ignore[assignment]
        found.append(sum(int(count) for field, count in fields.items() if not field.startswith(b"aiolock:")))
    return found


async def waits_for(client: LockClient, name: str) -> None:
    """Return when a task of *client* waits for *name*, and nothing of it is under way."""
    await until(lambda: waits_quietly(client, client.lock(name)))


# Members of several kinds.


async def test_members_may_be_read_and_write_locks(locks: LockClient, other: LockClient, redis: Redis) -> None:
    """A task may want a report to read, an account to write and a plain lock: all or none."""
    report, account = locks.read_write_lock("report"), locks.read_write_lock("account")
    theirs = other.read_write_lock("report")
    three = locks.multi(report.read, account.write, "plain")
    assert three.names == ("account", "plain", "report")
    async with theirs.read, three as lease:
        assert set(lease.tokens) == {"account", "plain", "report"}
        assert await three.held()
        assert await other.read_write_lock("account").read.try_lock() is None
        async with three.hold(wait=10):
            assert await report.read.hold_count() == await account.write.hold_count() == 2
    async with theirs.write:
        assert await three.try_lock() is None
        assert await account.write.holder() is None
        assert not await locks.lock("plain").locked()
    assert await three.try_lock() is not None
    await three.release()
    assert [key for key in await held(redis) if "rwlock_timeout" in key] == []


async def test_writers_of_two_names_in_any_order_do_not_deadlock(locks: LockClient, other: LockClient) -> None:
    async def work(client: LockClient, first: str, second: str) -> None:
        for number in range(20):
            one, two = client.read_write_lock(first), client.read_write_lock(second)
            async with client.multi(one.write, two.read if number % 2 else two.write):
                await asyncio.sleep(0)

    async with asyncio.timeout(40), asyncio.TaskGroup() as group:
        for client in (locks, other):
            for order in (("a", "b"), ("b", "a")):
                for _ in range(4):
                    group.create_task(work(client, *order))


async def test_both_halves_of_one_lock_are_refused(locks: LockClient) -> None:
    lock = locks.read_write_lock("report")
    with pytest.raises(ValueError, match="'report'> has the name or the key of another lock"):
        locks.multi(lock.read, lock.write)
    assert locks.multi(lock.read, locks.read_write_lock("report").read).names == ("report",)


# Permits among the members.


async def test_a_member_may_be_permits(locks: LockClient, other: LockClient, redis: Redis) -> None:
    """The handle of a semaphore says how many permits; the other members are locks, in one order with them."""
    seats = locks.semaphore("b", 3)
    many = locks.multi("c", seats.taking(2), locks.read_write_lock("a").read)
    assert many.names == ("a", "b", "c")
    async with many as lease:
        assert lease.tokens.keys() == {"a", "b", "c"}
        assert (await seats.available(), await many.held(), await many.locked()) == (1, True, True)
        assert {name: [each.holds for each in who] for name, who in (await many.holders()).items()} == {
            "a": [1],
            "b": [2],
            "c": [1],
        }
        assert await other.multi("x", other.semaphore("b").taking(2)).try_lock() is None
        assert not await other.lock("x").locked()
    assert await held(redis) == ["b"], "only the number of permits stays"
    assert (await seats.available(), await many.held(), await many.locked()) == (3, False, False)


async def test_permits_among_them_cost_no_round_trip_more(locks: LockClient) -> None:
    many = locks.multi("a", locks.semaphore("b", 4).taking(2), "c")
    async with many:
        pass
    for act in (many.acquire, many.acquire, many.release, many.release):
        before = locks.statistics()
        await act()
        after = locks.statistics()
        assert (after.batches - before.batches, after.commands - before.commands) == (1, 3)


async def test_a_waiter_for_permits_has_the_locks_before_them_and_none_behind(
    locks: LockClient, other: LockClient, redis: Redis
) -> None:
    theirs = await other.semaphore("b", 2).acquire()
    mine = locks.semaphore("b", 2).taking(2)
    waiting = asyncio.create_task(_hold(locks.multi("a", mine, "c")))
    await until(lambda: waits_quietly(locks, mine))
    assert await held(redis) == ["a", "b", "{b}:timeout"]
    with pytest.raises(LockTimeoutError, match="'b'"):
        await _waits_for_a_moment(locks.multi("0", mine))
    assert not await locks.lock("0").locked()
    await theirs.release()
    await waiting
    assert await held(redis) == ["b"]
    assert await mine.available() == 2


async def _waits_for_a_moment(many: AsyncMultiLock) -> None:
    async with many.hold(wait=0.05):
        pass


async def test_the_permits_that_were_acquired_last_are_given_back(locks: LockClient) -> None:
    seats = locks.semaphore("b", 4)
    one = locks.multi("a", seats)
    two = locks.multi("a", seats.taking(2))
    await one.acquire()
    await two.acquire()
    assert (await one.hold_count(), await seats.available()) == (2, 1)
    await one.release()
    assert (await one.hold_count(), await seats.available()) == (1, 3)
    await two.release()
    assert (await one.hold_count(), await seats.available()) == (0, 4)
    with pytest.raises(NotHeldError):
        await two.release()


async def test_no_two_wait_for_each_other_with_permits_among_them(locks: LockClient, other: LockClient) -> None:
    """Tasks want locks and three of four permits, in any order; others want a single permit."""
    inside = 0

    async def work(client: LockClient, *names: str) -> None:
        nonlocal inside
        for _ in range(5):
            permits = client.semaphore("b", 4).taking(3)
            async with client.multi(*(permits if name == "b" else name for name in names)).hold(wait=LONG):
                inside += 1
                assert inside == 1
                await asyncio.sleep(0)
                inside -= 1

    async def alone(client: LockClient) -> None:
        for _ in range(5):
            async with client.semaphore("b", 4).hold(wait=LONG):
                await asyncio.sleep(0)

    async with asyncio.timeout(3 * LONG), asyncio.TaskGroup() as tasks:
        for client in (locks, other):
            for names in (("a", "b"), ("b", "a"), ("c", "b"), ("b", "c")):
                tasks.create_task(work(client, *names))
            tasks.create_task(alone(client))
    assert await locks.semaphore("b").available() == 4


# All or none.


async def test_while_all_are_free_they_cost_one_round_trip(locks: LockClient) -> None:
    names = [f"name {number}" for number in range(10)]
    many = locks.multi(*names)
    async with many:
        pass
    for act in (many.acquire, many.acquire, many.release, many.release):
        before = locks.statistics()
        await act()
        after = locks.statistics()
        assert (after.batches - before.batches, after.commands - before.commands) == (1, 10)


async def test_a_lock_that_is_taken_leaves_no_hold_of_the_others(
    locks: LockClient, three: AsyncMultiLock, other: LockClient, redis: Redis
) -> None:
    async with other.lock("b"):
        assert await three.try_lock() is None
        assert await three.try_lock(wait=0.05, lease=3) is None
        # The wait may have ended before the answers came.
        await answered(locks)
        assert await held(redis) == ["b"]
        with pytest.raises(LockTimeoutError, match="'b'") as raised:
            async with three.hold(wait=0.5):
                pass
        assert raised.value.name == "b"
        # A timer may ring a little early: uvloop rounds to milliseconds.
        assert raised.value.waited > 0.4
        await answered(locks)
        assert await held(redis) == ["b"]
    assert await three.try_lock() is not None


async def test_a_waiter_for_one_has_those_before_it_and_none_behind(
    locks: LockClient, three: AsyncMultiLock, other: LockClient, redis: Redis
) -> None:
    blocking = await other.lock("b", owner="somebody").acquire()

    async def take() -> list[str]:
        async with three:
            return await held(redis)

    waiting = asyncio.create_task(take())
    await waits_for(locks, "b")
    assert await held(redis) == ["a", "b"]
    last = await other.lock("c", owner="somebody").try_lock()
    assert last is not None
    await blocking.release()
    await waits_for(locks, "c")
    assert await held(redis) == ["a", "b", "c"]
    await last.release()
    assert await waiting == ["a", "b", "c"]
    assert await held(redis) == []


async def test_a_lock_that_our_own_client_has_is_waited_for_before_others_are_asked_for(
    locks: LockClient, three: AsyncMultiLock, redis: Redis
) -> None:
    blocking = await locks.lock("a", owner="somebody").acquire()
    waiting = asyncio.create_task(_hold(three))
    await waits_for(locks, "a")
    assert not await redis.exists("aiolock_token:{b}", "aiolock_token:{c}"), "a later member was granted too early"
    await blocking.release()
    await waiting


@pytest.mark.parametrize("orders", [["ab", "ba"], ["ab", "bc", "cd", "de", "ea"]], ids=["two", "ring of five"])
async def test_no_two_wait_for_each_other(locks: LockClient, other: LockClient, orders: list[str]) -> None:
    """Tasks of two clients, each with its own order; plain locks of the same names are among them."""
    inside: set[str] = set()

    async def work(client: LockClient, names: str) -> None:
        for _ in range(5):
            async with client.multi(*names).hold(wait=LONG):
                assert not inside & set(names)
                inside.update(names)
                await asyncio.sleep(0)
                inside.difference_update(names)

    async def plainly(client: LockClient, name: str) -> None:
        for _ in range(5):
            async with client.lock(name).hold(wait=LONG):
                assert name not in inside
                inside.add(name)
                await asyncio.sleep(0)
                inside.remove(name)

    async with asyncio.timeout(3 * LONG), asyncio.TaskGroup() as tasks:
        for client in (locks, other):
            for names in orders:
                tasks.create_task(work(client, names))
                tasks.create_task(plainly(client, names[0]))


async def test_a_foreign_key_or_an_unanswered_call_leaves_no_hold(
    locks: LockClient, three: AsyncMultiLock, redis: Redis
) -> None:
    await redis.set("b", "something else")
    with pytest.raises(NotALockError, match="'b'"):
        await three.acquire()
    await answered(locks)
    assert await held(redis) == ["b"]
    async with locks.lock("a", owner="somebody"):
        with pytest.raises(NotALockError):
            await locks.multi("a", "aa", "b").try_lock()
    await answered(locks)
    assert await held(redis) == ["b"]


async def _hold(many: AsyncMultiLock, lease: float | None = None) -> None:
    async with many.hold(lease=lease):
        pass


# Reentrant, and owned.


async def test_it_is_reentrant_as_its_members_are(locks: LockClient, three: AsyncMultiLock, redis: Redis) -> None:
    async with locks.lock("b"), three:
        assert await counts(redis, "a", "b", "c") == [1, 2, 1]
        async with three, locks.lock("c"), locks.multi("c", "d"):
            assert await counts(redis, "a", "b", "c", "d") == [2, 3, 4, 1]
        assert await counts(redis, "a", "b", "c", "d") == [1, 2, 1, 0]
    assert await held(redis) == []


async def test_an_owner_that_does_not_hold_all_releases_none(
    locks: LockClient, three: AsyncMultiLock, redis: Redis
) -> None:
    async with locks.lock("a"), locks.lock("c"):
        with pytest.raises(NotHeldError, match="'b'"):
            await three.release()
        assert await held(redis) == ["a", "c"]


async def test_members_may_be_of_several_clients(locks: LockClient, elsewhere: LockClient, redis: Redis) -> None:
    both = locks.multi("a", elsewhere.lock("b"))
    async with both as lease:
        assert await locks.lock("a").held()
        assert await elsewhere.lock("b").held()
        assert lease.tokens.keys() == {"a", "b"}
    assert await held(redis) == []
    assert not await elsewhere.lock("b").locked()
    async with elsewhere.lock("b", owner="somebody"):
        assert await both.try_lock() is None
        assert await held(redis) == []


# Bad input.


@pytest.mark.parametrize(
    ("members", "error"),
    [
        (lambda one, two: [], ValueError),
        (lambda one, two: ["a", ""], ValueError),
        (lambda one, two: ["a", 7], TypeError),
        (lambda one, two: ["a", one.multi("b")], TypeError),
        (lambda one, two: ["a", two.lock("a")], ValueError),
        (lambda one, two: ["a", one.lock("a", owner="x")], ValueError),
        (lambda one, two: ["a", one.semaphore("a", 1)], ValueError),
        (lambda one, two: [one.semaphore("a", 3).taking(n) for n in (1, 2)], ValueError),
        (lambda one, two: ["a", one.counting_semaphore("b", 1)], TypeError),
        (lambda one, two: ["a", one.read_write_lock("b")], TypeError),
        (lambda one, two: ["a", one.count_down_latch("b")], TypeError),
    ],
    ids=[
        *("none", "empty", "no lock", "a multi lock", "two clients", "two owners", "a lock and permits", "two numbers"),
        *("permits without a lease", "two halves", "a latch"),
    ],
)
async def test_impossible_members_are_refused(
    locks: LockClient, other: LockClient, members: Callable[[LockClient, LockClient], Sequence[Any]], error: Any
) -> None:
    with pytest.raises(error):
        locks.multi(*members(locks, other))


async def test_names_that_are_the_same_lock_count_once(locks: LockClient, redis: Redis) -> None:
    """A transfer from an account to itself has such names."""
    async with locks.multi("a", "a", locks.lock("a")) as lease:
        assert list(lease.tokens) == ["a"]
        assert await counts(redis, "a") == [1]


async def test_one_key_under_two_names_is_refused(redis: Redis, locks: LockClient) -> None:
    prefixed = LockClient(redis, config=LockConfig(prefix="a:"))
    with pytest.raises(ValueError, match="has the name or the key of another lock"):
        locks.multi("a:b", prefixed.lock("b"))
    with pytest.raises(ValueError, match="has the name or the key of another lock"):
        locks.multi("b", prefixed.lock("b"))


async def test_durations_are_checked(three: AsyncMultiLock, redis: Redis) -> None:
    for arguments in ({"wait": -1}, {"lease": 0}, {"wait": True}):
        with pytest.raises((ValueError, TypeError)):
            await three.try_lock(**arguments)
        with pytest.raises((ValueError, TypeError)):
            three.hold(**arguments)
    assert await held(redis) == []


# The lease.


async def test_the_lease_is_that_of_all(three: AsyncMultiLock, other: LockClient) -> None:
    async with three as lease:
        assert lease.tokens == {name: one.token for name, one in lease.leases.items()}
        assert lease.lease == 30
        assert 28 < lease.remaining <= 30
        assert not lease.lost.is_set()
        lease.check()
        await lease.renew(60)
        assert all(one.remaining > 50 for one in lease.leases.values())
        tokens = dict(lease.tokens)
    with pytest.raises(NotHeldError):
        lease.check()
    async with three as again:
        assert all(again.tokens[name] > token for name, token in tokens.items())


async def test_a_lease_gives_all_back(three: AsyncMultiLock, redis: Redis) -> None:
    lease = await three.acquire()
    await asyncio.create_task(lease.release())
    assert await held(redis) == []
    with pytest.raises(NotHeldError):
        await lease.release()
    async with await three.acquire() as lease:
        assert await held(redis) == ["a", "b", "c"]
        with pytest.raises(RuntimeError, match="in a block already"):
            async with lease:
                pass
    assert await held(redis) == []


async def test_a_release_that_one_member_refuses_releases_none(locks: LockClient, redis: Redis) -> None:
    async with locks.lock("a"):
        lease = await locks.lock("b").acquire()
        with pytest.raises(RuntimeError, match="lock 'a': every hold of the owner is in a block"):
            await locks.multi("a", "b").release()
        assert await held(redis) == ["a", "b"]
        lease.check()
        await lease.release()


async def test_a_lease_is_as_long_as_was_asked_for_also_after_a_long_wait(
    locks: LockClient, three: AsyncMultiLock, other: LockClient, redis: Redis
) -> None:
    """The grants before the member that is waited for are kept, and all leases begin when the last is granted."""
    lease = 2.0
    blocking, released = await other.lock("b", owner="somebody").acquire(), math.inf

    async def take() -> MultiLease:
        async with three.hold(wait=LONG, lease=lease) as granted:
            assert not any(one.watched for one in granted.leases.values())
            assert all(hold_of(one).expires > released + lease - 0.01 for one in granted.leases.values())
            return granted

    waiting = asyncio.create_task(take())
    await waits_for(locks, "b")
    token = await redis.hget("a", "aiolock:token")
    for _ in range(13):
        await asyncio.sleep(lease / 10)
        assert await redis.hget("a", "aiolock:token") == token, "the grant was lost meanwhile"
    released = monotonic()
    await blocking.release()
    assert (await waiting).tokens["a"] == int(token or 0)


class TooFewReplicas(Fault):
    """One renewal reaches too few replicas."""

    hit = False

    def submit(self, call: Call) -> None:
        if call.script is RENEW and not self.hit:
            self.hit, call.short = True, (0, 1)
        super().submit(call)


@pytest.mark.slow
async def test_a_renewal_that_fails_meanwhile_is_made_good_by_the_next(
    locks: LockClient, three: AsyncMultiLock, other: LockClient, redis: Redis
) -> None:
    lease = 2.0
    blocking = await other.lock("b", owner="somebody").acquire()
    waiting = asyncio.create_task(_hold(three, lease))
    await waits_for(locks, "b")
    token = await redis.hget("a", "aiolock:token")
    with around(locks, TooFewReplicas) as fault:
        await until(lambda: fault.hit)
    for _ in range(15):
        await asyncio.sleep(lease / 10)
        assert await redis.hget("a", "aiolock:token") == token, "the grant was lost meanwhile"
    await blocking.release()
    await waiting


async def test_a_refused_lock_is_waited_for_before_later_ones_are_asked_for(
    locks: LockClient, other: LockClient
) -> None:
    """Otherwise all later members would be taken and given back once for each wait."""
    names = [f"name {number:02}" for number in range(40)]
    taken = [await other.lock(name, owner="somebody").acquire() for name in names[::5]]
    before = locks.statistics().commands
    waiting = asyncio.create_task(_hold(locks.multi(*names)))
    for lease in taken:
        await waits_for(locks, lease.name)
        await lease.release()
    await waiting
    assert locks.statistics().commands - before < 5 * len(names)


async def test_a_member_that_is_lost_during_the_wait_for_another_is_asked_for_again(
    locks: LockClient, three: AsyncMultiLock, other: LockClient, redis: Redis
) -> None:
    blocking = await other.lock("b", owner="somebody").acquire()

    async def take() -> list[int]:
        async with three:
            return await counts(redis, "a", "b", "c")

    waiting = asyncio.create_task(take())
    await waits_for(locks, "b")
    assert await locks.lock("a").force_release()
    await blocking.release()
    assert await waiting == [1, 1, 1]
    assert await held(redis) == []


async def test_a_member_that_is_lost_again_and_again_is_an_error(
    locks: LockClient, three: AsyncMultiLock, other: LockClient, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_multi, "_MOST_LOSSES", 1)
    blocking = await other.lock("b", owner="somebody").acquire()
    waiting = asyncio.create_task(_hold(three))
    await waits_for(locks, "b")
    assert await locks.lock("a").force_release()
    await blocking.release()
    with pytest.raises(LeaseLostError, match="'a'"):
        await waiting
    await answered(locks)
    assert await held(redis) == []


async def test_every_grant_that_is_told_of_is_told_of_when_it_ends(redis: Redis, other: LockClient) -> None:
    events: list[LockEvent] = []
    async with LockClient(redis, config=LockConfig(on_event=events.append)) as client:
        many = client.multi("a", "b", "c")
        async with other.lock("b"):
            assert await many.try_lock(wait=0.01) is None
        async with other.lock("b"):
            waiting = asyncio.create_task(_hold(many))
            await waits_for(client, "b")
            waiting.cancel()
            await asyncio.wait([waiting])
        async with many:
            pass
    acquired = sorted(event.token for event in events if isinstance(event, Acquired))
    released = sorted(event.token for event in events if isinstance(event, Released))
    assert acquired == released
    # Two are of a and c, beside the one that was taken, two of the same once more, and three of all.
    assert len(acquired) == 2 + 2 + 3


# Faults on the way.


@pytest.mark.parametrize("how", [drop_reply, reset], ids=["reply dropped", "request lost"])
async def test_a_member_that_is_lost_on_its_way_counts_once(
    proxy: Proxy, through: Redis, redis: Redis, how: Callable[[], Action]
) -> None:
    async with LockClient(through) as client:
        many = client.multi("a", "b", "c")
        async with many:
            pass
        for harmed, act, left in (
            (ACQUIRE, many.acquire, [1, 1, 1]),
            (ACQUIRE, many.acquire, [2, 2, 2]),
            (RELEASE, many.release, [1, 1, 1]),
            (RELEASE, many.release, [0, 0, 0]),
        ):
            rule = proxy.install(Rule(script(harmed), how(), times=2))
            await act()
            await rule.caught()
            proxy.clear_rules()
            await answered(client)
            assert await counts(redis, "a", "b", "c") == left


# A loss.


async def lose(many: AsyncMultiLock, *names: str, client: LockClient) -> tuple[list[str], BaseException | None]:
    """The life of a body whose locks *names* are taken away, and the error that leaves it."""
    seen: list[str] = []
    inside = asyncio.Event()

    async def work() -> None:
        try:
            async with many as lease:
                inside.set()
                try:
                    await asyncio.sleep(LONG)
                except asyncio.CancelledError:
                    seen.append("cancelled")
                    # This stands for a rollback.
                    await asyncio.sleep(0)
                    seen.append("rolled back")
                    with pytest.raises(LeaseLostError):
                        lease.check()
                    raise
        finally:
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0
            await asyncio.sleep(0)

    task = asyncio.create_task(work())
    await inside.wait()
    assert all(await asyncio.gather(*(client.lock(name).force_release() for name in names)))
    await asyncio.wait([task], timeout=LONG)
    return seen, task.exception()


@pytest.mark.parametrize("names", ["a", "b", "c", "ac", "cba"])
async def test_the_loss_of_one_ends_the_body_once_and_gives_the_others_back(
    locks: LockClient, three: AsyncMultiLock, redis: Redis, names: str
) -> None:
    seen, error = await lose(three, *names, client=locks)
    assert seen == ["cancelled", "rolled back"]
    assert isinstance(error, LeaseLostError)
    assert (error.name in names, error.reason) == (True, "forced")
    assert await held(redis) == []
    assert locks.statistics().held == 0


async def test_the_loss_is_told_to_its_waiters(locks: LockClient, three: AsyncMultiLock) -> None:
    lease = await three.acquire()

    async def waits() -> str:
        return await lease.lost

    waiting = asyncio.create_task(waits())
    await asyncio.sleep(0)
    await locks.lock("b").force_release()
    assert await waiting == "forced"
    assert lease.lost.is_set()
    with pytest.raises(LeaseLostError, match="'b'"):
        lease.check()
    with pytest.raises(LeaseLostError, match="'b'"):
        await lease.release()
    assert not await three.locked(), "the other members were given back"
    with pytest.raises(LeaseLostError, match="'b'"):
        lease.check()


async def test_an_error_of_the_body_is_not_masked(three: AsyncMultiLock, locks: LockClient, redis: Redis) -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        async with three:
            await redis.delete("b")
            raise ZeroDivisionError
    assert any("'b'" in note for note in raised.value.__notes__)
    assert await held(redis) == []


async def test_a_loss_that_only_the_release_hears_of_is_raised(three: AsyncMultiLock, redis: Redis) -> None:
    with pytest.raises(LeaseLostError, match="'b'"):
        async with three:
            await redis.delete("b")
    assert await held(redis) == []


async def test_a_cancellation_of_the_users_own_stays_one(three: AsyncMultiLock, redis: Redis) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(None) as timeout, three:
            timeout.reschedule(0)
            await asyncio.sleep(LONG)
    assert await held(redis) == []


async def test_an_exit_stack_and_a_shared_handle_leave_their_own_blocks(three: AsyncMultiLock, redis: Redis) -> None:
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(three)
        async with three:
            assert await counts(redis, "a", "b", "c") == [2, 2, 2]
        assert await counts(redis, "a", "b", "c") == [1, 1, 1]
    assert await held(redis) == []


async def test_a_release_that_gets_no_answer_leaves_the_others_released(
    locks: LockClient, elsewhere: LockClient, redis: Redis
) -> None:
    """One of two servers is gone."""
    gone = Server()
    config = LockConfig(command_timeout=10, release_timeout=0.2)
    with gone:
        client = LockClient.from_url(gone.url, config=config)
        lease = await locks.multi("b", client.lock("a")).acquire()
    with pytest.raises(BackendError):
        await lease.release()
    assert await held(redis) == []
    await client.aclose()


async def test_the_statistics_of_the_names_are_added_up(locks: LockClient, three: AsyncMultiLock) -> None:
    assert three.statistics().held == 0
    async with three:
        assert three.statistics().held == 3
        waiting = asyncio.create_task(_hold(locks.multi("b", "c")))
        await waits_for(locks, "b")
        assert (three.statistics().parked, three.statistics().subscriptions) == (1, 1)
    await waiting
    assert repr(three) == "<AsyncMultiLock 'a', 'b', 'c'>"


async def test_questions_go_to_all_members(locks: LockClient, three: AsyncMultiLock, other: LockClient) -> None:
    assert (await three.hold_count(), await three.remaining()) == (0, None)
    assert await three.holders() == {"a": [], "b": [], "c": []}
    async with three.hold(lease=20), three.hold(lease=50), locks.lock("b"):
        assert await three.hold_count() == 2
        left = await three.remaining()
        assert left is not None
        assert 40 < left <= 50
        who = await other.multi("a", "b").holders()
        assert {name: [each.holds for each in held] for name, held in who.items()} == {"a": [2], "b": [3]}
        assert await other.multi("a", "b").hold_count() == 0
    async with locks.lock("c").hold(lease=5):
        left = await three.remaining()
        assert left is not None
        assert (await three.hold_count(), 4 < left <= 5) == (0, True)
    seats = locks.semaphore("d", 2)
    async with seats.hold(lease=5), locks.lock("a").hold(lease=2):
        assert await locks.multi(seats).remaining() is None, "one permit is left"
        left = await locks.multi("a", seats.taking(2)).remaining()
        assert left is not None
        assert 4 < left <= 5
