"""The user of the documentation may do what aiolock needs, and nothing else."""

import re
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from redis.asyncio import Redis
from redis.exceptions import NoPermissionError

from aiolock import BackendError, Lease, LockClient, LockConfig
from aiolock._embedded_server import Server
from aiolock._keys import LockKeys, mark_key
from tests.deployments.session import held_by_redisson, session
from tests.docs.pages import ROOT, read
from tests.support.observe import commandstats, until

PAGE = read(ROOT / "docs/deployments/one-server.md")
[LINE] = [block.code.text for block in PAGE.blocks if block.code.text.startswith("ACL SETUSER")]
RULES = shlex.split(LINE)
# The further permissions of the other primitives, by their channels, or by their keys if they have no channel.
BESIDE = {
    re.findall(r"(?:&redisson|~aiolock)_([a-z]+)", text)[0]: text
    for block in PAGE.blocks
    if (text := block.code.text).startswith(("~{", "&", "~aiolock_once"))
}
[MARKS] = [block.code.text for block in PAGE.blocks if block.code.text.startswith("~aiolock_mark")]
# The commands with which a client introduces itself; the version of redis-py decides which of them are sent.
OF_THE_CONNECTION = {"auth", "client|setinfo", "client|setname", "client", "hello", "ping", "select", "command"}


@pytest.fixture
async def admin(own: Server) -> AsyncIterator[Redis]:
    async with Redis.from_url(own.url, decode_responses=True) as client:
        yield client


# Names with braces have keys and channels of another form.
with_and_without_braces = pytest.mark.parametrize("prefix", ["shop:", "shop:{a}:"])


async def allow(admin: Redis) -> None:
    await admin.execute_command(*RULES)  # type: ignore[no-untyped-call]


def locker(own: Server, prefix: str = "shop:") -> LockClient:
    config = LockConfig(prefix=prefix, command_timeout=10, client_name="checkout")
    return LockClient.from_url(f"{own.url.replace('//', '//locker:secret@')}", config=config)


@with_and_without_braces
async def test_the_user_may_do_all_that_is_needed_and_no_command_more(prefix: str, own: Server, admin: Redis) -> None:
    await allow(admin)
    await admin.config_resetstat()
    allowed = set(re.findall(r" \+(\w+)", LINE))

    async def all_used() -> bool:
        return allowed <= set(await commandstats(admin)) | OF_THE_CONNECTION

    async with locker(own, prefix) as client, locker(own, prefix) as other:
        await held_by_redisson(admin, client, f"{prefix}orders:42", "orders:42")
        await session(client, other, "orders:42")
        await hand_over(await client.lock("orders:43").acquire(), other)
        await client.ping()
        await until(all_used)
    refused = {entry["object"] for entry in await admin.acl_log()}
    assert refused <= {"client|setinfo", "client"}, "redis-py works without these"


async def test_a_refused_command_is_reported_and_a_lock_is_not_taken_for_something_else(
    own: Server, admin: Redis
) -> None:
    await allow(admin)
    await admin.execute_command("ACL", "SETUSER", "locker", "-hexists")  # type: ignore[no-untyped-call]
    async with (
        LockClient.from_url(own.url, config=LockConfig(prefix="shop:")) as other,
        locker(own) as client,
        other.lock("orders:42"),
    ):
        for use in (client.lock("orders:42").try_lock, client.lock("orders:42").locked):
            with pytest.raises(BackendError, match=r"(?i)permission|can't run this command"):
                await use()


@pytest.mark.parametrize(
    "words",
    [
        ("SET", "shop:anything", "x"),
        ("GET", "aiolock_token:{shop:orders:42}"),
        ("HSET", "elsewhere", "field", "x"),
        ("PUBLISH", "elsewhere", "x"),
        ("FLUSHALL",),
        ("KEYS", "*"),
        ("CONFIG", "GET", "*"),
        ("CLIENT", "KILL", "TYPE", "normal"),
        ("CLIENT", "PAUSE", "1"),
        ("ACL", "LIST"),
        ("SCRIPT", "FLUSH"),
    ],
    ids=" ".join,
)
async def test_the_user_may_do_nothing_else(own: Server, admin: Redis, words: tuple[str, ...]) -> None:
    await allow(admin)
    async with Redis.from_url(own.url, username="locker", password="secret") as user:
        with pytest.raises(NoPermissionError):
            await user.execute_command(*words)  # type: ignore[no-untyped-call]


async def test_a_user_of_locks_only_is_told_of_permissions_and_not_of_a_key_that_is_something_else(
    own: Server, admin: Redis
) -> None:
    """The keys do not exist."""
    await allow(admin)
    async with locker(own, "shop:") as client:
        latch, semaphore = client.count_down_latch("jobs"), client.counting_semaphore("seats", 2)
        for use in (
            latch.count,
            latch.count_down,
            latch.wait,
            semaphore.available,
            semaphore.acquire,
            semaphore.release,
        ):
            with pytest.raises(BackendError, match=r"(?i)permission|can't run this command"):
                await use()


async def hand_over(lease: Lease, other: LockClient) -> None:
    """Another client adopts it, and releases it."""
    async with other.adopt(await lease.detach(60)) as adopted:
        await adopted.renew()


async def use_permits(client: LockClient, other: LockClient) -> None:
    semaphore = client.semaphore("places", 3)
    await hand_over(await semaphore.acquire(permits=2), other)
    theirs = other.semaphore("places", 3)
    async with semaphore.hold(permits=2) as permit:
        await permit.renew()
        assert await theirs.try_acquire(permits=2, wait=0.1) is None
    await semaphore.set_permits(2)
    assert (await semaphore.available(), len(await semaphore.holders())) == (2, 0)
    await theirs.acquire(lease=0.05)
    assert await semaphore.try_acquire(permits=2, wait=10) is not None
    assert await semaphore.force_release()


async def use_read_and_write_locks(client: LockClient, other: LockClient) -> None:
    lock, theirs = client.read_write_lock("report"), other.read_write_lock("report")
    for half in (lock.read, lock.write):
        await hand_over(await half.acquire(), other)
    async with lock.write as writing:
        assert await theirs.read.try_lock(wait=0.1) is None
        async with lock.read, lock.read as reading:
            await reading.renew()
            await writing.renew()
        assert await theirs.write.holder() is not None
    async with theirs.read, lock.read:
        assert len(await lock.read.holders()) == 2
    await theirs.write.acquire()
    assert await lock.write.force_release()


async def count(client: LockClient, other: LockClient) -> None:
    async with client.counting_semaphore("seats", 3).hold(permits=2):
        assert await other.counting_semaphore("seats").drain() == 1
        assert not await other.counting_semaphore("seats").try_acquire(wait=0.1)
    await client.counting_semaphore("seats").add_permits(1)
    assert not await client.counting_semaphore("seats").try_set_permits(2)
    latch = client.count_down_latch("jobs")
    assert await latch.try_set_count(2)
    await latch.count_down()
    assert not await other.count_down_latch("jobs").wait(0.1)
    assert await latch.delete()


async def run_once(client: LockClient, other: LockClient) -> None:
    async def work() -> str:
        return "done"

    slot = await client.slot("nightly", every=3600)
    async with client.once(slot.name, keep=60) as turn:
        assert turn.lease is not None
        await turn.lease.renew()
        assert await other.once(slot.name, keep=60, wait=0.1).run(work) is None
        turn.result = "done before"
    assert await other.once(slot.name, keep=60).run(work) == "done before"
    async with client.leader("scheduler") as term:
        await term.start(work())
    async with client.lock("orders").hold(at_least=60):
        pass
    assert await other.lock("orders").try_lock() is None


@pytest.mark.parametrize(
    ("part", "use"),
    [("sc", use_permits), ("rwlock", use_read_and_write_locks), ("countdownlatch", count), ("once", run_once)],
)
@with_and_without_braces
async def test_the_further_permissions_of_other_primitives_are_enough_and_no_command_too_many(
    prefix: str, own: Server, admin: Redis, part: str, use: Callable[[LockClient, LockClient], Awaitable[None]]
) -> None:
    await allow(admin)
    await admin.execute_command("ACL", "SETUSER", "locker", *shlex.split(BESIDE[part]))  # type: ignore[no-untyped-call]
    await admin.config_resetstat()
    async with locker(own, prefix) as client, locker(own, prefix) as other:
        await use(client, other)
    refused = {entry["object"] for entry in await admin.acl_log()}
    assert refused <= {"client|setinfo", "client"}, "redis-py works without these"
    assert set(re.findall(r" \+(\w+)", BESIDE[part])) <= set(await commandstats(admin))


def keys_and_channels(prefix: str) -> tuple[set[str], set[str]]:
    """The keys that the primitives of one tenant have in Redis, and the channels of their messages."""
    keys, channels = set[str](), set[str]()
    for name in ("orders", "{42}", "a{b}"):
        every = [
            make(name, prefix)
            for make in (
                LockKeys.of,
                LockKeys.of_permits,
                LockKeys.of_counting_semaphore,
                LockKeys.of_latch,
                LockKeys.of_once,
            )
        ]
        for each in (*every, *LockKeys.of_read_write(name, prefix)):
            record = each.record or ("", "")
            keys |= {*each.all, mark_key(each), "owner".join(record) if each.record else each.lock}
            channels |= {each.channel, each.channel_of("client")}
    return keys, channels


async def is_refused(user: Redis, *words: str) -> bool:
    try:
        await user.execute_command(*words)  # type: ignore[no-untyped-call]
    except NoPermissionError:
        return True
    return False


async def test_one_tenant_reaches_all_of_its_own_and_nothing_of_anothers(own: Server, admin: Redis) -> None:
    of_all = [*RULES, *(rule for text in [*BESIDE.values(), MARKS] for rule in shlex.split(text))]
    await admin.execute_command(*of_all)  # type: ignore[no-untyped-call]
    async with Redis.from_url(own.url, username="locker", password="secret") as user:
        for prefix, refused in (("shop:", False), ("bank:", True), ("shopping:", True), ("", True)):
            keys, channels = keys_and_channels(prefix)
            assert {key for key in keys if await is_refused(user, "DEL", key) is not refused} == set()
            assert {name for name in channels if await is_refused(user, "PUBLISH", name, "0") is not refused} == set()


async def test_a_lock_of_another_tenant_is_neither_freed_nor_followed_by_a_lower_token(
    own: Server, admin: Redis
) -> None:
    await allow(admin)
    await admin.execute_command(*shlex.split(LINE.replace("locker", "banker").replace("shop:", "bank:")))  # type: ignore[no-untyped-call]
    as_banker = own.url.replace("//", "//banker:secret@")
    config = LockConfig(prefix="bank:")
    async with LockClient.from_url(as_banker, config=config) as bank, locker(own, "bank:") as thief:
        lease = await bank.lock("vault").acquire()
        with pytest.raises(BackendError, match=r"(?i)no permissions|can't access"):
            await thief.lock("vault").force_release()
        await lease.release()
        assert (await bank.lock("vault").acquire()).token > lease.token


async def test_a_lock_outside_of_the_prefix_is_refused_with_words(own: Server, admin: Redis) -> None:
    await allow(admin)
    url = own.url.replace("//", "//locker:secret@")
    async with LockClient.from_url(url, config=LockConfig(prefix="bank:")) as client:
        with pytest.raises(BackendError, match=r"(?i)no permissions|can't access"):
            await client.lock("orders:42").acquire()
