"""The output of `ls`, `inspect` and `clients` about the keys in Redis."""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import pytest
from redis.asyncio import Redis

from aiolock import AsyncRLock, LockClient
from aiolock._cli.failure import told_in_words
from aiolock._cli.locks.model import Hold, Lock
from aiolock._cli.locks.names import matching
from aiolock._cli.locks.progress import Progress
from aiolock._cli.locks.reader import Reader
from aiolock._cli.locks.words import aligned, duration, how, rows
from aiolock._cli.output import printable
from aiolock._cli.servers import connected
from aiolock._cli.verb import VerbError
from aiolock._cli.verbs.clients import clients
from aiolock._cli.verbs.inspect import inspect
from aiolock._cli.verbs.ls import ls
from aiolock._embedded_server import Server
from aiolock._identity import Identity
from aiolock._keys import OWN_KEYS, OWN_LOCKS, QUORUM_KEY, LockKeys
from aiolock._scripts import LOCK, Want
from tests.contract.kinds import NAME, Kind, each_kind
from tests.support.cli import Verb, run
from tests.support.holding import foreign, lock_client, seize
from tests.support.observe import all_parked, answered, commandstats, until

JAVA = "b983c153-7421-469a-addb-44fb92259a1b"


async def all_locks(server: Server, pattern: str = "*") -> dict[str, Lock]:
    async with connected(server.url, None) as servers:
        return {lock.name: lock for lock in await Reader(servers).locks(pattern)}


@asynccontextmanager
async def waiting(*waits: Callable[[], Coroutine[Any, Any, object]]) -> AsyncIterator[None]:
    async def each(wait: Callable[[], Coroutine[Any, Any, object]]) -> None:
        await wait()

    tasks = [asyncio.create_task(each(wait)) for wait in waits]
    yield
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def told(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


async def test_a_lock_is_listed_with_all_that_is_known_of_it(server: Server, redis: Redis) -> None:
    async with lock_client(server.url, client_name="shop", prefix="shop:") as locks:
        lease = await locks.lock("orders", owner="nightly").acquire()
        await locks.lock("orders", owner="nightly").acquire()
        found = (await all_locks(server))["shop:orders"]
        [hold] = found.holds
        seconds, microseconds = await redis.time()
    assert (found.kind, found.waiting, found.last_token) == ("lock", 0, lease.token)
    assert (hold.token, hold.holds, hold.library) == (lease.token, 2, "aiolock")
    assert (hold.owner, hold.named) == ("nightly", True)
    assert hold.identity == Identity(socket.gethostname(), os.getpid(), "shop")
    assert hold.as_dict().items() >= hold.identity.as_dict().items()
    assert hold.since == lease.token / 1e6
    assert hold.age is not None
    assert 0 <= hold.age <= seconds + microseconds / 1e6 - hold.since
    assert 0 < hold.left <= 30


async def test_every_kind_is_recognized_by_its_keys(
    server: Server, redis: Redis, locks: LockClient, other: LockClient
) -> None:
    await locks.read_write_lock("menu").write.acquire()
    await locks.read_write_lock("menu").read.acquire()
    await locks.read_write_lock("prices").read.acquire()
    await other.read_write_lock("prices").read.acquire()
    await locks.semaphore("api", 5).acquire(3)
    await locks.counting_semaphore("seats", 9).acquire(2)
    await locks.count_down_latch("jobs").try_set_count(3)
    async with waiting(locks.count_down_latch("jobs").wait):
        await until(lambda: locks.count_down_latch("jobs").statistics().subscriptions == 1)
        found = await all_locks(server)
    assert {name: lock.kind for name, lock in found.items()} == {
        "menu": "read-write lock",
        "prices": "read-write lock",
        "api": "semaphore",
        "seats": "counting semaphore",
        "jobs": "latch",
    }
    assert [hold.mode for hold in found["menu"].holds] == ["write", "read"]
    assert [hold.mode for hold in found["prices"].holds] == ["read", "read"]
    assert len({hold.client for hold in found["prices"].holds}) == 2
    assert (found["api"].available, [hold.holds for hold in found["api"].holds]) == (2, [3])
    assert (found["seats"].available, found["jobs"].available, found["jobs"].waiting) == (7, 3, 1)


async def test_locks_of_java_are_shown_as_such(server: Server, redis: Redis) -> None:
    await seize(redis, "orders", redisson=True)
    await redis.hset("prices", mapping={"mode": "read", f"{JAVA}:57": 1})
    await redis.pexpire("prices", 30_000)
    await redis.set(f"{{prices}}:{JAVA}:57:rwlock_timeout:1", 1, px=20_000)
    await redis.set("api", 3)
    await redis.zadd("{api}:timeout", {b"\x00\xff" * 8: 4e12})
    found = await all_locks(server)
    assert sorted(found) == ["api", "orders", "prices"]
    assert [hold.library for lock in found.values() for hold in lock.holds] == ["Redisson"] * 3
    assert "Redisson" in how(found["orders"].holds[0])
    assert found["prices"].holds[0].left <= 20


async def test_a_permit_of_java_that_never_ends_is_shown_as_such(
    server: Server, redis: Redis, capsys: pytest.CaptureFixture[str]
) -> None:
    await redis.set("api", 3)
    # Redisson writes its permits so.
    await redis.zadd("{api}:timeout", {b"\x00\xff" * 8: 922337203685477})
    for name, verb in {"ls": ls, "inspect": inspect}.items():
        assert await run(server.url, verb, name, "api") == 0
        assert "for ever" in capsys.readouterr().out
        assert await run(server.url, verb, name, "api", "--json") == 0
        assert '"left": null' in capsys.readouterr().out


async def test_foreign_keys_are_left_out(server: Server, redis: Redis, locks: LockClient) -> None:
    await locks.lock("real").acquire()
    await redis.hset("profile", mapping={"name": "a", "age": 7})
    await redis.hset("session", mapping={"user": 1})
    await redis.pexpire("session", 30_000)
    await redis.hset("no-end", mapping={f"{JAVA}:1": 1})
    await redis.hset("ended", mapping={"aiolock:acquisition": "a"})
    await redis.pexpire("ended", 30_000)
    await redis.set("number", 7)
    await redis.zadd("{scores}:timeout", {"a": 1})
    await redis.zadd("aiolock_token:{text}", {"a": 11})
    await redis.set("text", "seven")
    await redis.hset(b"\xff", mapping={f"{JAVA}:1": 1})
    async with locks.lock("free"), locks.semaphore("idle", 2).hold():
        pass
    assert list(await all_locks(server)) == ["real"]


async def test_the_line_of_a_fair_lock_and_the_listeners_of_a_plain_one(
    server: Server, locks: LockClient, other: LockClient
) -> None:
    await locks.fair_lock("printer").acquire()
    await locks.lock("orders").acquire()
    held = await all_locks(server)
    assert (held["printer"].kind, held["orders"].kind) == ("fair lock", "lock"), "both kinds are known without waiters"
    line = [partial(other.fair_lock("printer", owner=str(number)).try_lock, 60) for number in range(3)]
    async with waiting(*line, lambda: other.lock("orders").try_lock(60)):
        await until(lambda: other.fair_lock("printer").statistics().parked == 3)
        await until(lambda: other.lock("orders").statistics().subscriptions == 1)

        async def all_are_seen() -> bool:
            found = await all_locks(server)
            printer = found["printer"]
            return (printer.kind, len(printer.line), printer.waiting, found["orders"].waiting) == ("fair lock", 3, 3, 1)

        await until(all_are_seen)


async def test_a_once_is_listed_while_it_runs(
    server: Server, redis: Redis, locks: LockClient, other: LockClient
) -> None:
    async def never() -> None:
        await asyncio.Event().wait()

    async with locks.once("report:7", keep=60) as turn, locks.once("{b}", keep=60), locks.once("bill", keep=60):
        assert turn.lease is not None
        await locks.fair_lock("report:7").acquire()
        line = partial(other.fair_lock("report:7").try_lock, 60)
        async with waiting(lambda: other.once("report:7", keep=60).run(never), line):
            await all_parked(other, 2)
            await answered(locks)
            async with connected(server.url, None) as servers:
                found = {(lock.kind, lock.name): lock for lock in await Reader(servers).locks()}
                some = [lock.name for lock in await Reader(servers).locks("*:7")]
        once = found["once", "report:7"]
        [hold] = once.holds
        assert (hold.token, hold.library, hold.identity.pid) == (turn.lease.token, "aiolock", os.getpid())
        assert (once.waiting, once.line) == (1, [])
        assert 0 < hold.left <= 30
    assert sorted(found) == [("fair lock", "report:7"), ("once", "bill"), ("once", "report:7"), ("once", "{b}")]
    assert some == ["report:7", "report:7"]
    assert list(await all_locks(server)) == ["report:7"], "a body that has run is not listed"


@each_kind
async def test_every_primitive_is_listed_while_it_is_in_the_way(kind: Kind, server: Server, locks: LockClient) -> None:
    remove = await kind.obstruct(locks)
    assert NAME in await all_locks(server)
    await remove()


async def test_a_new_primitive_is_listed_as_soon_as_its_keys_are_described(
    server: Server, locks: LockClient, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def of_leader(name: str, prefix: str) -> LockKeys:
        key, tokens = (f"aiolock_chief_cook{end}:{{{prefix}{name}}}" for end in ("", "_token"))
        return LockKeys(name, key, tokens, f"channel {key}", (key, tokens), key)

    assert all(beginning in OWN_KEYS for beginning in OWN_LOCKS)
    monkeypatch.setitem(OWN_LOCKS, "aiolock_chief_cook:", of_leader)
    cook = AsyncRLock(locks._sessions, want=Want(of_leader("shop:a", ""), LOCK), named="nightly")
    lease = await cook.acquire()
    lock = (await all_locks(server, "shop:*"))["shop:a"]
    assert (lock.kind, lock.holds[0].token, lock.holds[0].owner) == ("chief cook", lease.token, "nightly")
    assert await run(server.url, inspect, "inspect", "shop:a") == 0
    assert "chief cook" in capsys.readouterr().out


async def test_a_name_that_looks_like_a_record_of_a_reader_is_listed(server: Server, locks: LockClient) -> None:
    await locks.lock("a:rwlock_timeout:b").acquire()
    await locks.read_write_lock("prices").read.acquire()
    assert sorted(await all_locks(server)) == ["a:rwlock_timeout:b", "prices"]


async def test_a_list_reads_no_outcomes(own: Server) -> None:
    async with Redis.from_url(own.url) as redis, lock_client(own.url) as locks:
        for number in range(20):
            async with locks.once(str(number), keep=60) as turn:
                turn.result = "x" * 60_000
        before = (await redis.info("stats"))["total_net_output_bytes"]
        assert await all_locks(own) == {}
        assert (await redis.info("stats"))["total_net_output_bytes"] - before < 60_000


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ("sent", ({"failed": False, "size": 4, "text": "sent"}, "sent")),
        ("x" * 5000, ({"failed": False, "size": 5000, "text": "x" * 1000}, "5,000 bytes")),
        (b"\xff\x00", ({"failed": False, "size": 2, "text": None}, "2 bytes")),
        (None, ({"failed": False, "size": 0, "text": None}, "done")),
        (
            ValueError("no\33"),
            ({"failed": True, "size": 15, "text": "ValueError: no\33"}, "no\N{REPLACEMENT CHARACTER}"),
        ),
    ],
)
async def test_inspect_shows_a_body_that_ran_once_and_its_outcome(
    result: Any,
    expected: tuple[dict[str, object], str],
    server: Server,
    locks: LockClient,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (told_of_it, shown), token = expected, 0
    with suppress(ValueError):
        async with locks.once("report:7", keep=60, failures="remember") as turn:
            assert turn.lease is not None
            token = turn.lease.token
            assert await run(server.url, inspect, "inspect", "report:7") == 0
            if isinstance(result, ValueError):
                raise result
            turn.result = result
    running = capsys.readouterr().out
    assert "once" in running
    assert f"pid {os.getpid()}" in running
    assert await run(server.url, inspect, "inspect", "report:7", "--json") == 1
    lock = told(capsys)
    assert 0 < lock["outcome"].pop("left") <= 60
    assert (lock["kind"], lock["outcome"], lock["holds"], lock["last_token"]) == ("once", told_of_it, [], token)
    assert await run(server.url, inspect, "inspect", "report:7") == 1
    text = capsys.readouterr().out
    assert shown in text
    assert "x" * 300 not in text


async def test_inspect_shows_a_lock_and_a_once_of_one_name(
    server: Server, locks: LockClient, capsys: pytest.CaptureFixture[str]
) -> None:
    async with locks.once("report:7", keep=60) as turn, locks.lock("report:7") as lease:
        assert turn.lease is not None
        assert await run(server.url, inspect, "inspect", "report:7") == 0
        shown = capsys.readouterr().out
        assert str(lease.token) in shown
        assert str(turn.lease.token) in shown
        assert await run(server.url, inspect, "inspect", "report:7", "--json") == 0
        first = told(capsys)
        assert (first["kind"], [each["kind"] for each in first["also"]]) == ("lock", ["once"])


async def test_a_lock_that_is_kept_after_its_release_is_held(
    server: Server, locks: LockClient, capsys: pytest.CaptureFixture[str]
) -> None:
    async with locks.lock("poll").hold(at_least=60):
        await answered(locks)
    lock = (await all_locks(server))["poll"]
    [hold] = lock.holds
    assert (lock.kind, hold.library, hold.kept, hold.token) == ("lock", "aiolock", True, None)
    assert 0 < hold.left <= 60
    assert await run(server.url, inspect, "inspect", "poll") == 0
    assert f"pid {os.getpid()}, kept after its release" in capsys.readouterr().out


async def test_a_server_of_a_quorum_does_not_decide_alone(
    server: Server, redis: Redis, locks: LockClient, capsys: pytest.CaptureFixture[str]
) -> None:
    await locks.lock("orders").acquire()
    assert await run(server.url, inspect, "inspect", "orders") == 0
    assert "quorum" not in capsys.readouterr().out
    await redis.set(QUORUM_KEY, "life 1")
    assert list(await all_locks(server)) == ["orders"]
    for name, code in {"orders": 0, "free": 1}.items():
        assert await run(server.url, inspect, "inspect", name) == code
        assert "one of a quorum" in capsys.readouterr().out
        assert await run(server.url, inspect, "inspect", name, "--json") == code
        assert told(capsys)["of_a_quorum"] is True


async def test_a_pattern_is_that_of_redis(server: Server, locks: LockClient) -> None:
    for name in ("shop:a", "shop:b", "bank:a"):
        await locks.lock(name).acquire()
    await locks.semaphore("shop:p", 2).acquire()
    await locks.semaphore("bank:p", 2).acquire()
    assert sorted(await all_locks(server, "shop:*")) == ["shop:a", "shop:b", "shop:p"]
    assert sorted(await all_locks(server, "shop:[^a]")) == ["shop:b", "shop:p"]


NAMES = ["star*", "starry", "back\\slash", "[glob]", "a-c", "abc", "]", "^", "!", "", "a\nb", "\N{SNOWMAN}", "per", "x"]
PATTERNS = [
    "star\\*",
    "star*",
    "back\\\\*",
    "\\[glob]",
    "[[]glob]",
    "a?c",
    "a[^x]c",
    "a[!x]c",
    "a[a-c]c",
    "a[c-a]c",
    "[a\\-c]*",
]


@pytest.mark.parametrize(
    "pattern", [*PATTERNS, "[]]", "[^]", "[", "a[b", "a\nb", "a?b", "*", "?", "???", "[!]", "[\\]]", "\\"]
)
async def test_a_name_matches_where_its_key_does(redis: Redis, pattern: str) -> None:
    await redis.mset(dict.fromkeys(NAMES, 1))
    for_redis: list[Any] = await redis.keys(pattern)
    assert [name for name in NAMES if matching(pattern).fullmatch(name.encode())] == [
        name for name in NAMES if name.encode() in for_redis
    ]


async def test_an_invalid_pattern_is_reported_in_words(server: Server) -> None:
    with pytest.raises(VerbError, match="pattern"):
        await run(server.url, ls, "ls", "\udcff*")


async def test_a_list_asks_few_questions_beside_those_for_each_lock(own: Server) -> None:
    async with Redis.from_url(own.url) as redis, lock_client(own.url) as locks:
        for number in range(100):
            await locks.lock(f"orders:{number}").acquire()
        before = await commandstats(redis)
        assert len(await all_locks(own)) == 100
        after = await commandstats(redis)
    assert after.get("zrevrange", 0) == before.get("zrevrange", 0)
    beside = sum(after.values()) - sum(before.values()) - 100 * 7
    assert beside < 50, "there are seven questions for each lock, and a few for each page of a scan"


async def test_names_with_braces_are_told_apart(server: Server, locks: LockClient) -> None:
    for name in ("{a}b", "x{a}"):
        await locks.semaphore(name, 2).acquire()
    await locks.semaphore("a", 2).acquire()
    assert sorted(await all_locks(server)) == ["a", "x{a}", "{a}b"]


async def test_many_keys_are_looked_at_in_pages_and_never_all_at_once(own: Server) -> None:
    async with Redis.from_url(own.url) as redis, lock_client(own.url) as locks:
        await redis.mset({f"key:{number}": 1 for number in range(5000)})
        await locks.lock("orders").acquire()
        await answered(locks)
        before = await commandstats(redis)
        looked: list[int] = []
        async with connected(own.url, None) as servers:
            await Reader(servers, lambda some, of: looked.append(some)).locks()
        after = await commandstats(redis)
    assert sum(looked) >= 2 * 5000
    assert max(looked) == 1000
    written = {name for name in after if after[name] != before.get(name, 0)}
    assert written <= {
        *("scan", "type", "pttl", "hlen", "hmget", "hscan", "zscore", "zrangebyscore", "zcount", "zcard", "time"),
        *("zrevrange", "strlen", "get", "hget", "pubsub|numsub", "dbsize", "hello", "ping", "client|setinfo", "info"),
    }
    assert "keys" not in written


async def test_some_of_thousands_of_readers_are_named(server: Server, redis: Redis) -> None:
    readers = [f"{JAVA}:{number}" for number in range(3000)]
    await redis.hset("prices", mapping={"mode": "read", **dict.fromkeys(readers, "1")})
    await redis.pexpire("prices", 30_000)
    pipe = redis.pipeline()
    for reader in readers:
        _ = pipe.set(f"{{prices}}:{reader}:rwlock_timeout:1", 1, px=20_000)
    await pipe.execute()
    found = (await all_locks(server))["prices"]
    assert len(found.holds) + found.more == 3000
    assert 0 < len(found.holds) <= 1000


async def test_ls_prints_a_table_or_json(server: Server, locks: LockClient, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, words in (((), "no lock"), (("prod:*",), "no lock whose name matches 'prod:*'")):
        assert await run(server.url, ls, "ls", *arguments) == 0
        assert capsys.readouterr() == ("", f"aiolock: {words} is held on {server.url}/0\n")
    lease = await locks.lock("orders").acquire()
    await answered(locks)
    assert await run(server.url, ls, "ls") == 0
    heading, line = capsys.readouterr().out.splitlines()
    assert heading.split() == ["NAME", "KIND", "HOLDER", "HELD", "LEFT", "WAITING"]
    assert line.startswith("orders")
    assert f"pid {os.getpid()}" in line
    assert await run(server.url, ls, "ls", "--json") == 0
    [lock] = told(capsys)["locks"]
    assert (lock["name"], lock["holds"][0]["token"]) == ("orders", lease.token)


async def test_inspect_tells_all_and_exits_with_1_when_it_is_free(
    server: Server, locks: LockClient, capsys: pytest.CaptureFixture[str]
) -> None:
    async with locks.lock("orders") as lease:
        await answered(locks)
        assert await run(server.url, inspect, "inspect", "orders") == 0
        shown = capsys.readouterr().out
        assert str(lease.token) in shown
        assert f"pid {os.getpid()}" in shown
    assert await run(server.url, inspect, "inspect", "orders", "--json") == 1
    free = told(capsys)
    assert (free["kind"], free["last_token"], free["holds"]) == ("free", lease.token, [])
    with pytest.raises(VerbError, match="aiolock's own"):
        await run(server.url, inspect, "inspect", "aiolock_token:{orders}")


@pytest.mark.parametrize("kind", ["list", "string", "hash"])
async def test_inspect_calls_a_key_that_is_no_lock_by_its_type(
    kind: str, server: Server, redis: Redis, capsys: pytest.CaptureFixture[str]
) -> None:
    await foreign(redis, "orders", kind)
    assert await run(server.url, inspect, "inspect", "orders") == 1
    assert f"  kind        not a lock, but a Redis {kind}\n" in capsys.readouterr().out
    assert await run(server.url, inspect, "inspect", "orders", "--json") == 1
    lock = told(capsys)
    assert (lock["kind"], lock["type"], lock["holds"]) == ("not a lock", kind, [])


async def test_inspect_and_acquire_agree_about_foreign_keys(server: Server, redis: Redis) -> None:
    """The keys are hashes without an end, or without the fields of a lock. A number may be a semaphore or a latch."""
    hashes: dict[str, dict[Any, Any]] = {
        "profile": {"name": "a", "age": 7},
        "one-field": {"name": "a"},
        "no-end": {f"{JAVA}:1": 1},
        "taken": {f"{JAVA}:1": 1},
        "ours": {"aiolock:acquisition": "a", f"{JAVA}:1": 1},
        "read": {"mode": "read", f"{JAVA}:1": 1},
    }
    for name, fields in hashes.items():
        await redis.hset(name, mapping=fields)
        if name != "no-end":
            await redis.pexpire(name, 30_000)
    await redis.mset({"number": 7, "below": -1, "text": "seven", "long": "7" * 50_000})
    async with connected(server.url, None) as servers:
        found = {name: await Reader(servers).foreign(name) for name in [*hashes, "number", "below", "text", "long"]}
    wanted = dict.fromkeys(["profile", "one-field", "no-end"], "hash") | {"text": "string", "long": "string"}
    assert {name: kind for name, kind in found.items() if kind} == wanted


@pytest.mark.parametrize(
    ("verb", "arguments"), [(ls, ["ls"]), (inspect, ["inspect", "orders"]), (clients, ["clients"])]
)
async def test_a_primary_is_for_sentinels(verb: Verb, arguments: list[str], server: Server) -> None:
    with pytest.raises(VerbError, match=r"--primary.*Sentinel") as refused:
        await run(server.url, verb, *arguments, "--primary", "orders")
    assert refused.value.code == 2


async def test_a_client_without_an_identity_has_no_host_in_the_list(
    server: Server, redis: Redis, capsys: pytest.CaptureFixture[str]
) -> None:
    await seize(redis, "java", redisson=True)
    await redis.hset("orders", mapping={"aiolock:acquisition": "a", f"{JAVA[::-1]}:1": 1})
    await redis.pexpire("orders", 30_000)
    assert await run(server.url, clients, "clients") == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert {line.split()[-1]: line.split()[0] for line in lines} == {"java": "Redisson", "orders": "-"}


async def test_clients_are_listed_with_how_much_they_hold(
    server: Server, redis: Redis, other: LockClient, capsys: pytest.CaptureFixture[str]
) -> None:
    await seize(redis, "java", redisson=True)
    async with lock_client(server.url, client_name="shop") as locks:
        for name in "abc":
            await locks.lock(name).acquire()
        await locks.semaphore("d", 2).acquire(2)
        async with other.lock("e"):
            pass
        assert await run(server.url, clients, "clients", "--json") == 0
        most, java = told(capsys)["clients"]
        assert (most["client_name"], most["held"], most["locks"]) == ("shop", 4, ["a", "b", "c", "d"])
        assert (most["host"], most["pid"]) == (socket.gethostname(), os.getpid())
        assert (java["by"], java["held"], java["host"], java["pid"]) == ("Redisson", 1, None, None)
        assert await run(server.url, clients, "clients") == 0
        assert "shop" in capsys.readouterr().out


async def test_the_error_for_a_user_without_permission_names_the_missing_command(server: Server, redis: Redis) -> None:
    await redis.acl_setuser("narrow", enabled=True, nopass=True, commands=["+@connection"], keys=["*"])
    try:
        with pytest.raises(VerbError, match=r"Redis refuses.*dbsize"), told_in_words():
            await run(server.url.replace("//", "//narrow:x@"), ls, "ls")
    finally:
        await redis.acl_deluser("narrow")


async def test_a_wrong_password_is_reported_in_sentences(server: Server) -> None:
    with pytest.raises(VerbError, match=r"correct\? Put the right") as refused, told_in_words():
        await run(server.url.replace("//", "//:sesame@"), ls, "ls")
    assert refused.value.code == 69
    assert "sesame" not in str(refused.value)


def test_a_scan_that_takes_long_shows_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("aiolock._cli.locks.progress._SOON", -1)
    monkeypatch.setattr("aiolock._cli.locks.progress._OFTEN", -1)
    with Progress() as progress:
        progress(0, 2000)
        progress(1000, 0)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with Progress() as progress:
        progress(0, 2000)
        progress(1000, 0)
    assert "looking at 2,000 keys: 50 %" in capsys.readouterr().err


def lock_of(holds: Iterable[Hold] = (), **more: Any) -> Lock:
    return Lock(name="orders", kind="lock", server="s", holds=list(holds), **more)


def test_control_characters_in_a_name_do_not_reach_the_terminal() -> None:
    assert printable("a\33[2Jb\n") == "a�[2Jb�"
    [row] = rows(Lock(name="\33]0;x\7", kind="lock", server="s", holds=[hold("\33[1m")]))
    assert "\33" not in "".join(row)


def hold(owner: str) -> Hold:
    return Hold(owner_id=f"{JAVA}:named:{owner}", library="aiolock", holds=1, left=3)


def test_a_long_list_is_cut_and_counts_the_locks_that_it_leaves_out() -> None:
    shown = rows(lock_of([hold(str(number)) for number in range(9)], more=3))
    assert len(shown) == 6
    assert "and 7 more" in shown[-1]
    lines = aligned([("n" * 50, "k", "h" * 70), ("n", "kind", "h")], 60, (0, 2))
    assert max(map(len, lines)) == 60
    assert lines[0].count("…") == 2


def test_columns_stay_aligned_with_wide_and_combining_characters() -> None:
    wide, combining = "\N{CJK UNIFIED IDEOGRAPH-65E5}", "e\N{COMBINING ACUTE ACCENT}"
    assert aligned([("a" * 6, "k"), (wide * 3, "k"), (combining * 3, "k")], None) == [
        "a" * 6 + "  k",
        wide * 3 + "  k",
        combining * 3 + " " * 5 + "k",
    ]
    assert aligned([(wide * 20, "k")], 20, (0,)) == [wide * 8 + "…  k"]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "-"),
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (59, "59 s"),
        (61, "1 min 01 s"),
        (7260, "2 h 01 min"),
        (90000, "1 d 01 h"),
    ],
)
def test_durations_are_short(seconds: float | None, words: str) -> None:
    assert duration(seconds) == words
