"""Input that cannot work is refused at the call, before Redis is touched, and with words that say what to do."""

import asyncio
import math
import threading
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from functools import partial
from itertools import product
from typing import Any

import pytest
import redis as synchronous
from redis.asyncio import BlockingConnectionPool, Redis, RedisCluster
from redis.asyncio.sentinel import Sentinel
from redis.crc import key_slot

from aiolock import AsyncRLock, ClientClosedError, LeaseLostError, LockClient, LockConfig, NotALockError
from aiolock._embedded_server import Server
from aiolock._keys import LockKeys, stays_together
from tests.support.calls import CALLS
from tests.support.observe import commandstats


async def enter(lock: AsyncRLock, **arguments: Any) -> None:
    async with lock.hold(**arguments):
        pytest.fail("entered")


async def accepted(
    values: Iterable[object], use: Callable[[Any], Awaitable[object]], error: type[Exception], words: str
) -> list[object]:
    """The *values* that are not refused by this *error* with these *words*."""
    found = []
    for value in values:
        try:
            await use(value)
        except error as refusal:
            if words in str(refusal):
                continue
        found.append(value)
    return found


# Each function takes a value as a lease, or as a wait.
LEASES: dict[str, Callable[[AsyncRLock, Any], Awaitable[object]]] = {
    "acquire": lambda lock, value: lock.acquire(lease=value),
    "try_lock": lambda lock, value: lock.try_lock(0, value),
    "hold": lambda lock, value: enter(lock, lease=value),
}
WAITS: dict[str, Callable[[AsyncRLock, Any], Awaitable[object]]] = {
    "try_lock": lambda lock, value: lock.try_lock(value),
    "hold": lambda lock, value: enter(lock, wait=value),
}


@pytest.mark.parametrize(
    ("call", "what"), [*((call, "lease") for call in LEASES.values()), *((call, "wait") for call in WAITS.values())]
)
async def test_a_duration_of_another_type_is_a_type_error(
    locks: LockClient, lock: AsyncRLock, call: Callable[[AsyncRLock, Any], Awaitable[object]], what: str
) -> None:
    values = ("1", b"1", True, False, [1], object(), 1j, Decimal(1))
    assert await accepted(values, lambda value: call(lock, value), TypeError, f"{what} must be seconds") == []
    assert locks.statistics().commands == 0


IMPOSSIBLE = [-1, -0.001, math.nan, math.inf, -math.inf, 1.1e9, 10**400, timedelta(seconds=-1), timedelta.max]


@pytest.mark.parametrize("call", LEASES.values(), ids=LEASES)
async def test_a_lease_that_cannot_work_is_a_value_error(
    locks: LockClient, lock: AsyncRLock, call: Callable[[AsyncRLock, Any], Awaitable[object]]
) -> None:
    values = (*IMPOSSIBLE, 0, 0.0, timedelta(0), 0.0009, 1e-9, timedelta(microseconds=999))
    assert await accepted(values, lambda value: call(lock, value), ValueError, "lease must be") == []
    assert locks.statistics().commands == 0


@pytest.mark.parametrize("call", WAITS.values(), ids=WAITS)
async def test_a_wait_that_cannot_work_is_a_value_error(
    locks: LockClient, lock: AsyncRLock, call: Callable[[AsyncRLock, Any], Awaitable[object]]
) -> None:
    assert await accepted(IMPOSSIBLE, lambda value: call(lock, value), ValueError, "wait must be") == []
    assert locks.statistics().commands == 0


async def test_hold_refuses_when_called_not_when_entered(lock: AsyncRLock) -> None:
    with pytest.raises(ValueError, match="lease must be"):
        lock.hold(lease=0)
    with pytest.raises(TypeError, match="wait must be"):
        lock.hold("2")  # type: ignore[arg-type]


@pytest.mark.parametrize(("value", "error"), [(0, ValueError), (math.nan, ValueError), ("1", TypeError)])
async def test_a_renewal_by_an_impossible_duration_is_refused(
    lock: AsyncRLock, redis: Redis, value: Any, error: type[Exception]
) -> None:
    lease = await lock.acquire(lease=5)
    with pytest.raises(error, match="lease must be"):
        await lease.renew(value)
    assert 0 < await redis.pttl("orders") <= 5_000
    await lease.release()


@pytest.mark.parametrize("name", [None, 7, b"orders", ["orders"]])
async def test_a_name_or_an_owner_of_another_type_is_a_type_error(locks: LockClient, name: Any) -> None:
    with pytest.raises(TypeError, match="name must be a str, not"):
        locks.lock(name)
    if name is not None:
        with pytest.raises(TypeError, match="owner must be a str, not"):
            locks.lock("orders", owner=name)


@pytest.mark.parametrize(("name", "why"), [("", "must not be empty"), ("\ud800", "cannot be encoded as UTF-8")])
async def test_a_name_or_an_owner_that_cannot_be_a_key_is_a_value_error(locks: LockClient, name: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"name {why}"):
        locks.lock(name)
    with pytest.raises(ValueError, match=f"owner {why}"):
        locks.lock("orders", owner=name)


@pytest.mark.parametrize(
    ("prefix", "name"),
    [("", "aiolock_token:{orders}"), ("", "aiolock_mark:1"), ("aiolock_", "token:x")],
)
async def test_a_name_whose_key_is_one_of_aiolocks_own_is_a_value_error(redis: Redis, prefix: str, name: str) -> None:
    async with LockClient(redis, config=LockConfig(prefix=prefix)) as locks:
        with pytest.raises(ValueError, match="aiolock's own"):
            locks.lock(name)

        @locks.synchronized("{name}")
        async def under(name: str) -> None:
            pytest.fail("entered")

        with pytest.raises(ValueError, match="aiolock's own"):
            await under(name)
        assert locks.statistics().commands == 0


async def test_a_name_that_only_resembles_aiolocks_own_keys_is_a_name(redis: Redis) -> None:
    async with LockClient(redis, config=LockConfig(prefix="app:")) as locks:
        for name in ("aiolock_token:{orders}", "aiolock_tokens", "my aiolock_mark:1"):
            async with locks.lock(name) as lease:
                assert lease.name == name


async def test_a_permit_that_is_no_lease_is_a_type_error(locks: LockClient) -> None:
    semaphore = locks.semaphore("desks", 2)
    calls: tuple[Callable[[Any], Awaitable[object]], ...] = (semaphore.release, semaphore.renew)
    values = ("1234", b"1234", 7, object(), locks.lock("orders"))
    for call in calls:
        assert await accepted(values, call, TypeError, "permit must be a Lease") == []
    assert locks.statistics().commands == 0


async def test_a_permit_of_several_locks_is_a_type_error(locks: LockClient) -> None:
    semaphore = locks.semaphore("desks", 2)
    async with locks.multi(semaphore) as several:
        assert await accepted([several], semaphore.release, TypeError, "permit must be a Lease") == []


async def test_work_that_cannot_be_called_is_a_type_error(locks: LockClient) -> None:
    once = locks.once("report", keep=60, failures="remember")
    values = ("make_report", 7, None)
    assert await accepted(values, once.run, TypeError, "function must be a function") == []
    assert await accepted(values, locks.leader("nightly").run, TypeError, "work must be a function") == []
    assert locks.statistics().commands == 0


@pytest.mark.parametrize(
    ("url", "error"), [(7, TypeError), (None, TypeError), (b"redis://", TypeError), ("", ValueError)]
)
def test_an_invalid_url_is_refused(url: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="URL must"):
        LockClient.from_url(url)


def test_the_refusal_of_a_url_does_not_show_its_password() -> None:
    class Dsn:
        """A URL of a library for settings."""

        def __repr__(self) -> str:
            return "Dsn('redis://:secret@localhost')"

    dsn: Any = Dsn()
    with pytest.raises(TypeError, match=r"^URL must be a str, such as str\(url\), not Dsn$"):
        LockClient.from_url(dsn)
    with pytest.raises(ValueError, match=r"^URL must be text that can be encoded as UTF-8$"):
        LockClient.from_url("redis://:secret\udcff@localhost")


def test_the_password_in_a_url_may_be_a_long_token() -> None:
    assert LockClient.from_url(f"redis://:{'t' * 4000}@localhost").statistics().held == 0


def make_sentinel() -> Any:
    return Sentinel([("127.0.0.1", 1)])  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: None, r"builtins\.NoneType$"),
        (lambda: Redis, r"class: give an object of it, as in LockClient\(Redis\(host=\.\.\.\)\)$"),
        (lambda: LockClient, r"class: give an object of it, as in LockClient\(Redis\(host=\.\.\.\)\)$"),
        (lambda: "redis://localhost", r"builtins\.str: give it to LockClient\.from_url$"),
        (lambda: Redis().pipeline(), r"redis\.asyncio\.client\.Pipeline: give the Redis that made it$"),
        (make_sentinel, r"redis\.asyncio\.sentinel\.Sentinel: give sentinel\.master_for\(name\)$"),
        (lambda: make_sentinel().slave_for("primary"), r"Redis for replicas: give sentinel\.master_for\(name\)$"),
        (BlockingConnectionPool, r"[a-z.]+\.BlockingConnectionPool: give Redis\(connection_pool=pool\)$"),
        (synchronous.Redis, r"redis\.client\.Redis, which is synchronous: use that of redis\.asyncio$"),
    ],
)
def test_a_client_that_is_no_asyncio_redis_is_a_type_error_with_advice(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(TypeError, match=rf"LockClient needs a redis\.asyncio\.Redis or RedisCluster, not a {said}"):
        LockClient(make())


@pytest.mark.parametrize("config", [{"lease": 5}, 30, "prefix", LockConfig])
async def test_an_object_that_is_no_config_is_a_type_error(redis: Redis, config: Any) -> None:
    with pytest.raises(TypeError, match="config must be a LockConfig, not"):
        LockClient(redis, config=config)
    with pytest.raises(TypeError, match="config must be a LockConfig, not"):
        LockClient.from_url("redis://localhost", config=config)


async def test_a_bad_url_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="scheme"):
        LockClient.from_url("http://localhost")


# A key that is something else.


async def a_string(redis: Redis) -> None:
    await redis.set("orders", "value", px=60_000)


async def a_list(redis: Redis) -> None:
    await redis.rpush("orders", "value")


async def a_hash_without_an_end(redis: Redis) -> None:
    await redis.hset("orders", "uuid:1", "1")


async def a_record(redis: Redis) -> None:
    await redis.hset("orders", mapping={"visits": "1", "basket": "2"})
    await redis.pexpire("orders", 60_000)


async def a_read_write_lock(redis: Redis) -> None:
    await redis.hset("orders", mapping={"mode": "write", "uuid:1:write": "1"})
    await redis.pexpire("orders", 60_000)


each_foreign = pytest.mark.parametrize(
    "foreign",
    [a_string, a_list, a_hash_without_an_end, a_record, a_read_write_lock],
    ids=lambda make: make.__name__,
)


@each_foreign
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_a_key_that_is_no_lock_is_refused_at_once_and_left_alone(
    lock: AsyncRLock,
    redis: Redis,
    foreign: Callable[[Redis], Awaitable[None]],
    call: Callable[[AsyncRLock], Awaitable[object]],
) -> None:
    await foreign(redis)
    before = await redis.dump("orders")
    async with asyncio.timeout(5):
        with pytest.raises(NotALockError, match="use another name, or a prefix of its own") as caught:
            await call(lock)
    assert caught.value.name == "orders"
    assert await redis.dump("orders") == before
    assert lock.statistics().parked == 0


@each_foreign
async def test_a_key_that_became_something_else_is_a_loss_to_its_holder(
    lock: AsyncRLock, redis: Redis, foreign: Callable[[Redis], Awaitable[None]]
) -> None:
    lease = await lock.acquire()
    await redis.delete("orders")
    await foreign(redis)
    before = await redis.dump("orders")
    with pytest.raises(LeaseLostError):
        await lock.acquire()
    assert lease.lost.is_set()
    with pytest.raises(LeaseLostError):
        await lock.release()
    assert await redis.dump("orders") == before


# A client in the wrong place.


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_use_in_another_loop_and_thread_is_refused_at_once(
    lock: AsyncRLock, redis: Redis, call: Callable[[AsyncRLock], Awaitable[object]]
) -> None:
    await lock.locked()
    before = await commandstats(redis)
    errors: list[BaseException] = []

    async def use() -> None:
        async with asyncio.timeout(2):
            await call(lock)

    def elsewhere() -> None:
        try:
            asyncio.run(use())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=elsewhere, daemon=True)
    thread.start()
    await asyncio.to_thread(thread.join, 10)
    assert [type(error) for error in errors] == [ClientClosedError]
    assert [str(error) for error in errors] == [
        "this LockClient belongs to another event loop; each loop needs a client of its own, even that of a TestClient"
    ]
    after = await commandstats(redis)
    assert after.get("eval", 0) + after.get("evalsha", 0) == before.get("eval", 0) + before.get("evalsha", 0)


async def test_closing_entering_and_giving_back_in_another_loop_is_refused_too(
    locks: LockClient, lock: AsyncRLock
) -> None:
    lease = await lock.acquire()

    async def use(call: Callable[[], Awaitable[object]]) -> None:
        async with asyncio.timeout(2):
            await call()

    for call in (locks.aclose, locks.__aenter__, lock.release, lease.release, lease.renew):
        with pytest.raises(ClientClosedError, match="another event loop"):
            await asyncio.to_thread(asyncio.run, use(call))
    assert await lock.hold_count() == 1
    await lease.release()


def test_use_in_a_later_loop_is_refused_at_once(server: Server) -> None:
    locks = LockClient.from_url(server.url)

    async def first() -> None:
        async with locks.lock("orders"):
            pass
        await locks.aclose()

    async def second() -> None:
        with pytest.raises(ClientClosedError, match="another event loop"):
            await locks.lock("orders").try_lock()

    asyncio.run(first())
    asyncio.run(second())


def test_use_without_asyncio_says_so() -> None:
    locks = LockClient(Redis())
    lock = locks.lock("orders")
    uses = (locks.__aenter__, locks.ping, lock.acquire, lock.locked, lock.__aenter__, lock.hold().__aenter__)
    for use in (*uses, locks.leader("jobs").__aenter__, locks.counting_semaphore("seats", 1).acquire, locks.aclose):
        # As trio would run it.
        with pytest.raises(RuntimeError, match="no asyncio task runs here"):
            use().send(None)


def test_locks_and_their_statistics_need_no_loop() -> None:
    locks = LockClient(Redis())
    assert locks.lock("orders").statistics().held == 0
    assert locks.statistics().commands == 0


async def test_making_a_client_and_its_locks_does_no_io() -> None:
    LockClient.from_url("redis://127.0.0.1:1").lock("orders")


# Names in a cluster.


def handles(client: LockClient, name: str) -> list[Callable[[], object]]:
    """Functions that make handles of a name, one each."""
    return [
        partial(make, name)
        for make in (
            client.lock,
            client.multi,
            client.read_write_lock,
            client.counting_semaphore,
            client.semaphore,
            client.count_down_latch,
        )
    ]


@pytest.mark.parametrize("name", ["a{b", "{}x", "x}y{", "a}b", "{}{a}", "a{}b", "}"])
async def test_names_whose_keys_would_be_in_several_slots_are_refused(name: str, locks: LockClient) -> None:
    """No server is there to ask. On a single server these names are like any others."""
    client = LockClient(RedisCluster(host="127.0.0.1", port=1))
    for make in handles(client, name):
        with pytest.raises(ValueError, match="several slots of the cluster: write it without braces, or with one part"):
            make()
    for make in handles(locks, name):
        make()
    async with locks.lock(name), locks.semaphore(f"permits {name}", 1):
        pass


def test_a_cluster_takes_exactly_the_names_with_all_keys_in_one_slot() -> None:
    for length in range(1, 7):
        for letters in product("a{}", repeat=length):
            name = "".join(letters)
            kinds = (LockKeys.of_permits(name, ""), LockKeys.of_latch(name, ""), *LockKeys.of_read_write(name, ""))
            every = [key for keys in kinds for key in (*keys.all, keys.channel)]
            every += ["{o}".join(keys.record) for keys in kinds if keys.record is not None]
            assert (len({key_slot(key.encode()) for key in every}) == 1) == stays_together(name), name


def test_a_prefix_takes_part_in_choosing_the_slot() -> None:
    cluster = RedisCluster(host="127.0.0.1", port=1)
    LockClient(cluster, config=LockConfig(prefix="{shop}:")).lock("a{b")
    with pytest.raises(ValueError, match="several slots"):
        LockClient(cluster, config=LockConfig(prefix="shop{")).lock("a")


class Size(IntEnum):
    LARGE = 2


class Name(str, Enum):  # noqa: UP042
    ORDERS = "orders"


async def test_a_member_of_an_enumeration_counts_as_its_value(locks: LockClient, other: LockClient) -> None:
    """Python writes a member as `Name.ORDERS`, which Redis would not understand, or would take for another name."""
    semaphore, permits = locks.counting_semaphore("seats", Size.LARGE), locks.semaphore("desks", Size.LARGE)
    assert await semaphore.try_acquire(permits=Size.LARGE)
    assert await permits.taking(Size.LARGE).try_acquire() is not None
    assert await locks.count_down_latch("done").try_set_count(Size.LARGE)
    lock = locks.fair_lock(Name.ORDERS, owner=Name.ORDERS)
    assert (lock.name, repr(lock)) == ("orders", "<AsyncFairLock 'orders' owner='orders'>")
    assert await lock.try_lock() is not None
    assert not await other.fair_lock("orders").try_lock()
    assert await other.fair_lock(str(Name.ORDERS)).try_lock() is not None
    await locks.ping()
