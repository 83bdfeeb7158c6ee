"""The acts of the contract, which work with every primitive, on any servers."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiolock import LockClient
from tests.contract.kinds import Kind
from tests.support.inside import notifier_of, session_of
from tests.support.observe import until

# A waiter asks by itself only after more seconds, and a busy machine needs less.
SOON = 4.0


async def section(kind: Kind, client: LockClient) -> None:
    """Wait for the primitive, take it, and give it back."""
    taken = await kind.take(client, wait=None)
    assert taken
    await asyncio.sleep(0)
    await kind.give(client, taken)


async def waiting(kind: Kind, client: LockClient, count: int) -> list[asyncio.Task[None]]:
    """Start that many tasks, and return them when all wait and messages reach them."""
    tasks = [asyncio.create_task(section(kind, client)) for _ in range(count)]

    await until(lambda: wait_quietly(kind, client, count), within=20)
    return tasks


def wait_quietly(kind: Kind, client: LockClient, count: int) -> bool:
    """Whether that many tasks of the client wait, and messages reach them."""
    now = client.statistics()
    heads = [entry.queue.head for entry in session_of(client).entries.all() if entry.queue is not None]
    busy = any(head.woken.is_set() or head.trying for head in heads)
    told = notifier_of(client).confirmed(kind.keys.channel)
    return not busy and told and (now.parked, now.pending) == (count, 0)


async def check_that_messages_wake(kind: Kind, ours: LockClient, theirs: LockClient, count: int = 3) -> None:
    """A message wakes the waiter as soon as no holder is in the way, and not before."""
    remove = await kind.obstruct(theirs)
    assert not await kind.take(ours)
    assert not await kind.take(ours, wait=0.01)
    tasks = await waiting(kind, ours, count)
    await remove()
    async with asyncio.timeout(SOON):
        await asyncio.gather(*tasks)
    await until(lambda: ours.statistics().pending == ours.statistics().parked == 0)


async def check_that_no_more_have_it_than_may(kind: Kind, *clients: LockClient, in_blocks: bool = False) -> None:
    """Tasks of the clients take it, and the rivals of them, such as the readers of a writer, are in their way."""
    inside: Counter[str] = Counter()

    @asynccontextmanager
    async def taken(client: LockClient) -> AsyncIterator[None]:
        had = await kind.take(client, wait=None)
        yield
        await kind.give(client, had)

    async def take(client: LockClient) -> None:
        for _ in range(10):
            async with kind.of(client) if in_blocks else taken(client):
                inside["it"] += 1
                assert inside["it"] <= kind.most
                assert inside["the way"] == 0
                await asyncio.sleep(0)
                inside["it"] -= 1

    async def obstruct(client: LockClient) -> None:
        for _ in range(10):
            remove = await kind.obstruct(client)
            inside["the way"] += 1
            assert inside["it"] == 0
            await asyncio.sleep(0)
            inside["the way"] -= 1
            await remove()

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        for client in clients:
            for act in (take, take, take, obstruct):
                group.create_task(act(client))


async def is_untouched(kind: Kind, client: LockClient) -> None:
    """Check that nobody has the primitive: the client takes it at once, and is in the way of others, twice in turn."""
    for _ in range(2):
        taken = await kind.take(client)
        assert taken
        await kind.give(client, taken)
        await (await kind.obstruct(client))()


def nothing_under_way(client: LockClient) -> bool:
    """Whether the client holds nothing, asks for nothing and waits for nothing."""
    now = client.statistics()
    return now.parked == now.pending == now.held == 0 and not session_of(client).entries
