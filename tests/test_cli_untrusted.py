"""Texts of others in Redis end no verb, hide no lock, and reach no terminal unchanged."""

from typing import Any
from urllib.parse import quote

import pytest
from redis.asyncio import Redis

from aiolock import LockClient
from aiolock._cli.command.under_lock import UnderLock
from aiolock._cli.locks.words import cut
from aiolock._cli.output import printable, short
from aiolock._cli.verbs import top
from aiolock._cli.verbs.break_ import break_
from aiolock._cli.verbs.clients import clients
from aiolock._cli.verbs.inspect import inspect
from aiolock._cli.verbs.ls import ls
from aiolock._embedded_server import Server
from tests.support.cli import parsed, run

EVIL = "\33[2J\33]0;owned\7\x9b31m\N{RIGHT-TO-LEFT OVERRIDE}\0\r\nline"
# The digits of a number that Python refuses to make.
HUGE = "9" * 5000
COMBINING = "\N{COMBINING ACUTE ACCENT}"
# The most characters that a verb may print for the few locks of a test.
MOST = 20_000


def well_told(shown: str) -> str:
    """*shown*, if a terminal prints all of it, and it is short."""
    assert [each for each in shown if not each.isprintable() and each != "\n"] == []
    assert "\nline" not in shown
    assert len(shown) < MOST
    return shown


async def told_by_all(server: Server, capsys: pytest.CaptureFixture[str], *names: str) -> str:
    """The output of every verb that looks, about all locks and about those *names*."""
    for verb, name in ((ls, "ls"), (clients, "clients")):
        assert await run(server.url, verb, name) == 0
        assert await run(server.url, verb, name, "--json") == 0
    for name in names:
        await run(server.url, inspect, "inspect", name)
        await run(server.url, inspect, "inspect", name, "--json")
    assert await top.watch(parsed("top", "--url", server.url, "--count", "1")) == 0
    both = capsys.readouterr()
    # JSON shows all of them, escaped.
    lines = [line for line in both.out.splitlines() if not line.startswith("{")]
    return well_told("\n".join([*lines, both.err]))


RANDOM = "0" * 32


@pytest.mark.parametrize(
    "client",
    [
        f"{RANDOM}@web/none",
        f"{RANDOM}@web/{HUGE}",
        f"{RANDOM}@{EVIL}/7/{EVIL}",
        f"{RANDOM}@{quote(EVIL, safe='')}/7/{quote(EVIL, safe='')}",
        f"{RANDOM}@%FF/7/%ff%",
        f"{RANDOM}@{'h' * 100_000}/7/{quote(COMBINING, safe='') * 10_000}",
        f"{RANDOM}@//",
        "@web/7",
    ],
    ids=["pid", "many digits", "controls", "encoded controls", "no text", "long", "empty", "not random"],
)
async def test_an_id_that_no_client_has_hides_nothing(
    client: str, server: Server, redis: Redis, locks: LockClient, capsys: pytest.CaptureFixture[str]
) -> None:
    fields: dict[Any, Any] = {
        f"{client}:named:nightly": 1,
        "aiolock:acquisition": "a",
        "aiolock:token": 4711,
        "aiolock:step": 1,
    }
    await redis.hset("orders", mapping=fields)
    await redis.pexpire("orders", 60_000)
    shown = await told_by_all(server, capsys, "orders")
    assert "orders" in shown
    assert "4711" in shown
    holder = await locks.lock("orders").holder()
    assert holder is not None
    assert (holder.client, holder.owner, holder.holds) == (client.partition(":")[0], "nightly", 1)
    assert isinstance(holder.pid, int | None)


HASHES: dict[str, dict[Any, Any]] = {
    "lock": {"aiolock:acquisition": EVIL, "aiolock:token": EVIL, f"{EVIL}:{EVIL}": 1},
    "huge": {"aiolock:acquisition": "a", "aiolock:token": HUGE, "a:1": HUGE},
    "beyond": {"aiolock:acquisition": "a", "aiolock:token": "9" * 18, "a:named:b": "9" * 18},
    "more": {"aiolock:acquisition": "a", "a:1": 1, "junk": "x"},
    "long": {"aiolock:acquisition": "a", "x" * 1_000_000: 1},
    "writer": {"mode": "write", f"{EVIL}:{EVIL}:write": 1},
    "reader": {"mode": "read", f"{EVIL}:1": 1, "b:2": HUGE},
    f"name {EVIL}": {"aiolock:acquisition": "a", "a:1": 1},
    "n" * 100_000: {"aiolock:acquisition": "a", "a:1": 1},
    "aiolock_mark:a": {"a": "b"},
    "aiolock_once:{body}": {"aiolock:outcome": b"\xff", "aiolock:acquisition": "a", "aiolock:token": "x", "a:1": 1},
    "aiolock_once:{aiolock_once:x}": {"aiolock:acquisition": "a", "a:1": 1},
}
SETS: dict[str, dict[Any, float]] = {
    "{permits}:timeout": {f"{EVIL}:1#2#3": float("inf"), b"\xff" * 16: 4e12},
    "{counted}:timeout": {"a:1#2#3": 4e12},
    "{aiolock_token:x}:timeout": {"a:1#2#3": 4e12},
    "aiolock_token:{lock}": {"token": float("inf"), f"ticket {EVIL}": -3e15},
    "aiolock_token:{permits}": {"token": float("-inf")},
    "aiolock_token:{count}": {"a": float("inf")},
    "aiolock_token:{aiolock_mark:x}": {"a": 11},
    "aiolock_token:": {"a": 11},
}


async def test_keys_that_look_like_those_of_locks_hide_nothing(
    server: Server, redis: Redis, locks: LockClient, capsys: pytest.CaptureFixture[str]
) -> None:
    await locks.lock("orders").acquire()
    for name, fields in HASHES.items():
        await redis.hset(name, mapping=fields)
        await redis.pexpire(name, 60_000)
    await redis.set(f"{{reader}}:{EVIL}:1:rwlock_timeout:1", 1, px=60_000)
    await redis.hset("{reader}:b:2:rwlock_timeout:1", "token", EVIL)
    await redis.pexpire("{reader}:b:2:rwlock_timeout:1", 60_000)
    for name, members in SETS.items():
        await redis.zadd(name, members)
    await redis.mset({"permits": 3, "counted": HUGE, "count": "9" * 20, "aiolock_mark:b": "x"})
    await redis.sadd("aiolock_token:{orders-2}", "x")
    names = ["lock", "huge", "beyond", "more", "long", "writer", "reader", "permits", "counted", "count", "body"]
    shown = await told_by_all(server, capsys, "orders", *names)
    for name in ("orders", "lock", "more", "long", "writer", "reader", "permits", "name"):
        assert f"\n{name}" in shown, name
    for name in names:
        await run(server.url, break_, "break", name, "--yes")
        assert name in well_told(capsys.readouterr().out)
    assert [name for name in ("more", "long", "writer") if await redis.exists(name)] == []
    assert await redis.exists("orders")


async def test_further_fields_of_a_lock_do_not_hide_its_holder(redis: Redis, locks: LockClient) -> None:
    await locks.lock("orders", owner="nightly").acquire()
    await redis.hset("orders", "junk", "x")
    holder = await locks.lock("orders").holder()
    assert holder is not None
    assert holder.owner == "nightly"


async def test_run_names_the_holder_that_it_waits_for_in_words(
    redis: Redis, locks: LockClient, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiolock._cli.command.under_lock._TELLING_AFTER", 0)
    under = UnderLock(parsed("run", "orders"), 1.0)
    for client in (EVIL, f"{RANDOM}@{quote(EVIL, safe='')}/7/{quote(EVIL, safe='')}"):
        await redis.delete("orders")
        await redis.hset("orders", mapping={"aiolock:acquisition": "a", f"{client}:1": 1})
        await redis.pexpire("orders", 60_000)
        await under._tell_who_holds(locks.lock("orders"))
    assert well_told(capsys.readouterr().err).count("[2J") == 2


def test_unprintable_characters_are_replaced_and_long_texts_are_cut() -> None:
    assert printable(EVIL) == "�[2J�]0;owned��31m����line"
    assert short("a" * 256) == "a" * 256
    assert short("\33" * 1_000_000) == "�" * 255 + "…"
    assert cut("e" + "\N{COMBINING ACUTE ACCENT}" * 9, 1).count("e") == 1
    assert cut("a" * 1_000_000, 20) == "a" * 19 + "…"
