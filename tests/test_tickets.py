"""Tickets: their form, what they refuse, who may adopt, and that nothing but the ticket itself tells its secret."""

import asyncio
import base64
import json
import logging
import pickle
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, cast

import pytest
from redis.asyncio import Redis

from aiolock import (
    AioLockError,
    Lease,
    LeaseLostError,
    LockClient,
    LockConfig,
    LockEvent,
    NotHeldError,
    ReplicationError,
)
from aiolock._core.ticket import MOST_PARTS, Ticket
from tests.support.inside import client_id_of
from tests.support.observe import answered, until

FORM = "aiolock1."


async def ticket_of(locks: LockClient, name: str = "orders") -> str:
    return await (await locks.lock(name).acquire()).detach(60)


def unpacked(ticket: str) -> Any:
    packed = ticket.removeprefix(FORM)
    return json.loads(base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4)))


def packed(content: object) -> str:
    return FORM + base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")


# Its form.


async def test_a_ticket_is_one_word_for_json_a_shell_and_an_address(locks: LockClient) -> None:
    ticket = await ticket_of(locks, "orders 'ü' \"$(x)\"")
    assert ticket.startswith(FORM)
    assert ticket.isascii()
    assert ticket.replace("-", "").replace("_", "").replace(".", "").isalnum()
    await (await locks.adopt(f" {ticket}\n")).release()


async def test_redis_has_only_a_digest_of_its_secret(locks: LockClient, redis: Redis) -> None:
    *_, secret = unpacked(await ticket_of(locks))[1]
    assert len(base64.urlsafe_b64decode(secret + "==")) == 16
    fields = await cast("Awaitable[Any]", redis.hgetall("orders"))
    members = await redis.zrange("aiolock_token:{orders}", 0, -1)
    assert secret not in repr(fields) + repr(members)
    owner = next(field for field in fields if not field.startswith(b"aiolock:")).decode()
    client, _, rest = owner.partition(":")
    assert (client, rest.split(":")[0]) == (client_id_of(locks), "detached")


async def test_two_tickets_have_nothing_secret_in_common(locks: LockClient) -> None:
    first, second = [unpacked(await ticket_of(locks, name))[1][-1] for name in ("a", "b")]
    assert first != second


MALFORMED = {
    "empty": "",
    "word": "ticket",
    "form alone": FORM,
    "another form": "aiolock2.WyJsb2NrIl0",
    "no base64": f"{FORM}ü",
    "no JSON": FORM + base64.urlsafe_b64encode(b"{").decode(),
    "no list": packed(7),
    "no parts": packed(["lock"]),
    "no kind": packed([[]]),
    "too few fields": packed(["lock", ["lock", "", "x"]]),
    "two of one": packed(["lock", *[["lock", "", "x", 1, "c:1", 60, "s" * 22]] * 2]),
    "unknown kind": packed(["latch", ["latch", "", "x", 1, "c:1", 60, "s" * 22]]),
    "kinds differ": packed(["fair_lock", ["lock", "", "x", 1, "c:1", 60, "s" * 22]]),
    "short secret": packed(["lock", ["lock", "", "x", 1, "c:1", 60, "s"]]),
    "token is text": packed(["lock", ["lock", "", "x", "1", "c:1", 60, "s" * 22]]),
    "token is below zero": packed(["lock", ["lock", "", "x", -1, "c:1", 60, "s" * 22]]),
    "token is bool": packed(["lock", ["lock", "", "x", True, "c:1", 60, "s" * 22]]),
    "lock with permits": packed(["lock", ["lock", "", "x", 1, "c:1", 60, 2, "s" * 22]]),
    "kind is a list": packed([["lock"], ["lock", "", "x", 1, "c:1", 60, "s" * 22]]),
    "kind of a part is a list": packed(["lock", [["lock"], "", "x", 1, "c:1", 60, "s" * 22]]),
    "kind is a surrogate": packed(["\ud800", ["\ud800", "", "x", 1, "c:1", 60, "s" * 22]]),
    "prefix is a surrogate": packed(["lock", ["lock", "\ud800", "x", 1, "c:1", 60, "s" * 22]]),
    "name is a surrogate": packed(["lock", ["lock", "", "\ud800", 1, "c:1", 60, "s" * 22]]),
    "owner is a surrogate": packed(["lock", ["lock", "", "x", 1, "\ud800", 60, "s" * 22]]),
    "long name": packed(["lock", ["lock", "", "x" * 3000, 1, "c:1", 60, "s" * 22]]),
    "long owner": packed(["lock", ["lock", "", "x", 1, "ü" * 1500, 60, "s" * 22]]),
    "too many parts": packed(
        ["multi_lock", *(["lock", "", f"{n}", 1, "c:1", 60, "s" * 22] for n in range(MOST_PARTS + 1))]
    ),
    "deep": FORM + base64.urlsafe_b64encode(b"[" * 100_000).decode(),
}


@pytest.mark.parametrize("ticket", MALFORMED.values(), ids=MALFORMED)
async def test_a_text_that_is_no_ticket_is_refused_and_not_shown(locks: LockClient, ticket: str) -> None:
    with pytest.raises(ValueError, match="this is not a ticket, or only a part of one") as caught:
        _ = locks.adopt(ticket)
    # An error of the parser has the text.
    assert not isinstance(caught.value.__context__, ValueError | TypeError)


@pytest.mark.parametrize("other", ["", "A", "_", "=", "?", "\0", "ü", "\ud800", "AA", "==="])
def test_no_cut_or_changed_ticket_raises_anything_else(other: str) -> None:
    whole = packed(["lock", ["lock", "", "x", 1, "c:1", 60, "s" * 22]])
    for at in range(len(whole) + 1):
        for changed in (whole[:at], whole[at:], whole[:at] + other + whole[at + 1 :]):
            with suppress(ValueError):
                Ticket.read(changed)


@pytest.mark.parametrize("ticket", [None, 7, b"aiolock1.", ["aiolock1."]])
async def test_another_type_is_refused_without_showing_it(locks: LockClient, ticket: Any) -> None:
    with pytest.raises(TypeError, match=f"^ticket must be a str, not {type(ticket).__name__}$"):
        _ = locks.adopt(ticket)


async def test_an_adopter_may_demand_a_name_and_a_kind_and_needs_the_prefix(locks: LockClient, redis: Redis) -> None:
    ticket = await ticket_of(locks)
    with pytest.raises(ValueError, match="this ticket is for 'orders', not for 'other'"):
        _ = locks.adopt(ticket, name="other")
    with pytest.raises(ValueError, match="this ticket is for a 'lock', not for a 'fair_lock'"):
        _ = locks.adopt(ticket, kind="fair_lock")
    elsewhere = LockClient(redis, config=LockConfig(prefix="shop:"))
    with pytest.raises(ValueError, match="this ticket is for the prefix '', not for this client's, 'shop:'"):
        _ = elsewhere.adopt(ticket)
    await (await locks.adopt(ticket, name="orders", kind="lock")).release()


async def test_an_adopter_of_several_locks_may_demand_their_names_and_must_say_their_kind(locks: LockClient) -> None:
    ticket = await (await locks.multi("b", "a").acquire()).detach(60)
    with pytest.raises(
        ValueError, match=r"for a 'multi_lock', not for a 'lock': write adopt\(..., kind='multi_lock'\)$"
    ):
        _ = locks.adopt(ticket)
    with pytest.raises(ValueError, match="this ticket is for 'a', 'b', not for"):
        _ = locks.adopt(ticket, kind="multi_lock", name=["a"])
    await (await locks.adopt(ticket, kind="multi_lock", name=["b", "a"])).release()


async def test_the_longest_names_fit_into_a_ticket(redis: Redis) -> None:
    config = LockConfig(prefix="p" * 512, client_name="c" * 300)
    async with LockClient(redis, config=config) as locks:
        ticket = await (await locks.lock("n" * 512, owner="o" * 1024).acquire()).detach(60)
        await (await locks.adopt(ticket, owner="p" * 1024)).release()


# Who may detach and adopt.


async def test_one_of_two_holds_is_not_detached(locks: LockClient) -> None:
    lock = locks.lock("orders")
    outer, inner = await lock.acquire(), await lock.acquire()
    with pytest.raises(RuntimeError, match="lock 'orders' cannot be detached: its owner has 2 holds"):
        await outer.detach(60)
    await inner.release()
    assert not outer.given_back
    await (await locks.adopt(await outer.detach(60))).release()


async def test_an_owner_that_reads_and_writes_detaches_neither(locks: LockClient) -> None:
    both = locks.read_write_lock("orders")
    async with both.write as writing, both.read as reading:
        for lease in (writing, reading):
            with pytest.raises(RuntimeError, match="its owner reads and writes"):
                await lease.detach(60)


async def test_a_named_owner_that_begins_to_read_does_not_detach_its_write_lock(locks: LockClient) -> None:
    """Its other task would read while the adopter writes; the acquire is on its way when `detach` looks."""
    both = locks.read_write_lock("orders", owner="job")
    writing = await both.write.acquire()
    reading, detached = await asyncio.gather(both.read.try_lock(), writing.detach(60), return_exceptions=True)
    assert isinstance(detached, RuntimeError)
    assert "write_lock 'orders' cannot be detached: its owner reads and writes" in str(detached)
    assert isinstance(reading, Lease)
    assert await both.write.holder() is None, "a detach that fails frees the lock"
    await reading.release()


async def test_a_lock_with_at_least_is_not_detached(locks: LockClient) -> None:
    async with locks.lock("orders").hold(at_least=0.01) as lease:
        with pytest.raises(RuntimeError, match="acquired with `at_least`"):
            await lease.detach(60)


async def test_all_of_several_are_refused_for_one(locks: LockClient) -> None:
    more = await locks.lock("b").acquire()
    several = await locks.multi("a", "b").acquire()
    with pytest.raises(RuntimeError, match="lock 'b' cannot be detached"):
        await several.detach(60)
    several.check()
    await several.release()
    await more.release()


async def test_several_of_two_clients_are_refused(locks: LockClient, other: LockClient) -> None:
    async with locks.multi("a", other.lock("b")) as lease:
        with pytest.raises(ValueError, match="of several clients"):
            await lease.detach(60)


async def test_more_than_a_ticket_is_for_are_not_detached(locks: LockClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiolock._primitives.multi.lease.MOST_PARTS", 1)
    async with locks.multi("a", "b") as lease:
        with pytest.raises(ValueError, match="a ticket is for 1 locks at most, not 2"):
            await lease.detach(60)
        lease.check()


async def test_several_of_which_one_is_lost_are_all_freed(locks: LockClient, other: LockClient, redis: Redis) -> None:
    several = await locks.multi("a", "b").acquire()
    await redis.delete("b")
    with pytest.raises(LeaseLostError) as caught:
        await several.detach(60)
    assert caught.value.name == "b"
    assert await other.lock("a").try_lock(wait=1)


@pytest.mark.parametrize("kind", ["lock", "write"])
async def test_a_renewal_counts_though_a_renewer_with_a_fast_clock_came_before(
    locks: LockClient, redis: Redis, kind: str
) -> None:
    lock = locks.lock("orders") if kind == "lock" else locks.read_write_lock("orders").write
    detached = locks._detached(Ticket.read(await (await lock.acquire()).detach(60)), None)
    assert await detached.prolong(120) > 110
    for key in await redis.keys("*"):
        if await redis.type(key) == b"hash":
            for field in await cast("Awaitable[Any]", redis.hkeys(key)):
                if field.endswith(b"renewal"):
                    await cast("Awaitable[Any]", redis.hset(key, field, str(2**53)))
    assert await detached.prolong(600) > 590


async def test_each_of_several_is_freed_once_if_one_cannot_be_detached(locks: LockClient, redis: Redis) -> None:
    several = await locks.multi("a", "b").acquire()
    await redis.delete("b")
    before = locks.statistics().commands
    with pytest.raises(LeaseLostError):
        await several.detach(60)
    await answered(locks)
    # Two detaches, and a release of each detached hold. The server has said that the hold of the lost lock is gone.
    assert locks.statistics().commands - before == 4


async def test_a_lease_that_no_server_keeps_is_refused_before_the_ticket_is_used(locks: LockClient) -> None:
    ticket = await ticket_of(locks)
    for lease in (2e9, 0.0, float("nan")):
        with pytest.raises(ValueError, match="lease must be"):
            await locks.adopt(ticket, lease=lease)
    await (await locks.adopt(ticket)).release()


async def test_several_of_which_one_has_ended_are_adopted_by_nobody_and_freed(
    locks: LockClient, other: LockClient, redis: Redis
) -> None:
    ticket = await (await locks.multi("a", "b").acquire()).detach(60)
    await redis.delete("b")
    with pytest.raises(LeaseLostError) as caught:
        await other.adopt(ticket, kind="multi_lock")
    assert caught.value.name == "b"
    assert await locks.lock("a").try_lock(wait=1)


@pytest.mark.parametrize("keep", [0, -1, True, "60", float("nan"), 2e9])
async def test_a_time_to_keep_is_checked(locks: LockClient, keep: Any) -> None:
    async with locks.lock("orders") as lease:
        with pytest.raises((TypeError, ValueError), match="keep must be"):
            await lease.detach(keep)
        lease.check()


async def test_a_lease_that_was_given_back_or_lost_is_not_detached(locks: LockClient, redis: Redis) -> None:
    lease = await locks.lock("orders").acquire()
    await lease.release()
    with pytest.raises(NotHeldError):
        await lease.detach(60)
    lease = await locks.lock("orders").acquire()
    await redis.delete("orders")
    with pytest.raises(LeaseLostError) as caught:
        await lease.detach(60)
    assert caught.value.reason == "expired"
    assert not await locks.lock("orders").locked()


async def test_too_few_replicas_give_it_back(redis: Redis, locks: LockClient) -> None:
    config = LockConfig(replicas=1, replicas_timeout=0.05)
    ticket = await ticket_of(locks)
    async with LockClient(redis, config=config) as client:
        with pytest.raises(ReplicationError):
            await client.adopt(ticket)
    assert await locks.lock("orders").try_lock(wait=1)


async def test_an_owner_that_has_a_hold_adopts_no_second_one(locks: LockClient) -> None:
    lock = locks.read_write_lock("orders").read

    async def detached() -> str:
        return await (await lock.acquire()).detach(60)

    ticket = await asyncio.create_task(detached())
    async with lock:
        with pytest.raises(RuntimeError, match="this owner holds it already"):
            await locks.adopt(ticket)
    async with locks.adopt(ticket):
        assert await lock.held()


async def test_the_owner_is_the_task_or_the_one_that_is_named(locks: LockClient) -> None:
    async with locks.adopt(await ticket_of(locks)):
        assert await locks.lock("orders").held()
    await locks.adopt(await ticket_of(locks), owner="job")
    await locks.lock("orders", owner="job").release()


async def test_another_task_does_not_await_it(locks: LockClient) -> None:
    adoption = locks.adopt(await ticket_of(locks))

    async def elsewhere() -> None:
        await adoption

    with pytest.raises(RuntimeError, match="called in one task and runs in another"):
        await asyncio.create_task(elsewhere())
    await (await adoption).release()


async def test_an_adoption_that_was_never_awaited_is_reported(locks: LockClient) -> None:
    ticket = await ticket_of(locks)

    def forget() -> None:
        _ = locks.adopt(ticket)

    with pytest.warns(RuntimeWarning, match=r"lock 'orders': adopt\(\) was never awaited"):
        forget()
    await (await locks.adopt(ticket)).release()


async def test_an_adopted_lock_nests_and_is_renewed(redis: Redis, other: LockClient) -> None:
    ticket = await ticket_of(other)
    async with LockClient(redis, config=LockConfig(lease=1.5)) as client, client.adopt(ticket) as lease:
        async with client.lock("orders") as inner:
            assert inner.token == lease.token
        await until(lambda: client.statistics().renewals > 0)
        lease.check()


async def test_a_lease_of_a_length_is_not_renewed(locks: LockClient) -> None:
    lease = await locks.adopt(await ticket_of(locks), lease=5)
    assert (lease.lease, lease.watched) == (5, False)
    assert 4 < lease.remaining <= 5
    await lease.release()


# What people are told.


async def test_the_holder_is_the_one_that_detached_it(redis: Redis, other: LockClient) -> None:
    async with LockClient(redis, config=LockConfig(client_name="web")) as client:
        ticket = await (await client.lock("orders", owner="checkout").acquire()).detach(60)
        holder = await other.lock("orders").holder()
        assert holder is not None
        assert (holder.detached, holder.owner, holder.client_name) == (True, "checkout", "web")
        assert 50 < holder.remaining <= 60
        with pytest.raises(NotHeldError, match="it was detached by owner 'checkout'") as caught:
            await other.lock("orders").release()
        assert caught.value.holder is not None
        async with other.adopt(ticket):
            held = await client.lock("orders").holder()
            assert held is not None
            assert not held.detached


HALVES: list[Callable[[LockClient], Any]] = [
    lambda locks: locks.read_write_lock("orders").read,
    lambda locks: locks.read_write_lock("orders").write,
    lambda locks: locks.semaphore("orders", 1),
]


@pytest.mark.parametrize("of", HALVES)
async def test_holders_of_other_kinds_are_shown_as_detached_too(
    locks: LockClient, other: LockClient, of: Callable[[LockClient], Any]
) -> None:
    await (await of(locks).acquire()).detach(60)
    lock = of(other)
    [holder] = [await lock.holder()] if hasattr(lock, "holder") else await lock.holders()
    assert holder.detached
    assert holder.owner.isdigit()


async def test_no_repr_log_event_or_error_has_the_ticket(
    redis: Redis, other: LockClient, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[object] = []

    def hear(event: LockEvent) -> None:
        told.append(event)

    caplog.set_level(logging.DEBUG)
    async with LockClient(redis, config=LockConfig(on_event=hear)) as client:
        lease = await client.lock("orders").acquire()
        ticket = await lease.detach(60)
        secret = unpacked(ticket)[1][-1]
        adoption = client.adopt(ticket)
        told += [lease, adoption, Ticket.read(ticket)]
        adopted = await adoption
        told += [adopted, await client.lock("orders").holder()]
        for wrong, name in ((ticket, "x"), (ticket[:-9], None)):
            with pytest.raises(ValueError, match="ticket") as refused:
                _ = client.adopt(wrong, name=name)
            told.append(refused.value)
        with pytest.raises(AioLockError) as caught:
            await other.adopt(ticket)
        told += [caught.value, pickle.loads(pickle.dumps(caught.value))]
        await adopted.release()
    words = repr(told) + "".join(map(str, told)) + repr([vars(record) for record in caplog.records])
    assert "orders" in words
    assert secret not in words
    assert ticket not in words
