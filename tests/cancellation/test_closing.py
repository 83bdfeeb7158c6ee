"""Cancelled wherever it suspends, closing a client goes on by itself."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from aiolock import ClientClosedError, Lease, LockClient
from tests.cancellation.rounds import AT_ONCE, Arena, each_mode, one_server
from tests.support.cancellation import Mode, Outcome, cancel_at, every_suspension
from tests.support.observe import connected, pubsub_channels, until

pytestmark = one_server


class Closing:
    """A client that holds one lock, for which another client waits, and waits for another lock."""

    def __init__(self, arena: Arena, *, busy: bool) -> None:
        [self.redis] = arena.servers
        self.user = arena.user()
        self.mine = LockClient(self.user)
        self.other = LockClient(arena.redis)
        self.busy = busy
        self.before = asyncio.all_tasks()
        self.waiting: list[asyncio.Task[Lease | None]] = []

    async def begin(self) -> "Closing":
        self.connected = await connected(self.redis)
        if self.busy:
            await self.mine.lock("mine", owner="me").acquire()
            self.theirs = await self.other.lock("theirs", owner="they").acquire()
            for client, name in ((self.mine, "theirs"), (self.other, "mine")):
                self.waiting.append(asyncio.create_task(self._wait(client, name)))
            await until(self._both_wait)
            # The answers have come, but their tasks have not seen them yet.
            for _ in range(3):
                await asyncio.sleep(0)
        return self

    async def end(self, outcome: Outcome[Any]) -> None:
        assert outcome.swallowed == 0
        assert outcome.cancelled == isinstance(outcome.error, asyncio.CancelledError) or outcome.error is None
        if self.busy:
            mine, theirs = self.waiting
            with pytest.raises(ClientClosedError):
                await asyncio.wait_for(mine, AT_ONCE)
            assert await asyncio.wait_for(theirs, AT_ONCE) is not None
            await self.theirs.release()
        await self.other.aclose()
        await until(lambda: asyncio.all_tasks() <= self.before)
        await until(self._is_gone)
        await asyncio.wait_for(self.mine.aclose(), AT_ONCE)
        await self.user.aclose()

    def _both_wait(self) -> bool:
        """Whether each waiter was refused twice, and is parked: its client has sent one grant and two tries."""
        both = (self.mine.statistics(), self.other.statistics())
        return all((now.parked, now.pending, now.commands) == (1, 0, 3) for now in both)

    async def _is_gone(self) -> bool:
        nothing = not await self.redis.exists("mine", "theirs") and not await pubsub_channels(self.redis)
        return nothing and await connected(self.redis) <= self.connected

    @staticmethod
    async def _wait(client: LockClient, name: str) -> Lease | None:
        return await client.lock(name, owner="waiter").try_lock(wait=10)


async def close(closing: Closing) -> None:
    await closing.mine.aclose()


async def leave(closing: Closing) -> None:
    async with closing.mine as client:
        client.statistics()


async def work_and_leave(closing: Closing) -> None:
    """The end of the block releases the locks that the task still holds."""
    async with closing.mine as client:
        await client.lock("left").acquire()


@each_mode
@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
@pytest.mark.parametrize("run", [close, leave, work_and_leave])
async def test_closing(
    arena: Arena, run: Callable[[Closing], Coroutine[Any, Any, None]], busy: bool, mode: Mode
) -> None:
    async def begin() -> Closing:
        return await Closing(arena, busy=busy).begin()

    async def end(closing: Closing, outcome: Outcome[None]) -> None:
        await closing.end(outcome)
        assert not await arena.redis.exists("left")

    undisturbed = await begin()
    outcome = await cancel_at(0, mode, lambda: run(undisturbed))
    await end(undisturbed, outcome)
    visited = await every_suspension(mode, begin, run, end)
    assert visited == outcome.suspended
    assert visited >= 1
    arena.record("suspensions", visited)
