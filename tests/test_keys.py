"""The keys of a name: no two names share one that only aiolock has, and no name reaches a key of another one."""

import asyncio
from itertools import permutations, product
from random import Random

import pytest
from redis.asyncio import Redis

from aiolock import LockClient, LockConfig, NotHeldError
from aiolock._keys import ONCE_KEY, TOKENS_KEY, LockKeys, is_braced, key_of, mark_key
from aiolock._types import LONGEST_TEXT
from tests.support.observe import until

OWN = ["aiolock_token", "aiolock_once", "aiolock_once_token", "aiolock_mark"]
PARTS = ["{", "}", ":", "a", "b", "1", "timeout", "rwlock_timeout", *OWN]
RANDOM = Random(1)
NAMES = sorted({"".join(RANDOM.choices(PARTS, k=RANDOM.randint(1, 8))) for _ in range(150)})
MAKERS = (LockKeys.of, LockKeys.of_fair, LockKeys.of_counting_semaphore, LockKeys.of_latch, LockKeys.of_once)


def keys_of(name: str) -> set[str]:
    """All that the primitives of *name* have in Redis; nothing for a name that is refused."""
    try:
        every = [make(name, "") for make in MAKERS]
    except ValueError:
        return set()
    if not is_braced(name):
        every += [LockKeys.of_permits(name, ""), *LockKeys.of_read_write(name, "")]
    records = {f"{keys.record[0]}a:1{keys.record[1]}" for keys in every if keys.record is not None}
    return {key for keys in every for key in (*keys.all, mark_key(keys))} | records


def test_two_names_share_no_key() -> None:
    keys = {name: keys_of(name) for name in NAMES}
    assert sum(map(bool, keys.values())) > 50, "most names are refused"
    assert [(one, other) for one, other in permutations(NAMES, 2) if keys[one] & keys[other]] == []


def test_names_that_look_alike_share_no_key() -> None:
    alike = ("a", "{a}", ":{a}", "{{a}", "a}", "{a}}", "{a}:timeout", "{{a}}:timeout", "{a}:a:1:rwlock_timeout:1")
    assert [(one, other) for one, other in permutations(alike, 2) if keys_of(one) & keys_of(other)] == []


def test_a_once_shares_no_key_with_a_lock() -> None:
    allowed = [name for name in NAMES if keys_of(name)]
    for keys, others in product(
        (LockKeys.of_once(name, "") for name in allowed), [LockKeys.of(each, "") for each in allowed]
    ):
        assert not {*keys.all, mark_key(keys)} & {*others.all, mark_key(others)}


def test_a_name_is_read_from_its_keys() -> None:
    for name in filter(keys_of, NAMES):
        assert key_of(LockKeys.of(name, "").tokens.removeprefix(TOKENS_KEY)) == name
        assert key_of(LockKeys.of_once(name, "").lock.removeprefix(ONCE_KEY)) == name


@pytest.mark.parametrize("own", ["", ":", "{}", ":a", "a", "{a}:b", "{a"])
def test_a_key_that_is_not_aiolocks_has_no_name(own: str) -> None:
    assert key_of(own) is None


@pytest.mark.parametrize(
    "name",
    [
        "{orders}:timeout",
        "x{orders}y:timeout",
        "{orders\n7}:timeout",
        "{orders}:7b1:4:rwlock_timeout:12",
        "redisson_lock_queue:{orders}",
        "redisson_lock_timeout:{orders}",
        "redisson_lock_token:{orders}",
        "redisson_unlock_latch:{orders}:7b1",
    ],
)
async def test_a_name_that_would_be_a_key_of_redissons_is_refused(locks: LockClient, name: str) -> None:
    for make in (locks.lock, locks.fair_lock, locks.read_write_lock, locks.semaphore, locks.counting_semaphore):
        with pytest.raises(ValueError, match="which Redisson uses for another name"):
            make(name)
    for allowed in ("orders:timeout", "{orders}:timeout:x", "redisson_lock_queue", "a:rwlock_timeout:1"):
        locks.lock(allowed)


async def test_a_name_wholly_in_braces_is_refused_where_redisson_shares_keys(locks: LockClient) -> None:
    for make in (locks.read_write_lock, locks.semaphore):
        with pytest.raises(ValueError, match=r"the key '\{orders\}' would share further keys with 'orders'"):
            make("{orders}")
        for allowed in ("{orders}:7", "x{orders}", "{a}{b}"):
            make(allowed)


async def test_x_and_x_in_braces_are_two(locks: LockClient, other: LockClient) -> None:
    """Each name has its own bodies that run once, its own line of a fair lock, and its own tokens."""

    async def result(said: str) -> str:
        return said

    assert await locks.once("x", keep=60).run(lambda: result("of x")) == "of x"
    assert await other.once("{x}", keep=60).run(lambda: result("of {x}")) == "of {x}"
    first = await locks.lock("x").acquire()
    assert await other.fair_lock("{x}").try_lock()
    assert await other.fair_lock("x").try_lock() is None
    await first.release()
    assert await other.fair_lock("x").try_lock()


async def test_a_name_may_have_1024_bytes_with_its_prefix(redis: Redis, locks: LockClient) -> None:
    longest = "é" * (LONGEST_TEXT // 2)
    async with locks.lock(longest, owner=longest):
        pass
    for make in (locks.lock, locks.fair_lock, locks.read_write_lock, locks.semaphore, locks.counting_semaphore):
        with pytest.raises(ValueError, match="at most 1024 bytes, not 1025") as raised:
            make(f"{longest}x")
        assert len(str(raised.value)) < 300
    async with LockClient(redis, config=LockConfig(prefix="x" * 1000)) as client:
        client.lock("é" * 12)
        with pytest.raises(ValueError, match="makes a key of 1025 bytes, the prefix included"):
            client.lock("é" * 12 + "a")
    with pytest.raises(ValueError, match="owner must be at most 1024 bytes"):
        locks.lock("orders", owner=f"{longest}x")


async def test_messages_and_logs_leave_the_middle_of_a_long_name_out(
    locks: LockClient, caplog: pytest.LogCaptureFixture
) -> None:
    name = "orders:" + "x" * 1000 + ":42"
    lock = locks.lock(name)
    with pytest.raises(NotHeldError, match=r"'orders:x+\.\.\.x+:42'") as raised:
        await lock.release()
    assert raised.value.name == name
    assert len(str(raised.value)) < 500
    assert len(repr(lock)) < 200

    async def forget() -> None:
        await lock.acquire()

    await asyncio.create_task(forget())
    await until(lambda: bool(caplog.records))
    [record] = caplog.records
    assert len(record.getMessage()) < 500
    assert vars(record)["lock_name"] == name
