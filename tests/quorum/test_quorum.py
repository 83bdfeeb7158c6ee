"""Locks that a majority of three servers keeps: what they promise while all of them are well, and what is refused."""

import asyncio
import logging
import os
import time
from functools import partial

import pytest
from redis.asyncio import Redis, RedisCluster
from redis.asyncio.sentinel import Sentinel

from aiolock import BackendError, LeaseLostError, LockClient, LockConfig
from aiolock._backend import Call
from aiolock._cli.doctor.facts import Facts
from aiolock._cli.doctor.quorum import Member, judge
from aiolock._cli.doctor.run import report_on_quorum
from aiolock._config import Timing
from aiolock._embedded_server import Server
from aiolock._keys import QUORUM_KEY, card_key
from aiolock._redis import quorum_member
from aiolock._redis.election import Clock
from aiolock._redis.fold import FOLDS, is_held
from aiolock._redis.poll import _MOMENTS, Question
from aiolock._redis.quorum import QuorumBackend
from aiolock._scripts import BALLOTS, GRANTED, INSPECT, NOT_A_LOCK, PERMIT
from tests.contract.acts import check_that_messages_wake, is_untouched, nothing_under_way, section, waiting
from tests.contract.kinds import KINDS, NAME, Counted, Fair, Kind, Latch, Once
from tests.quorum.several import everywhere, let_token_be, remember, run_id, token_of, who_has
from tests.support.calls import in_turn
from tests.support.cancellation import MODES, Mode, Outcome, every_suspension
from tests.support.inside import session_of
from tests.support.observe import asked_in_a_thread, until
from tests.support.proxy import Proxy, Request, Rule, drop_reply, hold

TIMING = Timing.of(LockConfig())
KEPT = tuple(kind for kind in KINDS if not isinstance(kind, Counted | Fair | Latch | Once))
each_kind = pytest.mark.parametrize("kind", KEPT, ids=repr)


# The contract.


@each_kind
async def test_who_waits_is_woken_by_a_message(kind: Kind, locks: LockClient, other: LockClient) -> None:
    await check_that_messages_wake(kind, locks, other)
    await is_untouched(kind, other)


@each_kind
async def test_leaves_nothing_that_stays(
    kind: Kind, redises: list[Redis], locks: LockClient, other: LockClient
) -> None:
    await check_that_messages_wake(kind, locks, other)
    await until(lambda: nothing_under_way(locks))
    for redis in redises:
        found: list[bytes] = await redis.keys("*")  # type: ignore[assignment]
        keys = {key.decode() for key in found} - {*kind.kept, QUORUM_KEY}
        assert all(key.startswith(("aiolock_token:", "aiolock_client:")) for key in keys), keys
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
async def test_whatever_reply_is_lost(
    kind: Kind, number: int, proxies: list[Proxy], through: list[Redis], other: LockClient
) -> None:
    """Of two servers of three: the acquire, what confirms it, and the release are sent to them twice."""
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
        assert (holder.client, holder.holds) == (session_of(locks).client, 1)
    assert not await other.lock("orders").locked()


async def test_force_release(locks: LockClient, other: LockClient) -> None:
    lease = await locks.lock("orders").acquire()
    assert await other.lock("orders").force_release()
    assert not await other.lock("orders").force_release()
    assert await other.lock("orders").try_lock()
    with pytest.raises(LeaseLostError):
        await lease.release()


async def test_many_tasks_cost_one_acquire_each(locks: LockClient) -> None:
    """What the servers say of the same release is one message: nobody is woken for nothing."""
    sections = 100

    async def work() -> None:
        async with locks.lock("orders"):
            await asyncio.sleep(0)

    before = locks.statistics().commands
    await asyncio.gather(*(work() for _ in range(sections)))
    await until(lambda: nothing_under_way(locks))
    sent = locks.statistics().commands - before
    assert sent <= sections * 3 * 2 * 1.3  # An acquire and a release, at three servers each.


# A majority.


async def test_a_key_on_one_server_is_in_nobodys_way(redises: list[Redis], locks: LockClient) -> None:
    """As a client leaves it that died between its servers."""
    await redises[0].hset("orders", "somebody:1", "1")
    await redises[0].expire("orders", 60)
    async with locks.lock("orders").hold(wait=0):
        assert (await who_has(redises, "orders"))[1:] == [True, True]
        assert await redises[0].hget("orders", "somebody:1") == b"1"


async def test_what_too_few_granted_is_given_back(redises: list[Redis], locks: LockClient) -> None:
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
async def test_who_waits_for_what_two_of_three_keep_is_idle(
    kind: Kind, redises: list[Redis], locks: LockClient, other: LockClient
) -> None:
    """The third grants it to whoever asks: that is given back without a word, which would wake the giver again."""
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
    assert locks.statistics().commands - before <= 18  # Who may keep others from overtaking asks once a second.
    await remove()
    async with asyncio.timeout(5):
        await waiter


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


async def test_what_is_left_is_what_a_majority_has(redises: list[Redis], locks: LockClient) -> None:
    async with locks.lock("orders").hold(lease=50):
        assert 45 < (await locks.lock("orders").remaining() or 0) <= 50
        await everywhere(redises, "orders")
        await redises[0].pexpire("orders", 5000)
        await redises[1].pexpire("orders", 10_000)
        assert 0 < (await locks.lock("orders").remaining() or 0) <= 10


# Tokens.


async def test_the_greatest_token_is_raised_to_a_majority_before_it_is_told(
    redises: list[Redis], locks: LockClient, other: LockClient
) -> None:
    """One server is far ahead, as with a clock that is; it dies, and what the others grant comes after all the same."""
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


@pytest.mark.parametrize("kind", [kind for kind in KEPT if repr(kind) in ("reader", "writer", "permit")], ids=repr)
async def test_the_tokens_of_others_grow_so_too(kind: Kind, redises: list[Redis], locks: LockClient) -> None:
    ahead = time.time_ns() // 1000 + 3_600_000_000
    await let_token_be(redises[0], "it", ahead)
    await redises[2].delete(QUORUM_KEY)
    taken = await kind.take(locks)
    assert taken.token == ahead + 1
    await kind.give(locks, taken)
    assert await token_of(redises[1], "it") >= taken.token


async def test_one_round_does_when_the_clocks_are_known(locks: LockClient) -> None:
    """What is proposed lies ahead of every clock: all grant with the same token, and none is raised."""
    lock, backend = locks.lock("orders"), session_of(locks).commands.backend
    assert isinstance(backend, QuorumBackend)
    await (await lock.acquire()).release()
    await until(lambda: locks.statistics().pending == 0)
    sent = []
    for _ in range(21):
        backend._clock._ahead = time.time() - time.monotonic() + 0.5  # Most of the time no machine is as late.
        before = locks.statistics().commands
        await (await lock.acquire()).release()
        sent.append(locks.statistics().commands - before)
    assert sorted(sent)[10] == 3 * 2


def test_what_is_proposed_lies_ahead_of_every_clock_that_was_seen() -> None:
    clock = Clock()
    clock.learn(time.monotonic(), [1_000_000, 1_000_000])
    assert clock.propose() == 0, "nothing is known while all say the same"
    clock.learn(time.monotonic(), [1_000_000, 1_000_500])
    assert clock.propose() > 1_000_500


async def test_what_a_client_does_can_be_asked_in_any_thread(locks: LockClient) -> None:
    async with asked_in_a_thread(locks):
        await asyncio.gather(*(in_turn(locks, number) for number in range(10)))


async def test_a_token_that_is_proposed_too_far_ahead_counts_for_nothing(locks: LockClient) -> None:
    lease = await locks.lock("orders").acquire()
    backend = session_of(locks).commands.backend
    assert isinstance(backend, QuorumBackend)
    backend._clock._ahead = 2 * time.time()
    later = await locks.lock("others").acquire()
    assert lease.token < later.token < lease.token + 60_000_000


async def test_who_holds_it_is_known_if_one_server_knows_that_client(
    redises: list[Redis], locks: LockClient, other: LockClient
) -> None:
    async with locks.lock("orders"):
        card = card_key(session_of(locks).client)
        await everywhere(redises, card)
        for redis in redises[1:]:
            await redis.delete(card)
        holder = await other.lock("orders").holder()
        assert holder is not None
        assert holder.pid == os.getpid()


async def test_how_many_permits_are_asked_for_stands_where_the_ballot_looks(
    locks: LockClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Call] = []
    submit = QuorumBackend.submit

    def note(backend: QuorumBackend, call: Call) -> None:
        asked.append(call)
        submit(backend, call)

    monkeypatch.setattr(QuorumBackend, "submit", note)
    async with locks.permit_expirable_semaphore("seats", 5).taking(2):
        pass
    place = BALLOTS[PERMIT.acquire].counted
    assert place is not None
    assert [call.args[place] for call in asked if call.script is PERMIT.acquire] == [2]


def test_a_look_goes_on_whose_first_answer_is_an_error() -> None:
    """It has nothing to count by then."""
    ballot, ended = BALLOTS[PERMIT.acquire], list[object]()
    call, silent = Call(ballot.look.script, (), (), time.monotonic() + 5), [Silent() for _ in range(3)]
    poll = Question(call, silent, ended.append, partial(is_held, look=ballot.look, wanted=1))
    poll.ask()
    silent[0].asked[0].fail(ConnectionError(), "refused")
    for each in silent[1:]:
        each.asked[0].end([1, 0, 1, b"theirs", 9000])
    assert (call.ended, call.error, len(ended)) == (True, None, 1)
    assert call.reply == [1]


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
async def test_who_holds_a_lock_is_whom_most_name_of_those_that_may_be_a_majority(answers: str, told: str) -> None:
    """Of five servers, some of which do not answer: one holder at most, and what may be no lock is said to be none."""
    replies: dict[str, list[object]] = {
        "a": [GRANTED, b"a", 1, 9000, 1],
        "b": [GRANTED, b"b", 1, 9000, 1],
        "-": [GRANTED],
        "x": [NOT_A_LOCK],
    }
    servers = [Silent() for _ in range(5)]
    call = Call(INSPECT, (NAME,), (), time.monotonic() + 5)
    Question(call, servers, lambda poll: None, FOLDS[INSPECT.fold]).ask()
    for server, answer in zip(servers, answers, strict=False):
        server.asked[0].end(replies[answer])
    for server in servers[len(answers) :]:
        server.asked[0].fail(ConnectionError(), "refused")
    assert await call == replies[told]


async def test_a_blocked_loop_ends_one_moment_and_not_both() -> None:
    """What arrived meanwhile is read before the next one ends."""
    servers = [Silent() for _ in range(3)]
    poll = Question(Call(INSPECT, (NAME,), (), time.monotonic() + 5), servers, lambda poll: None, lambda poll: None)
    poll.ask()
    for server in servers[:2]:
        server.asked[0].end([GRANTED])
    time.sleep(sum(_MOMENTS) + 0.1)
    for _ in range(2):  # Timers run behind the task that waited for a turn of the loop.
        await asyncio.sleep(0)
    assert poll.moments == 1
    servers[2].asked[0].end([GRANTED])
    assert poll.call.error is not None, "nothing more is to come, and nothing was agreed"


class Silent(quorum_member.Member):
    """A server that keeps what it is asked."""

    def __init__(self) -> None:
        self.asked: list[Call] = []
        self.address = "nowhere"

    def submit(self, call: Call) -> None:
        self.asked.append(call)


# Servers that have lost their memory.


async def test_a_server_without_memory_abstains(
    redises: list[Redis], locks: LockClient, caplog: pytest.LogCaptureFixture
) -> None:
    """And the other two grant; with a second one that abstains there is no majority."""
    caplog.set_level(logging.WARNING, "aiolock")
    await redises[0].flushall()
    async with locks.lock("orders"):
        assert await who_has(redises, "orders") == [False, True, True]
    assert sum("has no vote for 60 s" in record.message for record in caplog.records) == 1
    await redises[1].flushall()
    assert await locks.lock("orders").try_lock(0.1) is None
    await until(lambda: nothing_under_way(locks))
    await remember(redises[1])
    assert await locks.lock("orders").try_lock()


async def test_memory_of_an_earlier_life_is_none(redises: list[Redis], locks: LockClient) -> None:
    """As of a server that started from what was on disk a while ago."""
    for redis in redises[:2]:
        await redis.set(QUORUM_KEY, f"{'0' * 40} 0")
    assert await locks.lock("orders").try_lock() is None
    assert str(await redises[0].get(QUORUM_KEY)).startswith(f"b'{await run_id(redises[0])} ")


async def test_it_votes_again_when_the_longest_lease_is_over(redises: list[Redis]) -> None:
    async with LockClient.redlock(redises, config=LockConfig(lease=2), longest_lease=2) as locks:
        for redis in redises:
            await redis.flushall()
        began = time.monotonic()
        async with locks.lock("orders"):
            assert time.monotonic() >= began + 1.99


async def test_what_abstains_is_told_of_a_release(redises: list[Redis], locks: LockClient) -> None:
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
        with pytest.raises(BackendError, match="too few servers"):
            await locks.lock("orders").acquire()
        assert lease.holds == 1


# Permits.


async def test_no_more_permits_than_there_are(redises: list[Redis]) -> None:
    """Three servers with two permits have six, which would do for three who have a majority each."""
    clients = [LockClient.redlock(redises) for _ in range(3)]
    semaphores = [client.permit_expirable_semaphore("it", 2) for client in clients]
    try:
        for number, semaphore in enumerate(semaphores[:2]):
            lease = await semaphore.acquire()
            permit, away = f"{lease._hold.claim.id}#1", redises[number]

            async def has_arrived(permit: str = permit, away: Redis = away) -> bool:
                return await away.zscore("{it}:timeout", permit) is not None

            await until(has_arrived)
            await away.zrem("{it}:timeout", permit)  # As if that server had not answered: a majority granted it.
            await away.incr("it")
        assert await semaphores[2].try_acquire() is None
        assert await semaphores[2].try_acquire(wait=0.2) is None
        await semaphores[0].force_release()
        assert await semaphores[2].try_acquire(wait=5)
    finally:
        for client in clients:
            await client.aclose()


# What is refused.


def of(*ports: int) -> list[Redis]:
    return [Redis(port=port) for port in ports]


@pytest.mark.parametrize(
    ("redises", "words"),
    [
        (of(1, 2), "3 servers at least"),
        (of(1, 2, 1), "localhost:1 is there twice"),
        ([*of(1, 2), Redis(port=1, db=3)], "twice"),
    ],
)
def test_servers_that_are_no_quorum(redises: list[Redis], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        LockClient.redlock(redises)


def test_what_else_cannot_be(three: list[Server]) -> None:
    with pytest.raises(ValueError, match="replicas must be None"):
        LockClient.redlock(of(1, 2, 3), config=LockConfig(replicas=1))
    with pytest.raises(ValueError, match="longest_lease must be at least the lease"):
        LockClient.redlock(of(1, 2, 3), config=LockConfig(lease=30), longest_lease=29)
    with pytest.raises(TypeError, match="config must be"):
        LockClient.redlock(of(1, 2, 3), config=7)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="RedisCluster"):
        LockClient.redlock([*of(1, 2), RedisCluster(host="localhost")])  # type: ignore[list-item]
    behind_sentinels = Sentinel([("localhost", 26379)]).master_for("locks")  # type: ignore[no-untyped-call]
    with pytest.raises(TypeError, match="what Sentinels name may be two at a time, with a vote each; give"):
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


def test_what_only_counts() -> None:
    locks = LockClient.redlock(of(1, 2, 3))
    with pytest.raises(TypeError, match="a semaphore that only counts cannot be kept by several"):
        locks.semaphore("jobs", 3)
    with pytest.raises(TypeError, match="a count-down latch cannot be kept by several"):
        locks.count_down_latch("jobs")


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


def of_clocks(*clocks: float | None) -> str:
    members = [Member(f"{number}", Facts(info={"run_id": str(number)}), clock) for number, clock in enumerate(clocks)]
    return next(f"{check.status} {check.found}" for check in judge(members, 3, TIMING) if check.name == "clocks")


def test_clocks_that_do_not_agree() -> None:
    assert of_clocks(1.0, 1.1, 1.2) == "ok 0.2 s apart"
    assert of_clocks(1.0, 1.1, 2.0) == "warning 1 s apart"
    assert of_clocks(1.0, 1.1, 70.0) == "error 69 s apart"
    assert of_clocks(1.0, 1.1, None).startswith("unknown")
