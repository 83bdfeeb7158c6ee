"""A client asks all Sentinels at once: a dead, silent or wrong one keeps no client from the primary."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from redis.asyncio import Redis
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool

from aiolock import BackendError, LockClient, LockConfig
from aiolock._embedded_server import Server
from aiolock._redis.sentinel.ask import Sentinels
from tests.support.calls import acquire_and_release
from tests.support.observe import renewed, until
from tests.support.topologies import NAME as PRIMARY
from tests.support.topologies import Replicated, ask, replicated

NAME = "orders"
NOBODY = ("127.0.0.1", 1)

Address = tuple[str, int]


@pytest.fixture(scope="module")
def setup(server: Server) -> Iterator[Replicated]:
    with Replicated(server._executable, replicas=0, sentinels=3) as running:
        yield running


@pytest.fixture(scope="module")
def other(setup: Replicated) -> Server:
    """A server that the Sentinels do not know."""
    return setup.start()


@asynccontextmanager
async def users_client(
    addresses: Sequence[Address], kind: type[Sentinel] = Sentinel, *, name: str = PRIMARY, **settings: Any
) -> AsyncIterator[Redis]:
    """The client as users make it, with the default retries of redis-py."""
    sentinel = kind(addresses, **settings)
    redis = sentinel.master_for(name)
    yield redis
    await redis.aclose()
    for each in sentinel.sentinels:
        await each.aclose()


async def lock_through(redis: Redis, **settings: Any) -> None:
    async with LockClient(redis, config=LockConfig(**settings)) as locks:
        await acquire_and_release(locks.lock(NAME))


async def test_a_dead_sentinel_costs_nothing(setup: Replicated) -> None:
    async with users_client([NOBODY, *setup.addresses]) as redis:
        await lock_through(redis)


@pytest.mark.parametrize("fault", [Server.kill, Server.pause])
async def test_a_primary_dies_together_with_the_first_sentinel(server: Server, fault: Callable[[Server], None]) -> None:
    with Replicated(server._executable, replicas=1, sentinels=3) as setup:
        async with (
            users_client(setup.addresses) as redis,
            LockClient(redis, config=LockConfig(lease=30, renew_interval=1, command_timeout=15)) as locks,
            locks.lock(NAME) as lease,
        ):
            await replicated(setup.primary, 1)
            fault(setup.sentinels[0])
            setup.primary.kill()
            await renewed(locks, 2, within=25)
            lease.check()


async def test_a_silent_sentinel_costs_a_moment_and_keeps_no_connection(setup: Replicated) -> None:
    silent, other = setup.sentinels[:2]
    silent.pause()
    try:
        asking = {"client_name": "asking"}
        async with users_client([(each.host, each.port) for each in (silent, other)], sentinel_kwargs=asking) as redis:
            await lock_through(redis)
    finally:
        silent.resume()
    for each in (silent, other):
        await until(lambda each=each: "name=asking" not in str(ask(each, "CLIENT", "LIST")))


async def test_the_majority_of_sentinels_is_believed_even_if_another_answers_first(
    setup: Replicated, other: Server
) -> None:
    astray = setup.start("--sentinel", config=f"sentinel monitor {PRIMARY} {other.host} {other.port} 1\n")
    told = asyncio.Event()

    class LateUnlessAstray(Sentinel):
        async def discover_master(self, service_name: str) -> Address:
            address: Address = await super().discover_master(service_name)
            if address[1] == other.port:
                told.set()
            await told.wait()
            return address

    addresses = [(astray.host, astray.port), *setup.addresses[:2]]
    async with users_client(addresses, LateUnlessAstray) as redis, LockClient(redis) as locks, locks.lock(NAME):
        assert ask(setup.primary, "EXISTS", NAME)
        assert not ask(other, "EXISTS", NAME)


@pytest.mark.parametrize("order", [1, -1])
async def test_where_no_majority_agrees_the_latest_failover_is_believed(
    setup: Replicated, other: Server, order: int
) -> None:
    """A Sentinel that is cut off from the others goes on to name the primary that was replaced."""
    new = setup.start()
    config = f"sentinel monitor {PRIMARY} %s %d 1\nsentinel config-epoch {PRIMARY} %d\n"
    named = [(other.host, other.port, 1), (new.host, new.port, 2)][::order]
    sentinels = [setup.start("--sentinel", config=config % each) for each in named]
    addresses = [NOBODY, *[(each.host, each.port) for each in sentinels]]
    async with users_client(addresses) as redis, LockClient(redis) as locks, locks.lock(NAME):
        assert ask(new, "EXISTS", NAME)
        assert not ask(other, "EXISTS", NAME)


async def test_a_subclass_of_sentinel_may_translate_addresses(setup: Replicated, other: Server) -> None:
    class Translating(Sentinel):
        async def discover_master(self, service_name: str) -> Address:
            found = await super().discover_master(service_name)
            return {(setup.primary.host, setup.primary.port): (other.host, other.port)}[found]

    async with users_client(setup.addresses, Translating) as redis, LockClient(redis) as locks, locks.lock(NAME):
        assert ask(other, "EXISTS", NAME)
        assert not ask(setup.primary, "EXISTS", NAME)


async def test_when_none_answers_the_error_names_each(setup: Replicated) -> None:
    silent = setup.sentinels[0]
    silent.pause()
    try:
        async with users_client([NOBODY, (silent.host, silent.port)]) as redis:
            with pytest.raises(BackendError) as caught:
                await lock_through(redis, command_timeout=1.5)
    finally:
        silent.resume()
    assert f"no Sentinel names a primary '{PRIMARY}' that is up (127.0.0.1:1: Error 111" in str(caught.value)
    assert f"{silent.host}:{silent.port}: no answer in time)" in str(caught.value)


async def test_a_name_that_no_sentinel_knows_is_reported(setup: Replicated) -> None:
    async with users_client(setup.addresses, name="unheard-of") as redis:
        with pytest.raises(BackendError, match=f"{setup.addresses[2][1]}: No master found for 'unheard-of'"):
            await lock_through(redis, command_timeout=1.5)


async def test_servers_that_are_no_sentinels_are_refused_at_once(setup: Replicated) -> None:
    primary = (setup.primary.host, setup.primary.port)
    async with users_client([primary, primary]) as redis, asyncio.timeout(5):
        with pytest.raises(BackendError, match=rf"{primary[1]}: this is no Sentinel; .* this is no Sentinel"):
            await lock_through(redis, command_timeout=30)
    # A server that is no Sentinel keeps no client from the Sentinels.
    async with users_client([primary, *setup.addresses]) as redis:
        await lock_through(redis)


async def test_a_silent_sentinel_is_known_to_be_in_a_loop_that_is_often_blocked() -> None:
    """Each timeout comes late, so that the process may have been slow; after some of them the Sentinel is silent."""

    class Blocking(Sentinel):
        asked = 0

        async def discover_master(self, service_name: str) -> tuple[str, int]:
            Blocking.asked += 1
            time.sleep(0.1)
            await asyncio.Event().wait()
            raise AssertionError

    async with users_client([NOBODY], Blocking) as redis:
        [sentinel] = Sentinels(cast("SentinelConnectionPool", redis.connection_pool), 0.05).each(0.05)
        await sentinel.ask()
    assert (sentinel.named, Blocking.asked) == (None, 2)
