"""A detached hold goes to one adopter, or ends, although calls are lost, sent again, late or cancelled on the way."""

import asyncio
from functools import partial
from typing import Any

import pytest
from redis.asyncio import Redis

from aiolock import BackendError, LeaseLostError, LockClient, LockConfig, NotHeldError
from tests.contract.acts import SOON, is_untouched, nothing_under_way, waiting
from tests.contract.kinds import LONG, Kind, Multi, each_leased
from tests.support.cancellation import MODES, Mode, Outcome, every_suspension
from tests.support.observe import answered, freed, until
from tests.support.proxy import Proxy, Rule, drop_reply, hold, script

each_mode = pytest.mark.parametrize("mode", MODES)
PATIENT = LockConfig(command_timeout=12)


def tokens(lease: Any) -> list[int]:
    return list(lease.tokens.values()) if hasattr(lease, "tokens") else [lease.token]


async def detached(kind: Kind, client: LockClient, keep: float = LONG) -> str:
    """Let the client take the primitive, and detach it; return the ticket."""
    ticket = await (await kind.take(client)).detach(keep)
    assert isinstance(ticket, str)
    return ticket


@each_leased
async def test_an_adopter_has_it_with_a_greater_token(kind: Kind, locks: LockClient, other: LockClient) -> None:
    lease = await kind.take(locks)
    ticket = await lease.detach(LONG)
    assert lease.given_back
    assert nothing_under_way(locks)
    assert not await kind.rival.take(locks)
    adopted = await kind.adopt(other, ticket)
    assert all(new > old for new, old in zip(tokens(adopted), tokens(lease), strict=True))
    assert not await kind.rival.take(locks)
    await adopted.renew()
    await kind.give(other, adopted)
    await is_untouched(kind, locks)


@each_leased
async def test_its_own_client_may_adopt_it_in_a_block(kind: Kind, locks: LockClient, other: LockClient) -> None:
    async with locks.adopt(await detached(kind, locks), kind=kind.of_ticket) as lease:
        lease.check()
        assert not await kind.rival.take(other)
    await is_untouched(kind, other)


@each_leased
async def test_a_ticket_is_used_up_by_one_adoption(kind: Kind, locks: LockClient, other: LockClient) -> None:
    ticket = await detached(kind, locks)
    adopted = await kind.adopt(other, ticket)
    with pytest.raises(LeaseLostError, match="no use any more: it was adopted") as caught:
        await kind.adopt(locks, ticket)
    assert caught.value.reason == "taken"
    adopted.check()
    await kind.give(other, adopted)
    with pytest.raises(LeaseLostError):
        await kind.adopt(locks, ticket)
    await is_untouched(kind, locks)


@each_leased
async def test_of_many_adopters_one_gets_it(kind: Kind, locks: LockClient, other: LockClient) -> None:
    ticket = await detached(kind, locks)

    async def adopt(client: LockClient) -> bool:
        try:
            async with client.adopt(ticket, kind=kind.of_ticket):
                return True
        except LeaseLostError:
            return False

    assert sum(await asyncio.gather(*[adopt(client) for client in (locks, other) * 4])) == 1
    await is_untouched(kind, locks)


@each_leased
@pytest.mark.parametrize("whose", ["its own client", "another client"])
async def test_it_ends_with_its_time_even_if_its_lease_was_longer(
    kind: Kind, whose: str, locks: LockClient, other: LockClient
) -> None:
    """The waiters are told of the end."""
    lease = await kind.take(locks)
    tasks = await waiting(kind.rival, locks if whose == "its own client" else other, 1)
    ticket = await lease.detach(0.2)
    async with asyncio.timeout(SOON):
        await asyncio.gather(*tasks)
    with pytest.raises(LeaseLostError) as caught:
        await kind.adopt(other, ticket)
    assert caught.value.reason == "expired"
    await is_untouched(kind, other)


@each_leased
async def test_it_stays_for_longer_than_its_lease(kind: Kind, locks: LockClient, redis: Redis) -> None:
    async with LockClient(redis, config=LockConfig(lease=1)) as client:
        ticket = await detached(kind, client)
    # Each lease of a second that began before has ended by the server's clock.
    await redis.set("meanwhile", "", px=1000)
    await freed(redis, "meanwhile")
    assert not await kind.rival.take(locks)
    await kind.give(locks, await kind.adopt(locks, ticket))
    await is_untouched(kind, locks)


@each_leased
async def test_an_adopter_that_dies_has_it_for_one_lease(kind: Kind, locks: LockClient, other: LockClient) -> None:
    """The lease of the adopter counts, and not the time for which the hold would have stayed detached."""
    ticket = await detached(kind, locks)
    waiter = (await waiting(kind.rival, locks, 1))[0]
    await other.adopt(ticket, kind=kind.of_ticket, lease=0.3, owner="it dies")
    async with asyncio.timeout(SOON):
        await waiter
    await is_untouched(kind, locks)


@each_leased
async def test_a_lock_that_was_freed_by_force_cannot_be_adopted(
    kind: Kind, locks: LockClient, other: LockClient
) -> None:
    ticket = await detached(kind, locks)
    for each in kind.of(other)._members if isinstance(kind, Multi) else [kind.of(other)]:
        assert await each.force_release()
    with pytest.raises(LeaseLostError) as caught:
        await kind.adopt(locks, ticket)
    assert caught.value.reason == "forced"
    await is_untouched(kind, locks)


# Blocks.


@each_leased
async def test_a_block_ends_without_a_release(kind: Kind, locks: LockClient, other: LockClient) -> None:
    async with kind.of(locks) as lease:
        ticket = await lease.detach(LONG)
        with pytest.raises(NotHeldError):
            lease.check()
    assert not await kind.rival.take(other)
    await kind.give(other, await kind.adopt(other, ticket))
    await is_untouched(kind, locks)


class _FailedError(Exception):
    pass


@each_leased
@pytest.mark.parametrize("how", ["lock", "hold", "lease"])
async def test_a_block_that_fails_takes_it_back(kind: Kind, how: str, locks: LockClient, other: LockClient) -> None:
    handle = kind.of(locks)
    block = {"lock": lambda: handle, "hold": handle.hold}.get(how)
    with pytest.raises(_FailedError):
        async with block() if block else await kind.take(locks) as lease:
            ticket = await lease.detach(LONG)
            raise _FailedError
    await is_untouched(kind, other)
    with pytest.raises(LeaseLostError):
        await kind.adopt(other, ticket)


@each_leased
async def test_a_block_that_fails_leaves_its_adopter_alone(kind: Kind, locks: LockClient, other: LockClient) -> None:
    with pytest.raises(_FailedError):
        async with kind.of(locks) as lease:
            adopted = await kind.adopt(other, await lease.detach(LONG))
            raise _FailedError
    assert not await kind.rival.take(locks)
    await adopted.renew()
    await kind.give(other, adopted)


@each_leased
async def test_the_end_of_its_task_and_its_client_leave_it(kind: Kind, redis: Redis, other: LockClient) -> None:
    async with LockClient(redis) as client:
        ticket = await asyncio.create_task(detached(kind, client))
    assert not await kind.rival.take(other)
    await kind.give(other, await kind.adopt(other, ticket))


# Lost replies, late commands and cancellations.


@each_leased
@pytest.mark.parametrize("verb", ["detach", "adopt"])
async def test_a_lost_reply_changes_nothing(
    kind: Kind, verb: str, proxy: Proxy, through: Redis, other: LockClient
) -> None:
    async with LockClient(through, config=PATIENT) as client:
        lost = proxy.install(Rule(script(getattr(kind.scripts, verb)), drop_reply(), 2))
        adopted = await kind.adopt(client, await detached(kind, client))
        await lost.caught(2)
        assert not await kind.rival.take(other)
        await adopted.renew()
        await kind.give(client, adopted)
        await is_untouched(kind, other)


@each_leased
async def test_requests_that_come_late_find_the_ticket_used(
    kind: Kind, proxy: Proxy, through: Redis, other: LockClient
) -> None:
    scripts = kind.scripts
    async with LockClient(through, config=PATIENT) as client:
        late_detach = proxy.install(Rule(script(scripts.detach), hold()))
        ticket = await detached(kind, client)
        late_adopt = proxy.install(Rule(script(scripts.adopt), hold()))
        adopted = await kind.adopt(client, ticket)
        await late_detach.deliver()
        await adopted.renew()
        await kind.give(client, adopted)
        theirs = await kind.rival.take(other)
        await late_adopt.deliver()
        await theirs.renew()
        await kind.rival.give(other, theirs)
        await is_untouched(kind, other)


@each_leased
@pytest.mark.parametrize("verb", ["detach", "adopt"])
async def test_without_an_answer_it_is_given_back_and_a_late_request_does_nothing(
    kind: Kind, verb: str, proxy: Proxy, through: Redis, other: LockClient
) -> None:
    async with LockClient(through, config=LockConfig(command_timeout=1)) as client:
        lease = await kind.take(client)
        ticket = await lease.detach(LONG) if verb == "adopt" else ""
        late = proxy.install(Rule(script(getattr(kind.scripts, verb)), hold(reset=False), 100))
        with pytest.raises(BackendError):
            await (kind.adopt(client, ticket) if ticket else lease.detach(LONG))
        await answered(client)
        if ticket:
            await kind.give(other, await kind.adopt(other, ticket))
        await is_untouched(kind, other)
        await late.deliver()
        await is_untouched(kind, other)


@each_mode
@each_leased
async def test_a_cancelled_detach_leaves_nothing(kind: Kind, mode: Mode, locks: LockClient, other: LockClient) -> None:
    async def verify(lease: Any, outcome: Outcome[str]) -> None:
        if outcome.result is not None:
            await kind.give(other, await kind.adopt(other, outcome.result))
        else:
            assert isinstance(outcome.error, asyncio.CancelledError)
        assert lease.given_back
        await until(lambda: nothing_under_way(locks))
        await is_untouched(kind, other)

    async def run(lease: Any) -> str:
        ticket: str = await lease.detach(LONG)
        return ticket

    assert await every_suspension(mode, partial(kind.take, locks), run, verify) >= 1


@each_mode
@each_leased
async def test_a_cancelled_adoption_leaves_nothing(
    kind: Kind, mode: Mode, locks: LockClient, other: LockClient
) -> None:
    async def verify(ticket: str, outcome: Outcome[None]) -> None:
        await until(lambda: nothing_under_way(locks))
        if theirs := await kind.rival.take(other):
            await kind.rival.give(other, theirs)
        else:
            assert outcome.cancelled
            await kind.give(other, await kind.adopt(other, ticket))
        await is_untouched(kind, other)

    async def run(ticket: str) -> None:
        async with locks.adopt(ticket, kind=kind.of_ticket):
            await asyncio.sleep(0)

    assert await every_suspension(mode, partial(detached, kind, other), run, verify) >= 1
