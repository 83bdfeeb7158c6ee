"""The ways to use a lock, one method each; a worker's task takes one after the other at random."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from random import Random
from time import monotonic

import anyio

from aiolock import AsyncMultiLock, AsyncReadLock, AsyncReadWriteLock, AsyncRLock, AsyncWriteLock, LockClient
from tests.soak.journal import READS, Entry, Journal, Section, inside
from tests.soak.settings import NAMES

Lock = AsyncRLock | AsyncReadLock | AsyncWriteLock

TICK = 0.05
MOMENTS = (0.0, 0.0, 0.0, 0.005, 0.005, 0.005, 0.005, 0.02, 0.02, 0.02, 0.05, 0.05, 0.1, 0.1, 0.3)


class Waits:
    """The waits for locks that are under way, with their beginnings."""

    def __init__(self) -> None:
        self._begun: dict[object, tuple[float, str]] = {}

    def oldest(self) -> float:
        return min((at for at, _ in self._begun.values()), default=0.0)

    def names(self) -> str:
        """The waits for locks, oldest first."""
        return " ".join(name for _, name in sorted(self._begun.values()))

    def begin(self, lock: Lock | AsyncMultiLock) -> float:
        at = monotonic()
        self._begun[asyncio.current_task()] = at, lock.name.replace(", ", "+")
        return at

    def end(self) -> None:
        self._begun.pop(asyncio.current_task(), None)


class Visitor:
    """One task of a worker, which enters the locks in each form there is."""

    def __init__(
        self, who: str, locks: LockClient, journal: Journal, waits: Waits, *, chance: Random, stays: bool
    ) -> None:
        self._who = who
        self._locks = locks
        self._journal = journal
        self._waits = waits
        self._chance = chance
        self._stays = stays
        self._releasing: set[asyncio.Task[None]] = set()
        plain = (self.scoped, self.held, self.tried, self.nested, self.named, self.fixed, self.renewed)
        self._plain = (*plain, self.several, self.read, self.written)
        cut = (self.forgotten, self.cancelled, self.timed_out, self.moved_on, self.group)
        self._forms: tuple[Callable[[], Awaitable[None]], ...] = (*self._plain, *cut)

    async def visit(self) -> None:
        await self._chance.choice(self._forms)()

    async def scoped(self) -> None:
        async with self._entered("scoped") as section:
            await self._stay(section)

    async def held(self) -> None:
        async with self._entered("held", wait=self._chance.uniform(0, 1)) as section:
            await self._stay(section)

    async def fixed(self) -> None:
        """A lease that is not renewed; the body may last longer."""
        async with self._entered("fixed", lease=self._chance.uniform(0.1, 1)) as section:
            await self._stay(section)

    async def renewed(self) -> None:
        async with self._entered("renewed", lease=0.5) as section:
            for _ in range(3):
                await self._stay(section, 0.1)
                await section.lease.renew(self._chance.choice((None, 1)))

    async def nested(self) -> None:
        lock = self._lock()
        async with self._entered("nested", lock) as section:
            inner = await lock.acquire(lease=self._chance.choice((None, 1, 5)))
            try:
                assert inner.token == section.lease.token
                await self._stay(section)
            finally:
                await inner.release()
            await self._stay(section)

    async def group(self) -> None:
        """A task group in the body fails; the body catches that, asks its lease, and goes on, perhaps for too long."""

        async def fail() -> None:
            await asyncio.sleep(self._chance.uniform(0, 0.1))
            raise ArithmeticError

        async with self._entered("group", lease=self._chance.choice((None, 1.2))) as section:
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(fail())
                    await asyncio.sleep(self._chance.choice((0, 0.05)))
            except* ArithmeticError:
                section.mark()
            # Before Python 3.13 the group drops a cancellation that comes while it fails.
            section.lease.check()
            await self._stay(section)

    async def several(self) -> None:
        """Several locks as one: each lock has a section of its own; the sections begin and end together."""
        locks = self._locks.multi(*self._chance.sample(NAMES, self._chance.randint(2, 3)))
        asked = self._waits.begin(locks)
        try:
            async with locks as lease:
                self._waits.end()
                with ExitStack() as stack:
                    each_inside = [
                        inside(self._journal, each, "several", asked, scoped=True) for each in lease.leases.values()
                    ]
                    sections = [stack.enter_context(each) for each in each_inside]
                    await self._stay(sections[-1])
        finally:
            self._waits.end()

    async def read(self) -> None:
        """A reader: others may be inside, if they read, too."""
        async with self._entered(READS, self._read_write().read) as section:
            await self._stay(section)

    async def written(self) -> None:
        async with self._entered("written", self._read_write().write) as section:
            await self._stay(section)

    async def tried(self) -> None:
        lock = self._lock()
        asked = self._waits.begin(lock)
        try:
            lease = await lock.try_lock(self._chance.choice((0, 0.05, 1)))
        finally:
            self._waits.end()
        if lease is None:
            self._journal.write(Entry("refused", monotonic(), form="tried", asked=asked))
            return
        try:
            with inside(self._journal, lease, "tried", asked) as section:
                await self._stay(section)
        finally:
            await self._chance.choice((lease.release, lock.release))()

    async def named(self) -> None:
        """One task acquires the lock, another one gives it back."""
        lock = self._lock(owner=self._who)
        asked = self._waits.begin(lock)
        try:
            lease = await lock.acquire()
        finally:
            self._waits.end()

        try:
            with inside(self._journal, lease, "named", asked) as section:
                await self._stay(section)
        finally:
            releasing = asyncio.create_task(lock.release())
            self._releasing.add(releasing)
            releasing.add_done_callback(self._released)
            # A release that is cancelled before it begins would release nothing.
            await asyncio.shield(releasing)

    def _released(self, task: asyncio.Task[None]) -> None:
        self._releasing.discard(task)
        if not task.cancelled():
            # The task that began the release may have been cancelled, and asks for no error.
            task.exception()

    async def forgotten(self) -> None:
        """A task that ends while it holds the lock."""

        async def forget() -> None:
            lock = self._lock()
            asked = self._waits.begin(lock)
            try:
                lease = await lock.acquire()
            finally:
                self._waits.end()
            with inside(self._journal, lease, "forgotten", asked) as section:
                await self._stay(section, 0.01)

        await asyncio.create_task(forget())

    async def cancelled(self) -> None:
        task = asyncio.ensure_future(self._chance.choice(self._plain)())
        await ended(task, self._chance.uniform(0, 0.3))
        if not task.cancelled():
            task.result()

    async def timed_out(self) -> None:
        limit = asyncio.timeout(self._chance.uniform(0, 0.3))
        try:
            async with limit:
                await self._chance.choice(self._plain)()
        except TimeoutError:
            if not limit.expired():
                raise

    async def moved_on(self) -> None:
        with anyio.move_on_after(self._chance.uniform(0, 0.3)):
            await self._chance.choice(self._plain)()

    def _read_write(self) -> AsyncReadWriteLock:
        return self._locks.read_write_lock(f"{self._chance.choice(NAMES)} to be read")

    def _lock(self, owner: str | None = None) -> AsyncRLock:
        return self._locks.lock(self._chance.choice(NAMES), owner=owner)

    @asynccontextmanager
    async def _entered(
        self, form: str, lock: Lock | None = None, *, wait: float | None = None, lease: float | None = None
    ) -> AsyncIterator[Section]:
        lock = lock or self._lock()
        asked = self._waits.begin(lock)
        try:
            async with lock.hold(wait, lease) as granted:
                self._waits.end()
                with inside(self._journal, granted, form, asked, scoped=True) as section:
                    yield section
        finally:
            self._waits.end()

    async def _stay(self, section: Section, seconds: float | None = None) -> None:
        left = self._moment() if seconds is None else seconds
        while left > 1e-6:
            try:
                await asyncio.sleep(min(left, TICK))
            except asyncio.CancelledError:
                if not (self._stays and section.lease.lost.is_set()):
                    raise
            left -= TICK
            section.mark()
            if not section.scoped and section.lease.lost.is_set():
                return

    def _moment(self) -> float:
        """Seconds: mostly few, sometimes more than a fixed lease has."""
        return self._chance.choice((*MOMENTS, self._chance.uniform(0.3, 1.5)))


async def ended(task: "asyncio.Future[None]", within: float | None = None) -> None:
    """Return when *task* has ended; it is cancelled when the time is over, or when the caller is cancelled."""
    try:
        await asyncio.wait([task], timeout=within)
    finally:
        task.cancel()
        await asyncio.wait([task])
