"""The fair lock as its users see it: first come, first served over clients, even when waiters die."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import Any, cast

import pytest
from redis.asyncio import Redis

from aiolock import LeaseLostError, LockClient, LockConfig
from aiolock._keys import LockKeys
from aiolock._scripts import FAIR
from tests.support.inside import backend_of, session_of
from tests.support.observe import answered, until
from tests.support.proxy import Proxy, Rule, drop_reply, script
from tests.support.waiters import waits_quietly

NAME = "fair"
TOKENS = f"aiolock_token:{{{NAME}}}"
LONG = 60.0
# Seconds from one moment for the waiters of the plain lock to the next.
MANY_TURNS = 20.0
# Seconds far longer than a client needs to notice, and far shorter than a lease.
PAST_THE_HEARTBEAT = 5.0


class Line:
    """Numbered tasks that ask one after another, and note in which order they were granted the lock."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self.order: list[int] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def stand(self, *clients: LockClient) -> None:
        """Add a task of each client, each when the one before it stands in line and hears messages."""
        for client in clients:
            wanted = await self.length() + 1
            self.tasks.append(asyncio.create_task(self._take_turn(client, len(self.tasks))))
            await self.is_as_long(wanted)
            await until(partial(hears, client))

    async def length(self) -> int:
        return len([member for member in await members(self._redis) if member.startswith(b"ticket ")])

    async def is_as_long(self, wanted: int) -> None:
        """Return when that many tasks stand in line."""

        async def as_long() -> bool:
            return await self.length() == wanted

        await until(as_long, within=20)

    async def _take_turn(self, client: LockClient, number: int) -> None:
        async with client.fair_lock(NAME):
            self.order.append(number)
            await asyncio.sleep(0)

    async def over(self) -> Sequence[int]:
        await asyncio.wait_for(asyncio.gather(*self.tasks, return_exceptions=True), PAST_THE_HEARTBEAT)
        return self.order


async def members(redis: Redis) -> list[bytes]:
    return cast(list[bytes], await redis.zrange(TOKENS, 0, -1))


def hears(client: LockClient) -> bool:
    """Whether messages for the client arrive, and nothing is under way."""
    session = session_of(client)
    keys = LockKeys.of_fair(NAME, "")
    channels = (keys.channel, keys.channel_of(session.entries.unique))
    told = all(session.entries.notifier.confirmed(channel) for channel in channels)
    return told and client.statistics().pending == 0


@pytest.fixture
def line(redis: Redis) -> Line:
    return Line(redis)


async def test_first_come_first_served_over_clients(line: Line, locks: LockClient, other: LockClient) -> None:
    lease = await locks.fair_lock(NAME).acquire(lease=LONG)
    await line.stand(other, locks, other, other, locks, locks, other)
    await lease.release()
    assert await line.over() == list(range(7))


@pytest.mark.parametrize("how", ["released", "ended"])
async def test_an_adoption_leaves_the_order_of_its_clients_waiters(
    line: Line, redis: Redis, locks: LockClient, other: LockClient, how: str
) -> None:
    lease = await other.fair_lock(NAME).acquire(lease=LONG)
    await line.stand(locks, other, locks, locks, other, locks)
    adopted = await locks.adopt(await lease.detach(LONG), owner="adopter", lease=LONG)
    await answered(locks)
    if how == "released":
        await adopted.release()
    else:
        await redis.pexpire(NAME, 1)
    assert await line.over() == list(range(6))


async def test_a_named_owner_that_gets_it_leaves_the_order_of_the_others(
    line: Line, locks: LockClient, other: LockClient
) -> None:
    lease, order = await other.fair_lock(NAME).acquire(lease=LONG), []

    async def stand(who: int, owner: str | None) -> None:
        async with locks.fair_lock(NAME, owner=owner):
            order.append(who)

    tasks = []
    for who, owner in enumerate(("job", None, None, "job")):
        tasks.append(asyncio.create_task(stand(who, owner)))
        await line.is_as_long(who + 1)
        await until(partial(hears, locks))
    await lease.release()
    await asyncio.wait_for(asyncio.gather(*tasks), PAST_THE_HEARTBEAT)
    assert order == [0, 1, 2, 3]


async def test_a_newcomer_does_not_overtake_waiters(line: Line, locks: LockClient, other: LockClient) -> None:
    lease = await locks.fair_lock(NAME).acquire(lease=LONG)
    await line.stand(other)
    asked = [asyncio.create_task(client.fair_lock(NAME, owner="newcomer").try_lock()) for client in (locks, other)]
    await lease.release()
    assert await asyncio.gather(*asked) == [None, None]
    assert await line.over() == [0]


async def test_a_hand_off_within_a_client_is_one_round_trip(line: Line, locks: LockClient) -> None:
    lease = await locks.fair_lock(NAME).acquire(lease=LONG)
    await line.stand(*[locks] * 20)
    before, began = locks.statistics(), monotonic()
    await lease.release()
    await line.over()
    await answered(locks)
    now, heartbeats = locks.statistics(), (monotonic() - began) / 0.25 + 2
    assert line.order == list(range(20))
    assert now.commands - before.commands <= 2 * 21 + heartbeats, "each task sends a release and an acquire"
    assert now.batches - before.batches <= 21 + heartbeats
    assert now.hand_offs - before.hand_offs >= 20 - heartbeats, "no waiter is handed the lock as it asks"


async def test_a_hand_off_to_another_client_wakes_that_one_only(
    line: Line, redis: Redis, locks: LockClient, other: LockClient
) -> None:
    async with LockClient(redis) as third:
        lease = await locks.fair_lock(NAME).acquire(lease=LONG)
        await line.stand(other, third)
        async with redis.pubsub() as heard:
            await heard.psubscribe("*")
            assert (await heard.get_message(timeout=5) or {})["type"] == "psubscribe"
            await lease.release()
            await line.over()
            channels = [(await heard.get_message(timeout=5) or {})["channel"].decode() for _ in range(3)]
        plain = LockKeys.of(NAME, "").channel
        clients = [session_of(client).entries.unique for client in (other, third)]
        assert channels == [*(f"{plain}:{client}" for client in clients), plain]


async def test_a_client_that_is_not_next_asks_for_nothing_when_it_releases(
    line: Line, locks: LockClient, other: LockClient
) -> None:
    lease = await locks.fair_lock(NAME).acquire(lease=LONG)
    taking = asyncio.create_task(other.fair_lock(NAME, owner="next").acquire(lease=LONG))
    await line.is_as_long(1)
    await line.stand(locks)
    await lease.release()
    taken = await taking
    now = locks.fair_lock(NAME).statistics()
    assert (now.parked, now.hand_offs) == (1, 0)
    await taken.release()
    assert await line.over() == [0]


async def test_a_waiter_that_is_cancelled_or_times_out_leaves_no_place(
    line: Line, locks: LockClient, other: LockClient
) -> None:
    lease = await locks.fair_lock(NAME).acquire(lease=LONG)
    await line.stand(other, locks, other, locks)
    assert await other.fair_lock(NAME).try_lock(wait=0.01) is None
    for number in (0, 3):
        line.tasks[number].cancel()
    await asyncio.wait([line.tasks[0], line.tasks[3]])
    await until(lambda: locks.statistics().pending == other.statistics().pending == 0)
    assert await line.length() == 2
    await lease.release()
    assert await line.over() == [1, 2]


async def test_the_first_that_is_cancelled_as_it_is_told_passes_it_on(
    line: Line, proxy: Proxy, through: Redis, locks: LockClient
) -> None:
    async with LockClient(through) as behind:
        lease = await locks.fair_lock(NAME).acquire(lease=LONG)
        await line.stand(behind, locks)
        proxy.swallow_messages()
        await lease.release()
        line.tasks[0].cancel()
        assert await line.over() == [1]


@pytest.mark.parametrize("loss", ["message", "silence"])
async def test_a_lost_message_or_a_silent_client_costs_less_than_a_second(
    loss: str, line: Line, proxy: Proxy, locks: LockClient, other: LockClient
) -> None:
    async with LockClient.from_url(proxy.url) as behind:
        lease = await locks.fair_lock(NAME).acquire(lease=LONG)
        await line.stand(behind, other)
        if loss == "message":
            proxy.swallow_messages()
        else:
            proxy.black_hole()
        await lease.release()
        await until(lambda: 1 in line.order, within=PAST_THE_HEARTBEAT)
        assert line.order == ([0, 1] if loss == "message" else [1])
        proxy.restore()
        line.tasks[0].cancel()
        await asyncio.wait(line.tasks)


async def test_a_client_that_was_passed_over_keeps_its_place(
    line: Line, proxy: Proxy, through: Redis, locks: LockClient, other: LockClient
) -> None:
    async with LockClient(through) as behind:
        lease = await locks.fair_lock(NAME).acquire(lease=LONG)
        await line.stand(behind)
        proxy.black_hole()
        await lease.release()
        taken = await other.fair_lock(NAME).acquire(lease=LONG)
        await line.stand(other)
        proxy.restore()
        await line.is_as_long(2)
        await taken.release()
        assert await asyncio.wait_for(asyncio.gather(*line.tasks), 20)
        assert line.order == [0, 1]


@pytest.mark.parametrize("forget", ["flushall", "script_flush"])
async def test_a_forgotten_line_costs_no_progress(
    forget: str, line: Line, redis: Redis, locks: LockClient, other: LockClient
) -> None:
    lease = await locks.fair_lock(NAME).acquire(lease=LONG)
    await line.stand(other, locks, other)
    await getattr(redis, forget)()
    if forget == "script_flush":
        await lease.release()
    else:
        with pytest.raises(LeaseLostError):
            await lease.release()
    assert sorted(await line.over()) == [0, 1, 2]


@pytest.mark.parametrize("number", range(3))
async def test_a_lost_reply_costs_no_place(
    number: int, line: Line, proxy: Proxy, locks: LockClient, other: LockClient
) -> None:
    """The lost reply is that of the first try, of one after it, or of the granted one."""
    async with LockClient.from_url(proxy.url) as behind:
        lease = await locks.fair_lock(NAME).acquire(lease=LONG)
        if number:
            await line.stand(behind)
        lost = proxy.install(Rule(script(FAIR.acquire), drop_reply()))
        if not number:
            await line.stand(behind)
        if number < 2:
            await lost.caught()
        await line.stand(other)
        await lease.release()
        await lost.caught()
        assert await line.over() == [0, 1]
        assert await line.length() == 0


# Beside the plain lock.


async def plainly(client: LockClient, order: list[str], who: str) -> None:
    async with client.lock(NAME):
        order.append(who)


async def test_a_plain_lock_of_the_name_excludes_it_and_wakes_a_waiter(
    line: Line, locks: LockClient, other: LockClient
) -> None:
    lease = await locks.lock(NAME).acquire(lease=LONG)
    assert await other.fair_lock(NAME).try_lock() is None
    await line.stand(other)
    began = monotonic()
    await lease.release()
    assert await line.over() == [0]
    assert monotonic() - began < LONG / 2, "the message woke the waiter"


async def test_a_waiter_for_the_plain_lock_gets_it_when_the_line_is_empty(
    line: Line, locks: LockClient, other: LockClient
) -> None:
    lease = await locks.fair_lock(NAME).acquire(lease=LONG)
    order: list[str] = []
    task = asyncio.create_task(plainly(other, order, "plain"))
    await until(lambda: other.lock(NAME).statistics().parked == 1)
    await line.stand(locks, locks)
    await lease.release()
    await asyncio.wait_for(task, PAST_THE_HEARTBEAT)
    assert await line.over() == [0, 1]


@pytest.mark.parametrize("together", [True, False])
async def test_a_line_that_never_ends_lets_waiters_for_the_plain_lock_go_in_between(
    line: Line, locks: LockClient, other: LockClient, together: bool
) -> None:
    over = False

    async def again_and_again(client: LockClient) -> None:
        while not over:
            async with client.fair_lock(NAME):
                await asyncio.sleep(0)

    clients = [locks] * 6 if together else [locks, other] * 3
    tasks = [asyncio.create_task(again_and_again(client)) for client in clients]
    await line.is_as_long(5)
    for _ in range(2):
        async with asyncio.timeout(MANY_TURNS), other.lock(NAME):
            pass
    over = True
    await asyncio.gather(*tasks)


async def test_a_waiter_for_the_plain_lock_is_not_forgotten_when_the_line_is_empty_for_a_moment(
    line: Line, redis: Redis, locks: LockClient, other: LockClient
) -> None:
    lease = await locks.fair_lock(NAME).acquire(lease=LONG)
    assert await other.lock(NAME).try_lock() is None
    await line.stand(other)
    await lease.release()
    assert await line.over() == [0]
    assert b"plain" in await members(redis)


async def test_waiters_for_the_plain_lock_are_told_before_their_turn_passes(
    redis: Redis, locks: LockClient, other: LockClient
) -> None:
    async with locks.fair_lock(NAME):
        assert await other.lock(NAME).try_lock() is None
    # Their turn comes while nobody has the lock: a loop was blocked.
    await redis.zincrby(TOKENS, -10_000, "plain")
    async with locks.fair_lock(NAME):
        assert b"plain" in await members(redis)
    assert b"plain's turn" in await members(redis)


async def test_the_turn_of_plain_waiters_that_have_given_up_passes(
    line: Line, redis: Redis, locks: LockClient, other: LockClient
) -> None:
    lease = await locks.fair_lock(NAME).acquire(lease=LONG)
    await line.stand(locks, other, locks)
    assert await other.lock(NAME).try_lock() is None
    due = await redis.zscore(TOKENS, "plain")
    assert due is not None
    await redis.zincrby(TOKENS, -10_000, "plain")
    await lease.release()
    assert await line.over() == [0, 1, 2]
    assert not [member for member in await members(redis) if member.startswith(b"plain")]


async def test_a_waiter_for_the_plain_lock_does_not_sleep_when_the_next_fair_holder_died(
    line: Line, redis: Redis, locks: LockClient, other: LockClient
) -> None:
    """The lease of the first holder ends much later than that of the one that dies."""
    dies = LockClient(redis, config=LockConfig(release_timeout=0.1))
    lease = await locks.fair_lock(NAME).acquire(lease=LONG)
    next_one = asyncio.create_task(dies.fair_lock(NAME, owner="dies").try_lock(LONG, lease=0.5))
    await line.is_as_long(1)
    order: list[str] = []
    waits = asyncio.create_task(plainly(other, order, "plain"))
    await until(lambda: waits_quietly(other, other.lock(NAME)))
    await lease.release()
    assert await next_one
    await backend_of(dies).aclose()
    await asyncio.wait_for(waits, LONG / 6)
    await dies.aclose()


@pytest.mark.parametrize("kind", ["permits", "write"])
async def test_another_kind_of_the_name_is_granted_at_once_when_the_fair_lock_is_free(
    locks: LockClient, other: LockClient, kind: str
) -> None:
    """The other kind is granted although a refusal of the plain lock has left a mark beside the tokens."""
    async with locks.fair_lock(NAME):
        assert await other.lock(NAME).try_lock() is None
    if kind == "permits":
        assert await locks.semaphore(NAME, 1).try_acquire()
    else:
        assert await locks.read_write_lock(NAME).write.try_lock()


@pytest.mark.parametrize("fair", [True, False])
async def test_a_holder_is_told_at_once_of_a_force_release_by_way_of_the_other_kind(
    locks: LockClient, fair: bool
) -> None:
    kinds = (locks.lock(NAME), locks.fair_lock(NAME))
    lease = await kinds[fair].acquire()
    assert await kinds[not fair].force_release()
    assert lease.lost.is_set()


# What holds for any lock.


async def test_a_named_owner_acts_in_several_tasks(line: Line, locks: LockClient, other: LockClient) -> None:
    lock = locks.fair_lock(NAME, owner="job")
    lease = await other.fair_lock(NAME).acquire(lease=LONG)
    await line.stand(other)

    async def hold() -> int:
        async with lock:
            return await lock.hold_count()

    tasks = [asyncio.create_task(hold()) for _ in range(2)]
    await until(lambda: lock.statistics().parked == 2)
    await lease.release()
    assert max(await asyncio.wait_for(asyncio.gather(*tasks), PAST_THE_HEARTBEAT)) >= 1
    assert await line.over() == [0]


async def test_tokens_grow_over_both_kinds(locks: LockClient, other: LockClient) -> None:
    tokens = []
    makers: list[Callable[[str], Any]] = [locks.fair_lock, other.lock, other.fair_lock, locks.lock]
    for make in makers:
        async with make(NAME) as lease:
            tokens.append(lease.token)
    assert tokens == sorted(set(tokens))


async def test_a_free_one_costs_two_commands_and_leaves_no_line(redis: Redis, locks: LockClient) -> None:
    before = locks.statistics().commands
    async with locks.fair_lock(NAME):
        pass
    assert locks.statistics().commands - before == 2
    assert not [member for member in await members(redis) if member.startswith((b"ticket ", b"alive "))]


async def test_a_prefix_is_a_part_of_the_name(redis: Redis, locks: LockClient) -> None:
    async with LockClient(redis, config=LockConfig(prefix="shop:")) as shop, shop.fair_lock(NAME):
        assert await redis.exists(f"shop:{NAME}")
        assert await locks.fair_lock(NAME).try_lock(wait=0.01) is not None


async def test_a_server_that_takes_no_commands_for_a_while_keeps_no_place_of_a_waiter_that_gave_up(
    line: Line, redis: Redis, locks: LockClient, other: LockClient
) -> None:
    lease = await locks.fair_lock(NAME).acquire(lease=LONG)
    await line.stand(other)
    await redis.client_pause(1500, all=False)
    line.tasks[0].cancel()
    await asyncio.wait(line.tasks)
    await until(lambda: other.statistics().pending == 0)
    assert await line.length() == 0
    await lease.release()


async def test_waiting_costs_one_heartbeat_for_all_of_a_client(
    line: Line, locks: LockClient, other: LockClient
) -> None:
    await other.fair_lock(NAME).acquire(lease=LONG)
    await line.stand(*[locks] * 30)
    before, began = locks.statistics().commands, monotonic()
    await until(lambda: locks.statistics().commands >= before + 4)
    await until(lambda: beats(locks, before, began))
    for task in line.tasks:
        task.cancel()
    await asyncio.wait(line.tasks)


async def beats(client: LockClient, before: int, began: float) -> bool:
    """Whether a second has passed; meanwhile one command a quarter of a second was sent at most, with two to spare."""
    passed = monotonic() - began
    assert client.statistics().commands - before <= passed / 0.25 + 2
    return passed > 1
