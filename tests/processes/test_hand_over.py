"""A process detaches a lock and is killed; others adopt it, and are killed before, while and after they do."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from redis.asyncio import Redis

from aiolock import LeaseLostError, LockClient
from aiolock._embedded_server import Server
from aiolock._scripts import LOCK
from tests.processes.hand_over import NAME
from tests.support.observe import renewed_elsewhere
from tests.support.programs import Program, python, said, tell
from tests.support.proxy import Proxy, Rule, hold, script, withhold_reply

SOON = 20.0


class Crew:
    """Processes of a hand-over, until the end of the stack."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def hire(self, url: str, act: str, ticket: str | None = None) -> Program:
        running = self._stack.enter_context(python("-m", "tests.processes.hand_over", url, act))
        if ticket is not None:
            tell(running, ticket)
        return running


@pytest.fixture
def crew() -> Iterator[Crew]:
    with ExitStack() as stack:
        yield Crew(stack)


async def line(running: Program) -> str:
    return await asyncio.to_thread(said, running)


@pytest.fixture
async def first(redis: Redis, server: Server, crew: Crew) -> tuple[int, str]:
    """The token and the ticket of a process that was killed after its detach."""
    process = crew.hire(server.url, "detach")
    token, ticket = int(await line(process)), await line(process)
    process.kill()
    process.wait()
    return token, ticket


async def test_an_adopter_has_it_until_it_is_killed_and_one_lease_longer(
    first: tuple[int, str], redis: Redis, server: Server, crew: Crew, locks: LockClient
) -> None:
    token, ticket = first
    assert not await locks.lock(NAME).try_lock()
    adopter = crew.hire(server.url, "adopt", ticket)
    assert int(await line(adopter)) > token
    second = crew.hire(server.url, "adopt", ticket)
    assert (await line(second), await line(second)) == ("taken", "left")
    await renewed_elsewhere(redis, NAME)
    assert not await locks.lock(NAME).try_lock()
    adopter.kill()
    adopter.wait()
    assert not await locks.lock(NAME).try_lock()
    assert await locks.lock(NAME).try_lock(wait=SOON)


async def test_an_adopter_that_ends_frees_it(
    first: tuple[int, str], server: Server, crew: Crew, locks: LockClient
) -> None:
    adopter = crew.hire(server.url, "adopt", first[1])
    await line(adopter)
    tell(adopter, "leave")
    assert await line(adopter) == "left"
    assert await locks.lock(NAME).try_lock()


async def test_an_adopter_that_is_killed_before_its_request_arrives_leaves_the_ticket(
    proxy: Proxy, crew: Crew, other: LockClient
) -> None:
    ticket = await (await other.lock(NAME).acquire()).detach(60)
    held = proxy.install(Rule(script(LOCK.adopt), hold(reset=False)))
    adopter = crew.hire(proxy.url, "adopt", ticket)
    await held.caught(within=SOON)
    adopter.kill()
    await (await other.adopt(ticket)).release()


async def test_an_adopter_that_is_killed_before_its_answer_arrives_has_used_the_ticket_up(
    proxy: Proxy, crew: Crew, other: LockClient
) -> None:
    ticket = await (await other.lock(NAME).acquire()).detach(60)
    withheld = proxy.install(Rule(script(LOCK.adopt), withhold_reply()))
    adopter = crew.hire(proxy.url, "adopt", ticket)
    await withheld.caught(within=SOON)
    adopter.kill()
    with pytest.raises(LeaseLostError):
        await other.adopt(ticket)
    assert await other.lock(NAME).try_lock(wait=SOON)
