"""Tasks that queue for a lock, hold it until the test lets them go on, and note the order of their turns."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self

from aiolock import AsyncRLock, Lease, LockClient
from aiolock._primitives.base import Single
from tests.support.inside import hears, places_of
from tests.support.observe import until


class Waiters:
    """Numbered tasks, started one after another; each that gets the lock waits for `go`, unless it is open."""

    def __init__(self, client: LockClient, name: str, *, go: bool = False, lease: float | None = None) -> None:
        self.lock: AsyncRLock = client.lock(name)
        self._client = client
        self.order: list[int] = []
        self.tasks: list[asyncio.Task[None]] = []
        self._gates: list[asyncio.Event] = []
        self._open = go
        self._lease = lease

    async def park(self, count: int) -> None:
        """Start that many more tasks, and return when all of them are parked and the client waits for no answer."""
        start = len(self.tasks)
        for number in range(start, start + count):
            self._gates.append(asyncio.Event())
            self.tasks.append(asyncio.create_task(self._take_turn(number), name=f"waiter {number}"))
        parked = self.lock.statistics().parked + count
        await until(lambda: self.lock.statistics().parked == parked, within=10)
        await until(self.quiet)

    def quiet(self) -> bool:
        """Whether messages arrive, and the attempt after the subscription is over."""
        return waits_quietly(self._client, self.lock)

    def none_failed(self) -> bool:
        """True; raises the exception of a waiter, if one failed."""
        for task in self.tasks:
            if task.done():
                task.result()
        return True

    async def granted(self, count: int, within: float = 5.0) -> None:
        """Return when that many tasks have had the lock, counted from the start."""
        await until(lambda: len(self.order) >= count, within)

    def go(self) -> None:
        """Let the present holder release."""
        self._gates[self.order[-1]].set()

    def go_on(self) -> None:
        """Let the holder release, and all later ones."""
        self._open = True
        for gate in self._gates:
            gate.set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self.tasks:
            task.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks)

    async def _take_turn(self, number: int) -> None:
        async with self.lock.hold(lease=self._lease):
            self.order.append(number)
            if not self._open:
                await self._gates[number].wait()


def waits_quietly(client: LockClient, lock: Single) -> bool:
    """Whether a waiter exists, messages arrive, and no waiter is trying: the one that was the head may be another."""
    places = places_of(lock)
    busy = client.statistics().pending > 0 or any(place.trying or place.woken.is_set() for place in places)
    return bool(places) and not busy and hears(client, lock)


@asynccontextmanager
async def parked(
    client: LockClient, holder: LockClient, name: str, count: int, *, go: bool = False, lease: float = 60
) -> AsyncIterator[tuple[Lease, Waiters]]:
    """Start that many waiters of the client, for a lock that the running task holds by another client."""
    theirs = await holder.lock(name).acquire(lease=lease)
    async with Waiters(client, name, go=go) as waiters:
        await waiters.park(count)
        yield theirs, waiters
