"""Copies of a command that one server of a quorum has not answered when the other servers have decided."""

import asyncio

import pytest
from redis.asyncio import Redis

from aiolock import LeaseLostError, LockClient, LockConfig, QuorumError
from aiolock._embedded_server import Server
from aiolock._keys import QUORUM_KEY
from aiolock._redis.quorum import poll
from aiolock._redis.quorum.member import Member
from tests.quorum.several import every_server_has_answered, everywhere, who_has
from tests.support.inside import members_of
from tests.support.observe import until
from tests.support.proxy import ALWAYS, Proxy, Request, Rule, delay, hold, withhold_reply

NAME = "orders"
TOKENS = f"aiolock_token:{{{NAME}}}"


def acquires(request: Request) -> bool:
    return QUORUM_KEY.encode() in request.args


def releases(request: Request) -> bool:
    return TOKENS.encode() in request.args and not acquires(request)


def withhold_acquires(proxies: list[Proxy]) -> list[Rule]:
    """Withhold the answers to the next acquire."""
    return [proxy.install(Rule(acquires, withhold_reply())) for proxy in proxies]


async def sections(client: LockClient, number: int) -> None:
    for _ in range(number):
        async with client.lock(NAME):
            pass


async def try_once(client: LockClient) -> object:
    return await client.lock(NAME).try_lock()


async def ends(redis: Redis) -> int:
    """The number of ended acquisitions that the server remembers."""
    # The token is there, too.
    return int(await redis.zcard(TOKENS)) - 1


async def test_an_acquire_that_is_sent_again_after_the_grant_and_arrives_late(
    proxies: list[Proxy], through: list[Redis], redises: list[Redis]
) -> None:
    """The server remembers the end of that acquisition, also when later releases say what it may forget."""
    async with LockClient.redlock(through) as client:
        await sections(client, 1)
        late = proxies[0].install(Rule(acquires, hold(reset=False)))
        async with client.lock(NAME):
            await late.caught()
        proxies[0].reset_all()
        await sections(client, 2)
        await every_server_has_answered(client)
        await late.deliver()
        assert await who_has(redises, NAME) == [False, False, False]


async def test_an_acquire_that_a_server_refuses_for_a_moment(mine: list[Server], of_mine: list[Redis]) -> None:
    """The acquire is sent again after the release, and grants nothing."""
    async with LockClient.redlock(of_mine) as client:
        await sections(client, 1)
        await of_mine[0].config_set("maxmemory", 1)
        await sections(client, 3)
        await of_mine[0].config_set("maxmemory", 0)
        await every_server_has_answered(client)
        assert await who_has(of_mine, NAME) == [False, False, False]


async def test_a_server_that_is_reached_after_the_acquire_has_failed_grants_nothing(
    mine: list[Server], of_mine: list[Redis]
) -> None:
    for redis in of_mine[:2]:
        await redis.config_set("requirepass", "secret")
    mine[2].pause()
    async with LockClient.redlock(of_mine) as client:
        with pytest.raises(QuorumError, match="the server wants a password"):
            await client.lock(NAME).acquire()
        mine[2].resume()
        await until(lambda: members_of(client)[2].only.connected > 0)
        # A connection writes its unsent commands as soon as it is open.
        await of_mine[2].ping()
        assert not await of_mine[2].exists(NAME)


async def test_a_server_that_is_always_the_last_forgets_ends_like_the_others(
    proxies: list[Proxy], through: list[Redis], redises: list[Redis]
) -> None:
    """The server answers after a majority has ended the call; an answered command cannot come late any more."""
    async with LockClient.redlock(through) as client:
        proxies[0].install(Rule(lambda request: True, delay(0.01), times=ALWAYS))
        # The server is connected after the first section; a release then names the ends to forget.
        for number in (1, 12, 1):
            await sections(client, number)
            await every_server_has_answered(client)
        assert [await ends(redis) <= 2 for redis in redises] == [True, True, True]


async def test_a_waiter_that_an_apparent_majority_refused_is_woken_when_that_is_given_back(
    proxies: list[Proxy], through: list[Redis], redises: list[Redis], other: LockClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One server granted the lock and did not answer: others see a majority where the client knows of a minority."""
    monkeypatch.setattr(poll, "_MOMENTS", (1.0, 0.1))
    async with LockClient.redlock(through) as client:
        await client.ping()
        await every_server_has_answered(client)
        await redises[2].hset(NAME, "somebody:1", "1")
        await redises[2].expire(NAME, 60)
        silent = proxies[1].install(Rule(acquires, withhold_reply()))
        trying = asyncio.create_task(try_once(client))
        await silent.caught()
        waiting = asyncio.create_task(sections(other, 1))
        await until(lambda: other.statistics().parked == 1)
        assert await trying is None
        async with asyncio.timeout(10):
            await waiting


async def lose_the_first(client: LockClient, proxies: list[Proxy]) -> Member:
    """Return the first server when nothing of *client*, which has used the quorum once, reaches it any more."""
    await sections(client, 1)
    await proxies[0].refuse()
    proxies[0].reset_all()
    away = members_of(client)[0]
    await until(lambda: not away.only.ordinary.connection.connected)
    return away


async def test_a_grant_by_too_few_is_given_back_when_another_task_got_the_lock_for_its_owner(
    proxies: list[Proxy], through: list[Redis], redises: list[Redis], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third server alone grants the second task of the owner the lock, before the first one has its answer."""
    # A busy machine takes long until it lets the answers go: until then no connection is given up for its silence.
    monkeypatch.setattr(poll, "_MOMENTS", (10.0, 10.0))
    config = LockConfig(command_timeout=30)
    async with LockClient.redlock(through, config=config) as client, asyncio.TaskGroup() as group:
        lock = client.lock(NAME, owner="job")
        await sections(client, 1)
        await every_server_has_answered(client)
        await redises[2].hset(NAME, "somebody:1", "1")
        await redises[2].expire(NAME, 60)
        seen = [sum(map(acquires, proxy.requests)) for proxy in proxies]
        slow = withhold_acquires(proxies[:2])
        first = group.create_task(lock.acquire())
        await proxies[2].saw(acquires, seen[2] + 1)
        await until(lambda: not members_of(client)[2].only.pending)
        await everywhere(redises, NAME)
        await redises[2].delete(NAME)
        slower = withhold_acquires(proxies[:2])
        second = group.create_task(lock.try_lock())
        await everywhere(redises, NAME)
        for number in (0, 1):
            await proxies[number].saw(acquires, seen[number] + 2)
        for rule in slow:
            rule.let_go()
        await first
        for rule in slower:
            rule.let_go()
        assert await second
        await lock.release()
        await lock.release()
        await every_server_has_answered(client)
        assert await who_has(redises, NAME) == [False, False, False]


async def test_nothing_queues_for_a_server_that_is_away(proxies: list[Proxy], through: list[Redis]) -> None:
    """The release withdraws the acquire, which was never sent."""
    async with LockClient.redlock(through) as client:
        away = await lose_the_first(client, proxies)
        await sections(client, 20)
        assert away.only.pending < 5


async def test_a_server_that_comes_back_before_the_release_gets_the_lock(
    proxies: list[Proxy], through: list[Redis], redises: list[Redis]
) -> None:
    """The acquire waits for the server as long as the lock is held."""
    async with LockClient.redlock(through) as client:
        await lose_the_first(client, proxies)
        async with client.lock(NAME):
            await proxies[0].accept()

            async def has_it() -> bool:
                return all(await who_has(redises, NAME))

            await until(has_it)
        await every_server_has_answered(client)
        assert await who_has(redises, NAME) == [False, False, False]


async def test_an_acquire_that_leaves_after_the_grant_is_sent_again_and_arrives_late(
    proxies: list[Proxy], through: list[Redis], redises: list[Redis]
) -> None:
    """The server comes back within the block, and remembers the end as if the acquire had left before the grant."""
    async with LockClient.redlock(through) as client:
        await lose_the_first(client, proxies)
        late = proxies[0].install(Rule(acquires, hold(reset=False)))
        async with client.lock(NAME):
            await proxies[0].accept()
            await late.caught()
            proxies[0].reset_all()
            await every_server_has_answered(client)
        await sections(client, 2)
        await every_server_has_answered(client)
        await late.deliver()
        assert await who_has(redises, NAME) == [False, False, False]


async def test_a_release_counts_a_server_that_its_acquire_never_reached(
    proxies: list[Proxy], through: list[Redis], redises: list[Redis]
) -> None:
    """The server has nothing to give back. Another one has forgotten the lock, so that one server has it at the end."""
    async with LockClient.redlock(through) as client:
        await lose_the_first(client, proxies)
        with pytest.raises(LeaseLostError, match="its key was deleted"):
            async with client.lock(NAME):
                await redises[1].delete(NAME)
        assert await who_has(redises, NAME) == [False, False, False]
