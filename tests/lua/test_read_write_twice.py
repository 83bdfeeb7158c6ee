"""Every script of a read-write lock, from every reachable state: a second copy gets the same answer, and no change."""

import inspect
from collections.abc import Awaitable, Callable

import pytest
from redis.asyncio import Redis

from aiolock._scripts.replies import EXPIRED, FORCED, FREED, GRANTED, LOST, NOT_A_LOCK, REFUSED, STALE, TAKEN
from tests.lua import read_write as states
from tests.lua.read_write import LEASE, Reply, Sight, State, Table

COMMANDS: dict[str, Callable[[Table], Awaitable[Reply]]] = {
    "read": lambda table: table.acquire("read"),
    "write": lambda table: table.acquire("write"),
    "read_3": lambda table: table.acquire("read", step=3, holds=3),
    "write_3": lambda table: table.acquire("write", step=3, holds=3),
    "unread": lambda table: table.release("read"),
    "unwrite": lambda table: table.release("write"),
    "unread_1": lambda table: table.release("read", step=4, left=1),
    "renew_r": lambda table: table.renew("read"),
    "renew_w": lambda table: table.renew("write"),
    "force_r": lambda table: table.force("read"),
    "force_w": lambda table: table.force("write"),
    "inspect": lambda table: table.inspect(),
}

# A cell has the answer, and after "=" the holders afterwards with their counts, a writer in capitals; without "=" the
# lock stays.
TABLE = """
                           read         write      read_3       write_3      unread       unwrite      unread_1   renew_r    renew_w force_r     force_w     inspect
free                       granted=m1   granted=M1 expired      expired      expired      expired      expired    expired    expired nobody      nobody      0
i_read                     granted      refused    granted=m3   expired      granted=free expired      granted    granted    expired forced=free nobody      1
i_read_twice               granted      refused    granted=m3   expired      granted=free expired      granted=m1 granted    expired forced=free nobody      1
we_read                    granted      refused    granted=m3o1 taken        granted=o1   taken        granted    granted    taken   forced=free nobody      2
i_write                    granted=M1m1 granted    expired      granted=M3   expired      granted=free expired    expired    granted nobody      forced=free 1
i_write_and_read           granted      granted    granted=M1m3 granted=M3m1 granted=M1   granted=m1   granted    granted    granted forced=M1   forced=m1   2
others_read                granted=m1o1 refused    expired      taken        expired      taken        expired    expired    taken   forced=free nobody      1
others_write               refused      refused    taken        taken        taken        taken        taken      taken      taken   nobody      forced=free 1
earlier_read               refused      refused    expired      expired      expired      expired      expired    expired    expired forced=free nobody      1
earlier_write              granted=M1m1 refused    expired      expired      expired      expired      expired    expired    expired nobody      forced=free 1
i_wait_to_write            refused      refused    expired      taken        expired      taken        expired    expired    taken   forced=free nobody      1
i_wait_to_read             refused      refused    taken        taken        taken        taken        taken      taken      taken   nobody      forced=free 1
writer_is_next             refused      refused    expired      taken        expired      taken        expired    expired    taken   forced=free nobody      1
reader_is_next             granted=m1   refused    expired      expired      expired      expired      expired    expired    expired nobody      nobody      0
read_expired               granted=m1   granted=M1 expired      expired      expired      expired      expired    expired    expired nobody      nobody      0
read_expired_beside_others granted      refused=o1 expired      taken        expired=o1   taken        expired=o1 expired    taken   forced=free nobody      1
write_expired              granted=m1   granted=M1 expired      expired      expired      expired      expired    expired    expired nobody      nobody      0
write_expired_and_i_read   granted      refused=m1 granted=M1m3 expired      granted=free expired=m1   granted    granted=m1 expired forced=free nobody=m1   1
write_was_taken            refused      refused    taken        taken        taken        taken        taken      taken      taken   nobody      forced=free 1
read_freed                 stale        granted=M1 expired      expired      granted      expired      granted    expired    expired nobody      nobody      0
write_freed                granted=m1   stale      expired      expired      expired      granted      expired    expired    expired nobody      nobody      0
given_up                   stale        stale      expired      expired      expired      expired      expired    expired    expired nobody      nobody      0
forced                     stale        stale      forced       forced       forced       forced       forced     forced     forced  nobody      nobody      0
forced_and_taken           stale        stale      forced       forced       forced       forced       forced     forced     forced  nobody      forced=free 1
redisson_reads             granted=j2m1 refused    expired      taken        expired      taken        expired    expired    taken   forced=free nobody      1
redisson_writes            refused      refused    taken        taken        taken        taken        taken      taken      taken   nobody      forced=free 1
forced_by_redisson         granted=m1   granted=M1 expired      expired      expired      expired      expired    expired    expired nobody      nobody      0
string                     foreign      foreign    expired      expired      expired      expired      expired    expired    expired foreign     foreign     foreign
eternal                    foreign      foreign    expired      expired      expired      expired      expired    expired    expired foreign     foreign     foreign
plain_lock                 foreign      foreign    expired      expired      expired      expired      expired    expired    expired foreign     foreign     foreign
note                       foreign      foreign    expired      expired      expired      expired      expired    expired    expired foreign     foreign     foreign
"""  # noqa: E501 - a table is read across

HEAD, *ROWS = (line.split() for line in TABLE.strip().splitlines())
BETWEEN = 500
# Old servers look at the clock again within a script.
ROUNDED = 2


def in_words(command: str, reply: Reply) -> str:
    """A reply as the table has it, without tokens and times."""
    if command == "inspect":
        return "foreign" if reply == [NOT_A_LOCK] else str(len(reply) // 3)
    status, value = reply[:2]
    if status == LOST:
        return {FREED: "freed", EXPIRED: "expired", TAKEN: "taken", FORCED: "forced"}[value]
    if command.startswith("force") and status == GRANTED:
        return "forced" if value else "nobody"
    return {GRANTED: "granted", REFUSED: "refused", STALE: "stale", NOT_A_LOCK: "foreign"}[status]


def test_the_table_has_every_state_and_every_command() -> None:
    made = {name for name, value in vars(states).items() if inspect.iscoroutinefunction(value) and name[0] != "_"}
    assert {row[0] for row in ROWS} == made
    assert list(COMMANDS) == HEAD


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
async def test_once_and_twice(redis: Redis, row: list[str]) -> None:
    state, *cells = row
    for command, cell in zip(HEAD, cells, strict=True):
        await redis.flushall()
        await check(Table(redis), state, command, cell)


async def check(table: Table, state: str, command: str, cell: str) -> None:
    make: State = getattr(states, state)
    await make(table)
    before = await table.look()
    first = await COMMANDS[command](table)
    after = await table.look()
    answer, _, holds = cell.partition("=")
    assert in_words(command, first) == answer
    if holds:
        assert after.holds == holds
    else:
        assert after.lock == before.lock
    check_times(after, state)

    await table.age(BETWEEN)
    once = await table.look()
    second = await COMMANDS[command](table)
    twice = await table.look()
    assert in_words(command, second) == answer
    check_untouched(once, twice)


def check_times(sight: Sight, state: str) -> None:
    """Each of our keys has an end, and the lock has that of the longest hold."""
    assert all(0 < ttl <= LEASE for _, ttl in sight.records.values())
    if sight.records and sight.lock is not None and state not in ("write_was_taken", "forced_by_redisson"):
        assert abs(sight.lock_ttl - max(ttl for _, ttl in sight.records.values())) <= ROUNDED
    assert sight.keys == (sight.lock is not None) + bool(sight.tokens) + len(sight.records), "another key appeared"


def check_untouched(once: Sight, twice: Sight) -> None:
    assert (twice.lock, twice.keys) == (once.lock, once.keys)
    assert twice.lock_ttl <= once.lock_ttl + ROUNDED
    assert {key: dump for key, (dump, _) in twice.records.items()} == {
        key: dump for key, (dump, _) in once.records.items()
    }
    assert all(ttl <= once.records[key][1] + ROUNDED for key, (_, ttl) in twice.records.items())
    assert twice.tokens.keys() == once.tokens.keys()
    kept = {member for member, score in once.tokens.items() if score >= 0}
    assert all(twice.tokens[member] == once.tokens[member] for member in kept)
