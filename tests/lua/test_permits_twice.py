"""Every script of a semaphore, from every reachable state: a second copy gets the same answer, and changes nothing."""

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from redis.asyncio import Redis

from aiolock._scripts.replies import EXPIRED, FORCED, FREED, GRANTED, LOST, NOT_A_LOCK, REFUSED, STALE
from tests.lua import permits as states
from tests.lua.permits import COUNT, LEASE, MINE, THEIRS, TOKENS, Reply, Sight, State, Table

COMMANDS: dict[str, Callable[[Table], Awaitable[Reply]]] = {
    "acquire": lambda table: table.acquire(),
    "release": lambda table: table.release(),
    "renew": lambda table: table.renew(),
    "force": lambda table: table.force(),
    "set_to_5": lambda table: table.resize(permits=5),
    "add_1": lambda table: table.resize(more=1),
    "inspect": lambda table: table.inspect(),
}

# A cell has the answer, and after "=" the available permits afterwards; without "=" their number stays.
TABLE = """
                  acquire    release    renew     force      set_to_5   add_1      inspect
unknown           granted=1  expired    expired   nobody     granted=5  granted=4  unknown:0
free              granted=1  expired    expired   nobody     granted=5  granted=4  granted:3
mine              granted    granted=3  granted   forced=3   granted=3  granted=2  granted:1
others            refused    expired    expired   forced=3   granted=3  granted=2  granted:1
awaited           refused    expired    expired   forced=3   granted=3  granted=2  granted:1
kept_for_others   refused    expired    expired   forced=3   granted=4  granted=3  granted:2
expired           granted=1  expired=3  expired=3 nobody=3   granted=3  granted=2  granted:3
freed             stale      granted    expired   nobody     granted=5  granted=4  granted:3
given_up          stale      expired    expired   nobody     granted=5  granted=4  granted:3
forced            stale      forced     forced    nobody     granted=5  granted=4  granted:3
redissons         refused    expired    expired   forced=3   granted=3  granted=2  granted:1
text              foreign    expired    expired   foreign    foreign    foreign    foreign:0
a_list            foreign    expired    expired   foreign    foreign    foreign    foreign:0
digits            foreign    expired    expired   foreign    foreign    foreign    foreign:0
replaced          granted    granted    granted   foreign    foreign    foreign    foreign:0
no_permits        foreign    expired    expired   foreign    foreign    foreign    foreign:0
"""

HEAD, *ROWS = (line.split() for line in TABLE.strip().splitlines())
CELLS = [(row[0], command, cell) for row in ROWS for command, cell in zip(HEAD, row[1:], strict=True)]
# The first in line may be silent for 700 ms, and this leaves most of them to a busy machine.
BETWEEN = 100

each_cell = pytest.mark.parametrize(
    ("state", "command", "cell"), CELLS, ids=[f"{command}-{state}" for state, command, _ in CELLS]
)


@pytest.fixture
def table(redis: Redis) -> Table:
    return Table(redis)


def in_words(command: str, reply: Reply) -> str:
    """A reply as the table has it, without tokens and times."""
    status, value = reply[:2]
    if command == "inspect":
        return f"{ {GRANTED: 'granted', REFUSED: 'unknown', NOT_A_LOCK: 'foreign'}[status] }:{value}"
    if status == LOST:
        return {FREED: "freed", EXPIRED: "expired", FORCED: "forced"}[value]
    if command == "force" and status == GRANTED:
        return "forced" if value else "nobody"
    return {GRANTED: "granted", REFUSED: "refused", STALE: "stale", NOT_A_LOCK: "foreign"}[status]


def test_the_table_has_every_state_and_every_command() -> None:
    made = {name for name, value in vars(states).items() if inspect.iscoroutinefunction(value)}
    assert {row[0] for row in ROWS} == made
    assert list(COMMANDS) == HEAD


@each_cell
async def test_once_and_twice(table: Table, state: str, command: str, cell: str) -> None:
    make: State = getattr(states, state)
    await make(table)
    before = await table.look()
    first = await COMMANDS[command](table)
    after = await table.look()
    assert in_words(command, first) == cell.partition("=")[0]
    if "=" in cell:
        assert await table.available() == int(cell.partition("=")[2])
    else:
        assert after.count == before.count

    await table.age(BETWEEN)
    once = await table.look()
    second = await COMMANDS[command](table)
    twice = await table.look()
    assert in_words(command, second) == in_words(command, first)
    check_untouched(once, twice, command)


def check_untouched(once: Sight, twice: Sight, command: str) -> None:
    # A second renewal prolongs the permits again.
    if command == "renew":
        assert once.permits.keys() == twice.permits.keys()
        twice = replace(twice, permits=once.permits)
    # A repeated grant has a later token, and the turn begins again.
    if command == "acquire":
        assert once.tokens.get(b"token", 0) <= twice.tokens.get(b"token", 0)
        assert once.tokens.keys() == twice.tokens.keys()
        once, twice = (replace(sight, tokens={}) for sight in (once, twice))
    assert twice == once


async def test_a_grant_tells_the_time_left_and_when_others_may_be_granted(table: Table) -> None:
    status, token, left, others, free = await table.acquire()
    assert (status, left, others, free) == (GRANTED, LEASE, 0, 1)
    await table.age(1_000)
    again = await table.acquire()
    assert LEASE - 10_000 < again[2] <= LEASE - 1_000
    assert again[1] > token
    *_, others, free = await table.acquire(THEIRS, number=1, ms=10_000)
    assert 5_000 < others <= 10_000
    assert free == 0


async def test_a_refusal_tells_when_the_next_permit_expires(table: Table) -> None:
    await table.acquire(THEIRS, number=3, ms=10_000)
    status, _, again, *_ = await table.acquire(number=1)
    assert status == REFUSED
    assert 5_000 < again <= 10_000


async def test_a_permit_of_another_that_has_expired_is_put_back_by_the_next_acquire(table: Table) -> None:
    await table.acquire(THEIRS, number=3, ms=1_000)
    await table.age(1_000)
    assert (await table.acquire())[0] == GRANTED
    assert await table.available() == 1
    assert (await table.release(THEIRS, number=3))[:2] == [LOST, EXPIRED]
    assert await table.available() == 1


@pytest.mark.parametrize("call", ["release", "renew"])
async def test_an_acquisition_that_lost_its_first_permit_has_the_others_put_back(table: Table, call: str) -> None:
    """A Java service whose clock is ahead takes the permits that have expired by that clock, one by one."""
    await table.acquire()
    await table.redis.zrem("{places}:timeout", f"{MINE}#1")
    await table.redis.incr("places")
    assert (await getattr(table, call)())[:2] == [LOST, EXPIRED]
    assert await table.available() == 3
    assert not (await table.look()).permits


async def test_a_repeated_grant_also_says_that_others_may_be_granted(table: Table) -> None:
    await table.acquire()
    assert (await table.acquire())[3] == 0
    await table.acquire(THEIRS, number=1)
    assert (await table.acquire())[3] > 0


async def test_an_unseen_grant_that_is_over_is_put_back_before_the_next_one(table: Table) -> None:
    """Many other permits are over, too; the scripts put them back by and by."""
    await table.resize(permits=400, request="operator:r0")
    for number in range(200):
        await table.acquire(f"other:1#{number}", number=1, ms=1_000)
    await table.acquire()
    await table.age(LEASE)
    assert (await table.acquire())[0] == GRANTED
    sight = await table.look()
    assert await table.available() + len(sight.permits) == 400


async def test_a_renewal_never_shortens(table: Table) -> None:
    await table.acquire()
    before = await table.look()
    status, _, left = await table.renew(ms=1_000)
    assert status == GRANTED
    assert left > LEASE - 1_000
    assert (await table.look()).permits == before.permits


async def test_ends_that_no_command_can_be_late_for_are_forgotten(table: Table) -> None:
    await states.freed(table)
    await table.acquire("me:1#3")
    await table.release("me:1#3", forget=MINE)
    assert (await table.look()).tokens.keys() == {b"token", b"me:1#3"}


async def test_permits_end_with_the_semaphore_that_java_gave_an_end(table: Table) -> None:
    await states.free(table)
    await table.redis.pexpire("places", 5_000)
    await table.acquire()
    assert 0 < await table.redis.pttl("{places}:timeout") <= 5_000


async def test_a_grant_that_is_sent_again_takes_no_more_though_there_are_enough(table: Table) -> None:
    for _ in range(2):
        assert (await table.acquire(number=1))[0] == GRANTED
        assert await table.available() == 2


async def test_expired_permits_are_put_back_though_there_are_enough(table: Table) -> None:
    await table.acquire(THEIRS, number=1)
    await table.age(LEASE)
    assert (await table.acquire(number=1))[0] == GRANTED
    assert await table.available() == 2


async def test_a_token_grows_by_one_when_the_clock_has_stepped_back(table: Table) -> None:
    future = (await table.redis.time())[0] * 1_000_000 + 3_600_000_000
    await table.redis.zadd(TOKENS, {"token": future})
    assert (await table.acquire(number=1))[:2] == [GRANTED, future + 1]
    assert (await table.acquire(THEIRS, number=1))[:2] == [GRANTED, future + 2]


async def test_a_grant_of_the_last_permits_says_when_the_next_expires(table: Table) -> None:
    await table.acquire(THEIRS, number=1, ms=5_000)
    status, _, _, soon, left = await table.acquire(number=2)
    assert (status, left) == (GRANTED, 0)
    assert 0 < soon <= 5_000


async def test_permits_that_are_acquired_count_when_their_number_was_forgotten(table: Table) -> None:
    """Redis may have evicted the key of the number alone."""
    await table.acquire(THEIRS, number=1)
    await table.redis.delete(COUNT)
    assert (await table.acquire(number=3))[0] == REFUSED
    assert await table.available() == 2


async def test_a_release_restores_no_number_of_permits_that_was_forgotten(table: Table) -> None:
    await table.acquire(number=1)
    await table.redis.delete(COUNT)
    assert (await table.release(number=1))[0] == GRANTED
    assert (await table.look()).count is None
