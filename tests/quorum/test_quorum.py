"""Locks that a majority of three servers keeps: their promises while all servers are well, and the refusals."""

import asyncio
import logging
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from itertools import permutations

import pytest
from redis.asyncio import Redis, RedisCluster
from redis.asyncio.sentinel import Sentinel

from aiolock import LeaseLostError, LockClient, LockConfig, LockEvent, NotAcquired, QuorumError
from aiolock._backend import Call
from aiolock._cli.doctor.facts import Facts
from aiolock._cli.doctor.quorum import Member, judge
from aiolock._cli.doctor.report import report_on_quorum
from aiolock._config import Timing
from aiolock._embedded_server import Server
from aiolock._keys import QUORUM_KEY
from aiolock._redis.quorum import member as quorum_member
from aiolock._redis.quorum.backend import QuorumBackend
from aiolock._redis.quorum.election import Clock, Election, Longest
from aiolock._redis.quorum.fold import FOLDS
from aiolock._redis.quorum.poll import _MOMENTS, Question
from aiolock._scripts import INSPECT, LOCK, QUORUM_ACQUIRE, RAISE
from aiolock._scripts.replies import Abstains, Granted, Lost, NotALock, Refused, SeenHold, Stale, Vote
from tests.contract.acts import check_that_messages_wake, is_untouched, nothing_under_way, section, waiting
from tests.contract.kinds import KINDS, NAME, Kind, Lock, Multi
from tests.quorum.several import (
    everywhere,
    let_token_be,
    remember,
    run_id,
    token_of,
    who_has,
)
from tests.support.cancellation import MODES, Mode, Outcome, every_suspension
from tests.support.inside import keys_of, session_of
from tests.support.observe import answered, asked_in_a_thread, renewed, until
from tests.support.ports import reserved_port
from tests.support.proxy import Proxy, Request, Rule, drop_reply, hold, script, slow_reply, withhold_reply

TIMING = Timing.of(LockConfig())
KEPT = tuple(kind for kind in KINDS if isinstance(kind, Lock | Multi))
each_kind = pytest.mark.parametrize("kind", KEPT, ids=repr)


# The contract.


@each_kind
async def test_a_waiter_is_woken_by_a_message(kind: Kind, locks: LockClient, other: LockClient) -> None:
    await check_that_messages_wake(kind, locks, other)
    await is_untouched(kind, other)


@each_kind
async def test_no_key_stays(kind: Kind, redises: list[Redis], locks: LockClient, other: LockClient) -> None:
    await check_that_messages_wake(kind, locks, other)
    await until(lambda: nothing_under_way(locks))
    for redis in redises:
        found: list[bytes] = await redis.keys("*")  # type: ignore[assignment]
        keys = {key.decode() for key in found} - {*kind.kept, QUORUM_KEY}
        assert all(key.startswith("aiolock_token:") for key in keys), keys
        assert all([await redis.pttl(key) > 0 for key in keys])


@each_kind
@pytest.mark.parametrize("mode", MODES)
async def test_cancelled_wherever_it_suspends(kind: Kind, mode: Mode, redises: list[Redis], other: LockClient) -> None:
    async def setup() -> LockClient:
        client = LockClient.redlock(redises)
        await client.ping()
        return client

    async def run(client: LockClient) -> None:
        async with kind.of(client):
            await asyncio.sleep(0)

    async def verify(client: LockClient, outcome: Outcome[None]) -> None:
        assert isinstance(outcome.error, asyncio.CancelledError | None)
        await until(lambda: nothing_under_way(client))
        await client.aclose()
        await is_untouched(kind, other)

    assert await every_suspension(mode, setup, run, verify) >= 1


@each_kind
@pytest.mark.parametrize("number", [1, 2, 3])
async def test_any_reply_is_lost(
    kind: Kind, number: int, proxies: list[Proxy], through: list[Redis], other: LockClient
) -> None:
    """Two servers of three get the acquire, its confirmation, and the release twice."""
    async with LockClient.redlock(through) as client:
        await client.ping()
        await until(lambda: client.statistics().pending == 0)
        for proxy in proxies[:2]:
            seen: list[Request] = []

            def is_the_one(request: Request, seen: list[Request] = seen) -> bool:
                if request.name in {b"EVALSHA", b"EVAL"} and kind.keys.lock.encode() in request.args:
                    seen.append(request)
                return len(seen) == number

            proxy.install(Rule(is_the_one, drop_reply()))
        taken = await kind.take(client, wait=10)
        assert taken
        await kind.give(client, taken)
        await until(lambda: nothing_under_way(client))
    await is_untouched(kind, other)


async def test_held_by_one_owner_and_again_by_it(redises: list[Redis], locks: LockClient, other: LockClient) -> None:
    lock = locks.lock("orders")
    async with lock as lease:
        assert sum(await who_has(redises, "orders")) >= 2
        assert await other.lock("orders").try_lock() is None
        async with lock as inner:
            assert inner.token == lease.token
            assert await lock.hold_count() == 2
        assert await lock.held()
        holder = await other.lock("orders").holder()
        assert holder is not None
        assert (holder.client, holder.pid, holder.holds) == (session_of(locks).client, os.getpid(), 1)
    assert not await other.lock("orders").locked()


async def test_force_release(locks: LockClient, other: LockClient) -> None:
    lease = await locks.lock("orders").acquire()
    with pytest.raises(TypeError, match="several independent servers"):
        await other.lock("orders").force_release(token=lease.token)
    assert await other.lock("orders").force_release()
    assert not await other.lock("orders").force_release()
    assert await other.lock("orders").try_lock()
    with pytest.raises(LeaseLostError):
        await lease.release()


async def test_many_tasks_cost_one_acquire_each(locks: LockClient) -> None:
    """Each server sends a message for one release, but the messages count once: no waiter is woken in vain."""
    sections = 100

    async def work() -> None:
        async with locks.lock("orders"):
            await asyncio.sleep(0)

    before = locks.statistics().commands
    await asyncio.gather(*(work() for _ in range(sections)))
    await until(lambda: nothing_under_way(locks))
    sent = locks.statistics().commands - before
    # The acquire and the release go to three servers each.
    assert sent <= sections * 3 * 2 * 1.3


# A majority has the lock.


async def test_a_key_on_one_server_hinders_no_acquire(redises: list[Redis], locks: LockClient) -> None:
    """The state that a client leaves if it dies between its servers."""
    await redises[0].hset("orders", "somebody:1", "1")
    await redises[0].expire("orders", 60)
    async with locks.lock("orders").hold(wait=0):
        assert (await who_has(redises, "orders"))[1:] == [True, True]
        assert await redises[0].hget("orders", "somebody:1") == b"1"


async def test_a_grant_by_too_few_is_given_back(redises: list[Redis], locks: LockClient) -> None:
    for redis in redises[:2]:
        await redis.hset(NAME, "somebody:1", "1")
        await redis.expire(NAME, 60)
    assert await locks.lock(NAME).try_lock() is None
    await until(lambda: nothing_under_way(locks))

    async def is_free() -> bool:
        return not await redises[2].exists(NAME)

    await until(is_free)
    waiter = asyncio.create_task(section(KEPT[0], locks))
    await until(lambda: locks.statistics().parked == 1)
    await redises[0].delete(NAME)
    await waiter


@each_kind
async def test_a_waiter_for_a_lock_that_two_of_three_keep_is_idle(
    kind: Kind, redises: list[Redis], locks: LockClient, other: LockClient
) -> None:
    """The third server grants the lock to any client, which gives it back quietly: a message would wake that client."""
    remove = await kind.obstruct(other)

    async def users_keys() -> list[set[bytes]]:
        found: list[list[bytes]] = [await redis.keys("*") for redis in redises]  # type: ignore[misc]
        return [{key for key in keys if not key.startswith(b"aiolock_")} for keys in found]

    async def has_arrived() -> bool:
        return len(set(map(frozenset, await users_keys()))) == 1

    await until(has_arrived)
    await redises[2].delete(*(await users_keys())[2])
    (waiter,) = await waiting(kind, locks, 1)
    before = locks.statistics().commands
    await asyncio.sleep(1)
    # A waiter that may keep others out asks once a second.
    assert locks.statistics().commands - before <= 18
    await remove()
    async with asyncio.timeout(5):
        await waiter


async def test_servers_that_let_a_fair_lock_of_the_name_go_first_refuse_it(
    redises: list[Redis], locks: LockClient
) -> None:
    """The lock has no holder, so that the answer names none."""
    for redis in redises[:2]:
        soon = -800_000_000_000_000 + int(time.time() * 1000) + 3_600_000
        await redis.zadd(f"aiolock_token:{{{NAME}}}", {"plain": soon, "ticket somebody:1": -2_000_000_000_000_000})
    assert await locks.lock(NAME).try_lock() is None


async def test_a_hold_that_two_servers_forgot_is_lost(redises: list[Redis], other: LockClient) -> None:
    async with LockClient.redlock(redises, config=LockConfig(lease=3)) as locks:
        kept = await locks.lock("kept").acquire()
        lost = await locks.lock("lost").acquire()
        await everywhere(redises, "kept", "lost")
        await redises[0].delete("kept", "lost")
        await redises[1].delete("lost")
        async with asyncio.timeout(20):
            await lost.lost
        await until(lambda: locks.statistics().renewals >= 2)
        assert not kept.lost.is_set()
        assert await other.lock("kept").try_lock() is None
        await kept.release()


@pytest.mark.parametrize("nests", [False, True])
async def test_a_minority_that_keeps_a_lost_lock_is_told_to_free_it(
    redises: list[Redis], locks: LockClient, nests: bool
) -> None:
    lock = locks.lock("lost")
    lease = await lock.acquire(lease=50)
    await everywhere(redises, "lost")
    for redis in redises[:2]:
        await redis.delete("lost")
    with pytest.raises(LeaseLostError):
        await (lock.acquire() if nests else lease.renew())

    async def is_freed() -> bool:
        return not await redises[2].exists("lost")

    await until(is_freed)


async def test_the_remaining_time_is_that_of_a_majority(redises: list[Redis], locks: LockClient) -> None:
    async with locks.lock("orders").hold(lease=50):
        assert 45 < (await locks.lock("orders").remaining() or 0) <= 50
        await everywhere(redises, "orders")
        await redises[0].pexpire("orders", 5000)
        await redises[1].pexpire("orders", 10_000)
        assert 0 < (await locks.lock("orders").remaining() or 0) <= 10


# Tokens.


async def test_a_token_is_not_smaller_than_one_that_a_late_server_had_granted(
    redises: list[Redis], through: list[Redis], proxies: list[Proxy]
) -> None:
    """
    The first majority is servers 0 and 1, whose greatest token is raised. Then server 1 loses the lock, and another
    client has it on servers 1 and 2, with a greater token, before server 2 grants it to the first client.
    """
    ahead = time.time_ns() // 1000 + 3_600_000_000
    theirs = ahead + 1_000_000
    await let_token_be(redises[0], "orders", ahead)
    await let_token_be(redises[2], "orders", theirs)
    answers = [proxies[place].install(Rule(script(QUORUM_ACQUIRE), withhold_reply())) for place in (1, 2)]
    raised = proxies[1].install(Rule(script(RAISE), slow_reply(0)))
    async with LockClient.redlock(through) as locks:
        acquiring = asyncio.create_task(locks.lock("orders", owner="me").acquire())
        for answer in answers:
            await answer.caught()
        await redises[1].delete("orders")
        await let_token_be(redises[1], "orders", theirs)
        answers[0].let_go()
        await raised.caught()
        answers[1].let_go()
        lease = await acquiring
        assert lease.token > theirs
        await lease.release()


async def test_the_greatest_token_is_raised_to_a_majority_before_it_is_told(
    redises: list[Redis], locks: LockClient, other: LockClient
) -> None:
    """One server's token is far ahead, as by a fast clock; it dies, and the others still grant greater tokens."""
    ahead = time.time_ns() // 1000 + 3_600_000_000
    for majority in ((0, 1), (0, 2), (1, 2), (2, 0), (1, 0)):
        await let_token_be(redises[majority[0]], "orders", ahead)
        absent = redises[3 - sum(majority)]
        await absent.hset("orders", "somebody:1", "1")
        await absent.expire("orders", 60)
        lease = await locks.lock("orders").acquire()
        assert lease.token == ahead + 1
        assert [await token_of(redises[each], "orders") >= lease.token for each in majority] == [True, True]
        await lease.release()
        await absent.delete("orders")
        ahead = lease.token + 1000


async def test_a_token_is_ahead_of_the_clocks_by_less_than_the_longest_lease(redises: list[Redis]) -> None:
    """Servers that have lost their data vote again after that time, and must not grant a smaller token then."""
    async with LockClient.redlock(redises, config=LockConfig(lease=0.3), longest_lease=0.6) as locks:
        lock, backend = locks.lock("orders"), session_of(locks).commands.backend
        assert isinstance(backend, QuorumBackend)
        await (await lock.acquire()).release()
        backend._clock._ahead = time.time() - time.monotonic() + 0.9
        async with lock as lease:
            assert lease.token < (time.time() + 0.3) * 1_000_000


async def test_one_round_is_enough_when_the_clocks_are_known(locks: LockClient) -> None:
    """The proposed token is ahead of every clock: all grant with the same token, and none is raised."""
    lock, backend = locks.lock("orders"), session_of(locks).commands.backend
    assert isinstance(backend, QuorumBackend)
    await (await lock.acquire()).release()
    await until(lambda: locks.statistics().pending == 0)
    sent = []
    for _ in range(21):
        # Most of the time no machine is later than this.
        backend._clock._ahead = time.time() - time.monotonic() + 0.5
        before = locks.statistics().commands
        await (await lock.acquire()).release()
        # A majority has answered. The commands to a slow third server count as well.
        await answered(locks)
        sent.append(locks.statistics().commands - before)
    assert sorted(sent)[10] == 3 * 2


def test_a_proposed_token_is_ahead_of_every_clock_that_was_seen() -> None:
    clock = Clock()
    clock.learn(time.monotonic(), [1_000_000, 1_000_000])
    assert clock.propose() == 0, "equal clocks tell nothing"
    clock.learn(time.monotonic(), [1_000_000, 1_000_500])
    assert clock.propose() > 1_000_500


async def test_statistics_can_be_asked_in_any_thread(locks: LockClient) -> None:
    async def in_turn(number: int) -> None:
        for turn in range(50):
            async with locks.lock(f"{number}:{turn}"):
                pass
        async with locks.lock("for all"):
            pass

    async with asked_in_a_thread(locks):
        await asyncio.gather(*(in_turn(number) for number in range(10)))


async def test_a_token_that_is_proposed_too_far_ahead_counts_for_nothing(locks: LockClient) -> None:
    lease = await locks.lock("orders").acquire()
    backend = session_of(locks).commands.backend
    assert isinstance(backend, QuorumBackend)
    backend._clock._ahead = 2 * time.time()
    later = await locks.lock("others").acquire()
    assert lease.token < later.token < lease.token + 60_000_000


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ("aab", "a"),
        ("baa", "a"),
        ("a--", "a"),
        ("a---", "-"),
        ("--aa", "a"),
        ("x---", "-"),
        ("xx--", "x"),
        ("xaa", "a"),
    ],
)
async def test_the_holder_is_the_one_that_most_servers_name_if_it_may_have_a_majority(answers: str, told: str) -> None:
    """Some of five servers do not answer: there is one holder at most, and a lock that may be free counts as free."""
    said: dict[str, list[SeenHold] | NotALock] = {
        "a": [SeenHold("a", 1, 9)],
        "b": [SeenHold("b", 1, 9)],
        "-": [],
        "x": NotALock(),
    }
    servers = [Silent() for _ in range(5)]
    call = Call(INSPECT, (NAME,), (), time.monotonic() + 5)
    Question(call, servers, lambda poll: None, FOLDS[INSPECT.fold]).ask()
    for server, answer in zip(servers, answers, strict=False):
        server.asked[0].end(said[answer])
    for server in servers[len(answers) :]:
        server.asked[0].fail(ConnectionError(), "refused")
    assert await call == said[told]


async def test_a_blocked_loop_ends_one_moment_and_not_both() -> None:
    """Answers that arrived meanwhile are read before the next moment ends."""
    servers = [Silent() for _ in range(3)]
    poll = Question(Call(INSPECT, (NAME,), (), time.monotonic() + 5), servers, lambda poll: None, lambda poll: None)
    poll.ask()
    for server in servers[:2]:
        server.asked[0].end([])
    time.sleep(sum(_MOMENTS) + 0.1)
    # Timers run after the tasks of the same turn of the loop.
    for _ in range(2):
        await asyncio.sleep(0)
    assert poll.moments == 1
    servers[2].asked[0].end([])
    assert poll.call.error is not None, "all servers have answered, and no majority agrees"


class Reachable:
    is_away = False


class Silent(quorum_member.Member):
    """A server that keeps its calls, and answers none."""

    only = Reachable()  # type: ignore[assignment]

    def __init__(self) -> None:
        self.asked: list[Call] = []
        self.address = "nowhere"
        self._slow_until = 0.0
        self._has_let_wait = self._abstains = False

    def submit(self, call: Call) -> None:
        self.asked.append(call)

    def withdraw(self, call: Call) -> bool:
        return not call.sent


OURS, THEIRS, OTHERS = Granted(5, 9), Refused(9, holder=b"theirs"), Refused(9, holder=b"others")
AWAY, LINE = Abstains(7), Refused(0.8)
SPLIT, CONTESTED = Refused(0, is_split=True, has_some=True), Refused(0, is_split=True)


@pytest.mark.parametrize(
    ("servers", "answers", "silent", "told"),
    [
        (3, [OURS, THEIRS], False, None),
        (3, [OURS, THEIRS], True, SPLIT),
        (3, [OURS, AWAY], True, None),
        (3, [THEIRS, OTHERS], True, CONTESTED),
        (3, [THEIRS, THEIRS], True, Refused(9)),
        (3, [THEIRS, AWAY, OTHERS], False, CONTESTED),
        (3, [AWAY, AWAY, THEIRS], False, Refused(7)),
        (3, [OURS, THEIRS, THEIRS], False, Refused(9, has_some=True)),
        (5, [OURS, OURS, THEIRS, OTHERS], True, SPLIT),
        (5, [OURS, THEIRS, THEIRS], True, SPLIT),
        (5, [OURS, OURS, THEIRS, THEIRS], False, None),
        (3, [LINE, LINE], True, Refused(0.8)),
        (3, [LINE, THEIRS], True, CONTESTED),
        (3, [OURS, LINE], True, SPLIT),
    ],
)
async def test_a_minority_is_given_back_when_no_answer_that_is_expected_makes_it_a_majority(
    servers: int, answers: list[Vote], silent: bool, told: Refused | None
) -> None:
    """The client waits for a silent server only if nobody else asks for the lock."""
    members = [Silent() for _ in range(servers)]
    call = Call(LOCK.acquire, (NAME,), ("me", "id", 1, 1, 9000, "0", "0"), time.monotonic() + 5)
    poll = Election(call, members, lambda poll: None, Clock(), Longest(9))
    for member in members[len(answers) :]:
        member.let_wait(is_late=silent)
        if not silent:
            member.answered(late=False)
    poll.ask()
    for member, answer in zip(members, answers, strict=False):
        member.asked[0].sent = time.monotonic()
        member.asked[0].end(answer)
    await asyncio.sleep(0)
    poll.restart_moments()
    assert (call.answer if call.ended else None) == told


async def test_a_server_that_is_slow_is_expected_to_answer_and_one_that_is_silent_is_not() -> None:
    member = Silent()
    member.let_wait(is_late=False)
    assert member.is_silent
    member.answered(late=True)
    member.let_wait(is_late=False)
    assert not member.is_silent
    member.let_wait(is_late=True)
    assert member.is_silent


async def test_a_server_is_slow_by_its_answers_to_calls_that_a_majority_has_ended_too() -> None:
    """A busy client ends most calls before the slow server answers: its answers then do not make it count as silent."""
    servers = [Silent() for _ in range(3)]
    for pause in (_MOMENTS[0], 0.0):
        poll = Question(
            Call(INSPECT, (NAME,), (), time.monotonic() + 5), servers, lambda poll: None, FOLDS["first_known"]
        )
        poll.ask()
        for server in servers[:2]:
            server.asked[-1].end([SeenHold("a", 1, 9)])
        assert poll.call.ended
        time.sleep(pause)
        servers[2].asked[-1].end([SeenHold("a", 1, 9)])
        servers[2].let_wait(is_late=False)
        assert not servers[2].is_silent


@pytest.mark.parametrize("order", list(permutations([9, 5, 7])))
async def test_the_remaining_time_is_the_same_whichever_server_answers_first(order: tuple[int, ...]) -> None:
    servers = [Silent() for _ in range(3)]
    call = Call(INSPECT, (NAME,), (), time.monotonic() + 5)
    poll = Question(call, servers, lambda poll: None, FOLDS[INSPECT.fold])
    poll.ask()
    for server, left in zip(servers, order, strict=True):
        assert not call.ended
        server.asked[0].sent = 1.0
        server.asked[0].end([SeenHold("a", 1, left)])
    assert call.answer == [SeenHold("a", 1, 7)]


# Servers that have lost their memory.


async def test_a_server_without_memory_abstains(
    redises: list[Redis], locks: LockClient, caplog: pytest.LogCaptureFixture
) -> None:
    """The other two servers grant the lock; if a second server abstains, there is no majority."""
    caplog.set_level(logging.WARNING, "aiolock")
    await redises[0].flushall()
    async with locks.lock("orders"):
        assert await who_has(redises, "orders") == [False, True, True]
    await until(lambda: sum("has no vote for 60 s" in record.message for record in caplog.records) == 1)
    await redises[1].flushall()

    async def both_abstain(wait: float) -> bool:
        with pytest.raises(QuorumError, match="no vote") as raised:
            await locks.lock("orders").try_lock(wait)
        # On a busy machine, the answer of one may not be there when the other two decide.
        return sum("has no vote for " in said for said in raised.value.errors.values()) == 2

    for wait in (0, 0.1):
        await until(partial(both_abstain, wait))
    await until(lambda: nothing_under_way(locks))
    await remember(redises[1])
    assert await locks.lock("orders").try_lock()


async def test_one_server_without_memory_and_one_that_is_silent_leave_no_majority(
    redises: list[Redis], proxies: list[Proxy], through: list[Redis]
) -> None:
    """The event agrees with the error, which has the answer of each server."""
    told: list[LockEvent] = []
    await redises[0].flushall()
    config = LockConfig(release_timeout=0.5, on_event=told.append)
    async with LockClient.redlock(through, config=config) as client:
        await client.ping()
        proxies[2].install(Rule(lambda request: request.name in {b"EVALSHA", b"EVAL"}, hold(reset=False), times=100))
        for wait in (0, 0.1):
            with pytest.raises(QuorumError, match="has no vote") as raised:
                await client.lock("orders").try_lock(wait)
            assert "no answer yet" in raised.value.errors.values()
    assert [event.reason for event in told if isinstance(event, NotAcquired)] == ["error", "error"]


async def test_a_multi_lock_waits_for_votes_as_a_lock_does(redises: list[Redis], locks: LockClient) -> None:
    both = locks.multi("a", "b")
    for redis in redises[:2]:
        await redis.flushall()
    for wait in (0, 0.1):
        with pytest.raises(QuorumError, match="no vote"):
            await both.try_lock(wait)

    async def take() -> None:
        async with both:
            pass

    task = asyncio.create_task(take())
    await until(lambda: both.statistics().parked == 1)
    assert not task.done()
    task.cancel()
    await asyncio.wait([task])


async def test_memory_from_an_earlier_run_of_the_server_does_not_count(redises: list[Redis], locks: LockClient) -> None:
    """The server has started from an older file."""
    for redis in redises[:2]:
        await redis.set(QUORUM_KEY, f"{'0' * 40} 0")
    with pytest.raises(QuorumError, match="no vote"):
        await locks.lock("orders").try_lock()
    assert str(await redises[0].get(QUORUM_KEY)).startswith(f"b'{await run_id(redises[0])} ")


async def test_a_user_that_may_not_ask_for_the_run_does_not_end_the_memory(
    three: list[Server], redises: list[Redis], locks: LockClient
) -> None:
    """Else each new client of such a user would keep all servers from voting for the longest lease."""
    for redis in redises:
        await redis.acl_setuser("quiet", enabled=True, nopass=True, keys="*", channels="*", commands=["+@all", "-info"])
    quiet = [Redis.from_url(server.url.replace("redis://", "redis://quiet:any@")) for server in three]
    async with LockClient.redlock(quiet) as others:
        lease = await others.lock("orders").try_lock()
        assert lease is not None
        assert await locks.lock("orders").try_lock() is None
        await lease.release()
    for redis, one in zip(redises, quiet, strict=True):
        await one.aclose()
        await redis.acl_deluser("quiet")
    for redis in redises:
        assert str(await redis.get(QUORUM_KEY)).startswith(f"b'{await run_id(redis)} 0")


async def test_it_votes_again_when_the_longest_lease_is_over(redises: list[Redis]) -> None:
    async with LockClient.redlock(redises, config=LockConfig(lease=2), longest_lease=2) as locks:
        for redis in redises:
            await redis.flushall()
        began = time.monotonic()
        async with locks.lock("orders"):
            assert time.monotonic() >= began + 1.99


async def test_a_server_that_abstains_is_told_of_a_release(redises: list[Redis], locks: LockClient) -> None:
    lease = await locks.lock("orders").acquire()
    await redises[0].delete(QUORUM_KEY)
    await lease.renew()
    await lease.release()

    async def is_free() -> bool:
        return not any(await who_has(redises, "orders"))

    await until(is_free)


async def test_one_more_hold_needs_a_majority_that_votes(redises: list[Redis], locks: LockClient) -> None:
    async with locks.lock("orders") as lease:
        for redis in redises[:2]:
            await redis.delete(QUORUM_KEY)
        with pytest.raises(QuorumError) as raised:
            await locks.lock("orders").acquire()
        assert sum("has no vote" in said for said in raised.value.errors.values()) == 2
        assert lease.holds == 1


@pytest.mark.parametrize("answers", [[OURS, THEIRS, AWAY], [OURS, Lost("expired"), THEIRS], [Stale(), Stale(), OURS]])
async def test_one_more_hold_without_a_majority_fails_with_the_answer_of_each_server(answers: list[Vote]) -> None:
    members = [Silent() for _ in answers]
    call = Call(LOCK.acquire, (NAME,), ("me", "id", 2, 2, 9000, "0", "0"), time.monotonic() + 5)
    Election(call, members, lambda poll: None, Clock(), Longest(9)).ask()
    for member, answer in zip(members, answers, strict=True):
        member.asked[0].end(answer)
    assert not isinstance(await call, Granted)
    assert isinstance(call.trouble, QuorumError)


# Clients that differ in the longest lease.


async def test_a_server_without_memory_abstains_for_the_longest_lease_of_any_client(
    redises: list[Redis], locks: LockClient, caplog: pytest.LogCaptureFixture
) -> None:
    """One server has forgotten the lock of another client, and only others have asked it since then."""
    caplog.set_level(logging.WARNING, "aiolock")
    async with LockClient.redlock(redises, longest_lease=120) as longer:
        lease = await longer.lock("orders").acquire(lease=100)
        await everywhere(redises, "orders")
        await redises[0].delete("orders")
        await remember(redises[0], since=int(time.time() * 1000) - 70_000)
        await redises[1].delete("orders")
        assert await locks.lock("orders").try_lock() is None
        assert sum("longest_lease=120, this one 60" in record.message for record in caplog.records) == 1
        assert str(await redises[0].get(QUORUM_KEY)).endswith(" 120000'")
        assert not await redises[1].exists("orders")
        with pytest.raises(LeaseLostError):
            await lease.release()


async def test_a_client_with_a_shorter_longest_lease_goes_by_the_longer_one(
    redises: list[Redis], locks: LockClient, other: LockClient
) -> None:
    """The client gets its lock with the first try, and a nested hold also after it has learned of the longer lease."""
    async with locks.lock("orders"), LockClient.redlock(redises, longest_lease=120) as longer:
        async with longer.lock("invoices"):
            await everywhere(redises, "invoices")
        async with locks.lock("orders").hold(wait=0) as inner:
            assert inner.holds == 2
        async with other.lock("invoices").hold(wait=0):
            pass
    await until(lambda: nothing_under_way(other))
    assert not any(await who_has(redises, "invoices"))


async def test_an_acquire_that_is_made_again_for_a_longer_lease_wakes_waiters_that_its_first_try_refused(
    redises: list[Redis], through: list[Redis], proxies: list[Proxy]
) -> None:
    """One server granted the first try before the others answer, which know of a longer lease."""

    async def third_has_it() -> bool:
        return (await who_has(redises, "orders"))[2]

    for redis in redises[:2]:
        await redis.set(QUORUM_KEY, f"{await run_id(redis)} 0 120000")
    pubsub = redises[2].pubsub(ignore_subscribe_messages=True)
    await pubsub.psubscribe("*orders*")
    # This reads the confirmation of the subscription.
    assert await pubsub.get_message(timeout=5) is None
    answers = [proxy.install(Rule(script(QUORUM_ACQUIRE), withhold_reply())) for proxy in proxies[:2]]
    async with LockClient.redlock(through) as locks:
        acquiring = asyncio.create_task(locks.lock("orders", owner="me").try_lock())
        for answer in answers:
            await answer.caught()
        await until(third_has_it)
        for answer in answers:
            answer.let_go()
        lease = await acquiring
        assert lease is not None
        message = await pubsub.get_message(timeout=5)
        assert message is not None
        assert message["channel"].decode() == keys_of(locks.lock("orders")).channel
        await lease.release()
    await pubsub.aclose()  # type: ignore[no-untyped-call]


# Refusals.


@pytest.mark.parametrize("longest", [60, 1e9])
async def test_no_lock_of_a_quorum_is_detached_or_freed_by_its_token(redises: list[Redis], longest: float) -> None:
    """However long its leases may be."""
    async with LockClient.redlock(redises, longest_lease=longest) as locks:
        lock = locks.lock("orders")
        lease = await lock.acquire()
        with pytest.raises(TypeError, match="cannot be detached"):
            await lease.detach(1)
        with pytest.raises(TypeError, match="cannot compare tokens"):
            await lock.force_release(token=lease.token)
        await lease.release()


def of(*ports: int) -> list[Redis]:
    return [Redis(port=port) for port in ports]


@pytest.mark.parametrize(
    ("redises", "words"),
    [
        (of(1, 2), "3 servers at least"),
        (of(1), r"one server is for LockClient\(redis\)"),
        (of(1, 2, 1), "localhost:1 is there twice"),
        ([*of(1, 2), Redis(port=1, db=3)], "twice"),
    ],
)
def test_servers_that_are_no_quorum(redises: list[Redis], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        LockClient.redlock(redises)


@pytest.mark.parametrize("given", [["redis://:secret@localhost"] * 3, "redis://:secret@localhost", Redis(), 7])
def test_no_list_of_clients(given: object) -> None:
    """The message says which arguments to give, and shows no password."""
    with pytest.raises(TypeError, match=r"\[Redis\.from_url\(url\), \.\.\.\]") as raised:
        LockClient.redlock(given)  # type: ignore[arg-type]
    assert "secret" not in str(raised.value)


def test_further_refusals(three: list[Server]) -> None:
    with pytest.raises(ValueError, match="replicas must be None"):
        LockClient.redlock(of(1, 2, 3), config=LockConfig(replicas=1))
    with pytest.raises(ValueError, match="longest_lease must be at least the lease"):
        LockClient.redlock(of(1, 2, 3), config=LockConfig(lease=30), longest_lease=29)
    with pytest.raises(TypeError, match="config must be"):
        LockClient.redlock(of(1, 2, 3), config=7)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="RedisCluster"):
        LockClient.redlock([*of(1, 2), RedisCluster(host="localhost")])  # type: ignore[list-item]
    behind_sentinels = Sentinel([("localhost", 26379)]).master_for("locks")  # type: ignore[no-untyped-call]
    with pytest.raises(
        TypeError, match="a primary behind Sentinels may be two servers at a time, with a vote each; give"
    ):
        LockClient.redlock([*of(1, 2), behind_sentinels])
    with pytest.raises(TypeError, match=r"not a builtins\.int"):
        LockClient.redlock([*of(1, 2), 7])  # type: ignore[list-item]


async def test_a_lease_that_is_too_long(locks: LockClient) -> None:
    with pytest.raises(ValueError, match="at most longest_lease, which is 60 s"):
        await locks.lock("orders").try_lock(lease=61)
    async with locks.lock("orders") as lease:
        with pytest.raises(ValueError, match="at most longest_lease"):
            await lease.renew(61)
    with pytest.raises(ValueError, match="at most longest_lease"):
        async with locks.multi("a", "b").hold(lease=61):
            pass
    with pytest.raises(ValueError, match="at most longest_lease"):
        async with locks.lock("invoices").hold(at_least=61):
            pass
    assert not await locks.lock("invoices").locked()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda locks: locks.fair_lock("a"), "a fair lock"),
        (lambda locks: locks.read_write_lock("a"), "a read-write lock"),
        (lambda locks: locks.counting_semaphore("a", 3), "a counting semaphore"),
        (lambda locks: locks.semaphore("a", 3), "a semaphore"),
        (lambda locks: locks.count_down_latch("a"), "a count-down latch"),
        (lambda locks: locks.once("a", keep=60), "`once`"),
        (lambda locks: locks.adopt("ticket"), "an adopted lock"),
    ],
)
def test_primitives_that_several_servers_cannot_keep(make: Callable[[LockClient], object], words: str) -> None:
    with pytest.raises(TypeError, match=f"several independent servers cannot keep {words}, because"):
        make(LockClient.redlock(of(1, 2, 3)))


# A command that is late.


async def test_an_acquire_that_comes_after_its_caller_gave_up(
    proxies: list[Proxy], through: list[Redis], redises: list[Redis], other: LockClient
) -> None:
    async with LockClient.redlock(through) as client:
        await client.ping()
        await until(lambda: client.statistics().pending == 0)

        def acquires(request: Request) -> bool:
            return QUORUM_KEY.encode() in request.args

        late = [proxy.install(Rule(acquires, hold(reset=False))) for proxy in proxies[:2]]
        task = asyncio.create_task(section(KEPT[0], client))
        for rule in late:
            await rule.caught()
        task.cancel()
        await asyncio.wait([task])
        for proxy in proxies:
            proxy.reset_all()
        await until(lambda: client.statistics().pending == 0, within=20)
        for rule in late:
            await rule.deliver()
        assert await other.lock(NAME).try_lock()
        assert sum(await who_has(redises, NAME)) >= 2


# The doctor.


@pytest.mark.slow
async def test_the_doctor_looks_whether_they_are_independent(three: list[Server], mine: list[Server]) -> None:
    report = await report_on_quorum([server.url for server in three], 30, "")
    assert report.fit, report.text()
    assert "3 servers, of which 1 may fail" in report.text()
    assert "all are different" in report.text()

    same = await report_on_quorum([three[0].url, three[1].url, three[0].url.replace("127.0.0.1", "localhost")], 30, "")
    assert not same.fit
    assert "are the same server" in same.text()

    async with Redis.from_url(mine[1].url) as redis:
        await redis.replicaof(mine[0].host, mine[0].port)
    mine[2].kill()
    found = (await report_on_quorum([server.url for server in mine], 30, "")).text()
    assert f"replicates {mine[0].host}:{mine[0].port}" in found
    assert "reachable" in found
    assert "Use three, or five." in (await report_on_quorum([server.url for server in three[:2]], 30, "")).text()


@pytest.mark.slow
async def test_the_doctor_accepts_no_other_than_single_servers(three: list[Server]) -> None:
    watching = f"sentinel monitor orders {three[2].host} {three[2].port} 1\n"
    with reserved_port() as bus, ExitStack() as stack:
        for options, config, found in (
            (("--cluster-enabled", "yes", "--cluster-port", str(bus)), "", "a node of a cluster"),
            (("--sentinel",), watching, "a Sentinel, which keeps no locks"),
        ):
            another = stack.enter_context(Server(three[0]._executable, options=options, config=config))
            report = await report_on_quorum([three[0].url, three[1].url, another.url], 30, "")
            [error] = [check for check in report.checks if check.status == "error"]
            assert (error.name, error.found) == ("topology", f"redis://{another.host}:{another.port}/0: {found}")


def of_clocks(*clocks: float | None) -> str:
    members = [Member(f"{number}", Facts(info={"run_id": str(number)}), clock) for number, clock in enumerate(clocks)]
    return next(f"{check.status} {check.found}" for check in judge(members, 3, TIMING) if check.name == "clocks")


def test_clocks_that_do_not_agree() -> None:
    assert of_clocks(1.0, 1.1, 1.2) == "ok 0.2 s apart"
    assert of_clocks(1.0, 1.1, 2.0) == "warning 1 s apart"
    assert of_clocks(1.0, 1.1, 70.0) == "error 69 s apart"
    assert of_clocks(1.0, 1.1, None).startswith("unknown")


def test_nothing_is_known_of_a_server_that_does_not_answer() -> None:
    members = [Member(f"{number}", Facts(info={"run_id": str(number)}), 1.0) for number in range(2)]
    unknown = [check.name for check in judge(members, 3, TIMING) if check.status == "unknown"]
    assert unknown == ["independence", "clocks"]


async def test_a_lock_is_kept_while_no_new_connection_can_be_made(through: list[Redis], proxies: list[Proxy]) -> None:
    async with LockClient.redlock(through, config=LockConfig(lease=2)) as locks:
        lease = await locks.lock("a").acquire()
        for proxy in proxies:
            await proxy.refuse()
        await renewed(locks, 4)
        lease.check()
        await lease.release()


async def test_each_server_has_a_connection_for_renewals_before_the_first_one(
    through: list[Redis], proxies: list[Proxy]
) -> None:
    async with LockClient.redlock(through, config=LockConfig(lease=6)) as locks:
        lease = await locks.lock("a").acquire()
        await until(lambda: locks.statistics().connections == 2 * len(proxies))
        assert locks.statistics().renewals == 0
        await lease.release()
