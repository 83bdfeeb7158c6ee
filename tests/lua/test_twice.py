"""Every script, from every reachable state: a second copy gets the same answer, and leaves the same state."""

import inspect
from collections.abc import Awaitable, Callable

import pytest

from aiolock._scripts.replies import EXPIRED, FORCED, FREED, GRANTED, LOST, NOT_A_LOCK, REFUSED, STALE, TAKEN
from tests.lua import table as states
from tests.lua.table import KEYS, LEASE, ME, MEMORY, RETENTION, Reply, Sight, State, Table

COMMANDS: dict[str, Callable[[Table], Awaitable[Reply]]] = {
    "acquire": lambda table: table.acquire(),
    "nest": lambda table: table.acquire(step=3, holds=3),
    "release_1": lambda table: table.release(step=4, left=1),
    "release_0": lambda table: table.release(step=4, left=0),
    "clean": lambda table: table.clean(),
    "later": lambda table: table.later(),
    "give_up": lambda table: table.release(step=2, left=0),
    "renew": lambda table: table.renew(),
    "force": lambda table: table.force(),
    "inspect": lambda table: table.inspect(),
}

# A cell has the answer, and after "=" the hold count of this owner afterwards, 0 for no key, K for a key that is kept
# for nobody; without "=" the key stays.
TABLE = """
                    acquire   nest      release_1 release_0 clean     later     give_up   renew     force     inspect
free                granted=1 expired   expired   expired   expired   expired   expired   expired   nobody    free
mine                granted   granted=3 granted=1 granted=0 granted=0 granted=K granted=0 granted=1 forced=0  mine:1
mine_twice          granted   granted=3 granted=1 granted=0 granted=0 granted=K granted=0 granted=2 forced=0  mine:2
others              refused   taken     taken     taken     taken     taken     taken     taken     forced=0  others:1
earlier             refused   taken     taken     taken     taken     taken     taken     taken     forced=0  mine:1
redissons           refused   taken     taken     taken     taken     taken     taken     taken     forced=0  others:2
expired             granted=1 expired   expired   expired   expired   expired   expired   expired   nobody    free
taken               refused   taken     taken     taken     taken     taken     taken     taken     forced=0  others:1
freed               stale     expired   freed     freed     expired   freed     freed     expired   nobody    free
cleanly             granted=1 expired   expired   expired   freed     expired   expired   expired   nobody    free
cleanly_taken       refused   taken     taken     taken     freed     taken     taken     taken     forced=0  others:1
cleanly_renewed     stale     expired   expired   expired   freed     expired   expired   expired   nobody    free
later_cleanly       granted=1 expired   expired   expired   expired   expired   expired   expired   nobody    free
kept                stale     taken     freed     freed     taken     freed     freed     taken     forced=0  others:1
others_kept         refused   taken     taken     taken     taken     taken     taken     taken     forced=0  others:1
given_up            stale     expired   expired   expired   expired   expired   expired   expired   nobody    free
given_up_to_others  stale     taken     taken     taken     taken     taken     taken     taken     forced=0  others:1
forced              stale     forced    forced    forced    forced    forced    forced    forced    nobody    free
forced_and_taken    stale     forced    forced    forced    forced    forced    forced    forced    forced=0  others:1
string              foreign   expired   expired   expired   expired   expired   expired   expired   foreign   foreign
a_list              foreign   expired   expired   expired   expired   expired   expired   expired   foreign   foreign
eternal             foreign   expired   expired   expired   expired   expired   expired   expired   foreign   foreign
record              foreign   expired   expired   expired   expired   expired   expired   expired   foreign   foreign
note                foreign   expired   expired   expired   expired   expired   expired   expired   foreign   foreign
read_write_lock     foreign   expired   expired   expired   expired   expired   expired   expired   foreign   foreign
"""

HEAD, *ROWS = (line.split() for line in TABLE.strip().splitlines())
CELLS = [(row[0], command, cell) for row in ROWS for command, cell in zip(HEAD, row[1:], strict=True)]
BEFORE_THE_CALL = 5_000
BETWEEN = 2_000

each_cell = pytest.mark.parametrize(
    ("state", "command", "cell"), CELLS, ids=[f"{command}-{state}" for state, command, _ in CELLS]
)


async def prepare(table: Table, state: str) -> Sight:
    make: State = getattr(states, state)
    await make(table)
    await table.age(BEFORE_THE_CALL)
    return await table.look()


def in_words(command: str, reply: Reply) -> str:
    """A reply as the table has it, without tokens and times."""
    if command == "inspect" and reply[0] == GRANTED:
        return f"{'mine' if reply[1] == ME.encode() else 'others'}:{reply[2]}" if reply[1:] else "free"
    status, value = (*reply, None)[:2]
    if status == LOST:
        return {FREED: "freed", EXPIRED: "expired", TAKEN: "taken", FORCED: "forced"}[value]
    if command == "force" and status == GRANTED:
        return "forced" if value else "nobody"
    return {GRANTED: "granted", REFUSED: "refused", STALE: "stale", NOT_A_LOCK: "foreign"}[status]


def answer_in(state: str, command: str, cell: str) -> str:
    """The answer in a cell; the release of a freed lock is no error, and gets the answer of the first release."""
    answer = cell.partition("=")[0]
    return "granted" if answer == "freed" and command != "renew" else answer


def test_the_table_has_every_state_and_every_command() -> None:
    made = {name for name, value in vars(states).items() if inspect.iscoroutinefunction(value)}
    assert {row[0] for row in ROWS} == made
    assert list(COMMANDS) == HEAD


@each_cell
async def test_once_and_twice(table: Table, state: str, command: str, cell: str) -> None:
    before = await prepare(table, state)
    first = await COMMANDS[command](table)
    after = await table.look()
    check_answer(first, state, command, cell)
    check_lock(before, after, cell)
    if cell.endswith("=K"):
        assert await table.fields() == {states.KEPT.encode(): b"1"}
    elif not cell.endswith("=0") and "=" in cell:
        assert await table.holds() == int(cell.partition("=")[2])
        assert (await table.fields()).keys() - CHANGES == {ME.encode(), *FIELDS, *table.further}
    check_times(after, state)

    await table.age(BETWEEN)
    once = await table.look()
    second = await COMMANDS[command](table)
    check_same(first, second, command)
    check_untouched(once, await table.look())


def check_answer(reply: Reply, state: str, command: str, cell: str) -> None:
    assert in_words(command, reply) == answer_in(state, command, cell)


def check_lock(before: Sight, after: Sight, cell: str) -> None:
    if "=" not in cell:
        assert after.lock == before.lock
        assert before.lock_ttl - 10_000 < after.lock_ttl <= before.lock_ttl
    elif cell.endswith("=0"):
        assert after.lock is None
    else:
        assert 0 < after.lock_ttl <= LEASE


def check_same(first: Reply, second: Reply, command: str) -> None:
    assert in_words(command, second) == in_words(command, first)
    if command in ("acquire", "nest", "renew"):
        assert second[1] == first[1], "the token"
    left = 3 if command == "inspect" else 2
    if first[left:]:
        assert first[left] - BETWEEN - 1_000 < second[left] <= first[left], "the time left"


def check_untouched(once: Sight, twice: Sight) -> None:
    assert twice.lock == once.lock
    assert once.lock_ttl - 1_000 < twice.lock_ttl <= once.lock_ttl
    assert twice.tokens == once.tokens
    assert once.tokens_ttl - 1_000 < twice.tokens_ttl <= once.tokens_ttl
    assert twice.keys == once.keys


FIELDS = (b"aiolock:acquisition", b"aiolock:token")
# A lock has these fields after the first change.
CHANGES = {b"aiolock:step", b"aiolock:renewal"}


def check_times(sight: Sight, state: str) -> None:
    """Each of our keys has an end."""
    assert state == "eternal" or sight.lock is None or 0 < sight.lock_ttl <= LEASE
    assert not sight.tokens or 0 < sight.tokens_ttl <= RETENTION
    assert sight.keys == (sight.lock is not None) + bool(sight.tokens), "another key appeared"


@pytest.mark.parametrize("command", ["acquire", "nest", "renew"])
@pytest.mark.parametrize("state", ["mine", "mine_twice"])
async def test_a_grant_tells_its_token_and_the_time_left(table: Table, state: str, command: str) -> None:
    await prepare(table, state)
    answer = await COMMANDS[command](table)
    assert answer[1] == int((await table.fields())[b"aiolock:token"])
    lengthened = command != "acquire"
    assert answer[2] > LEASE - BEFORE_THE_CALL if lengthened else 0 < answer[2] <= LEASE - BEFORE_THE_CALL


@pytest.mark.parametrize("state", ["others", "redissons", "earlier", "taken"])
async def test_a_refusal_tells_how_long_the_holder_has(table: Table, state: str) -> None:
    before = await prepare(table, state)
    assert before.lock_ttl - 10_000 < (await table.acquire())[2] <= before.lock_ttl


@pytest.mark.parametrize("command", ["release_0", "give_up"])
@pytest.mark.parametrize(
    ("state", "outcome"),
    [("free", "expired"), ("mine", "freed"), ("others", "taken"), ("forced", "forced"), ("record", "expired")],
)
async def test_the_end_is_remembered_once_with_how_it_came(
    table: Table, state: str, outcome: str, command: str
) -> None:
    await prepare(table, state)
    await COMMANDS[command](table)
    await COMMANDS[command](table)
    ends = {end for end in await table.remembered() if end.endswith(states.MINE.encode())}
    assert ends == {f"{outcome}:{states.MINE}".encode()}


async def test_ends_older_than_the_memory_are_forgotten_and_the_token_is_not(table: Table) -> None:
    await table.acquire("old:a1")
    await table.release("old:a1")
    await table.age(MEMORY - 5_000)
    await table.acquire("young:a1")
    await table.release("young:a1")
    assert await table.remembered() == {b"freed:old:a1", b"freed:young:a1"}
    token = (await table.look()).tokens[b"token"]

    await table.age(6_000)
    await table.force()
    assert await table.remembered() == {b"freed:young:a1", f"expired:{states.REQUEST}".encode()}
    assert (await table.look()).tokens[b"token"] == token


async def test_inspect_tells_the_holder(table: Table) -> None:
    await states.others(table)
    status, holder, holds, left = await table.inspect()
    assert (status, holder, holds) == (GRANTED, states.OTHER.encode(), 1)
    assert LEASE - 10_000 < left <= LEASE


async def test_mark_twice_is_one_mark_with_an_end(table: Table) -> None:
    for _ in range(2):
        assert await table.mark() == [1]
        assert await table.read_mark() == [b"text"]
        assert states.LEASE - 1000 < await table.redis.pttl(states.MARK_KEY) <= states.LEASE
    for _ in range(2):
        assert await table.mark(ms=0) == [1]
        assert await table.read_mark() == [None]


async def test_a_mark_is_taken_away_by_the_hold_that_left_it(table: Table) -> None:
    await table.mark(states.EARLIER, "earlier")
    await table.mark(states.THEIRS, "theirs")
    await table.mark(states.EARLIER, ms=0)
    assert await table.read_mark() == [b"theirs"]
    assert await table.redis.pttl(states.MARK_KEY) > 0


async def test_keys_share_a_slot() -> None:
    assert KEYS.tokens.endswith("{orders:42}")
    assert KEYS.channel == "redisson_lock__channel:{orders:42}"
