"""The semaphores of threads."""

from typing import Any, Final, final

from aiolock._blocking.blocks import Entered
from aiolock._blocking.lease import Lease
from aiolock._blocking.locks import Held, One
from aiolock._blocking.verbs import grant, part, perhaps, plain, verb
from aiolock._primitives.counting_semaphore import AsyncCountingSemaphore
from aiolock._primitives.counting_semaphore import HeldCountingSemaphore as AsyncHeldCountingSemaphore
from aiolock._primitives.semaphore import AsyncSemaphore
from aiolock._types import Duration, quoted


async def _put_back(taken: None, semaphore: AsyncCountingSemaphore, permits: int | None = None) -> None:
    await semaphore.release(permits)


async def _put_back_if_taken(
    taken: bool, semaphore: AsyncCountingSemaphore, wait: Duration | None = 0, *, permits: int | None = None
) -> None:
    if taken:
        await semaphore.release(permits)


@final
class HeldCountingSemaphore(Entered[AsyncHeldCountingSemaphore, None]):
    """The result of `CountingSemaphore.hold`, for one ``with`` at a time."""

    __slots__ = ()

    def __enter__(self) -> None:
        # Also if the enter is refused.
        self._async._held._unused = False
        super().__enter__()

    async def _begin(self) -> tuple[Lease, None]:
        return Lease(self._runner, face_of=await self._async._held._acquire())._in_block(), None


@final
class CountingSemaphore(Entered[AsyncCountingSemaphore, None]):
    """A counter, which loses the permits of a process that dies; made by `LockClient.counting_semaphore`."""

    __slots__ = ()

    acquire: Final = verb(AsyncCountingSemaphore.acquire, _put_back)
    try_acquire: Final = verb(AsyncCountingSemaphore.try_acquire, _put_back_if_taken)
    release: Final = verb(AsyncCountingSemaphore.release)
    hold: Final = part(AsyncCountingSemaphore.hold, HeldCountingSemaphore)
    locked: Final = verb(AsyncCountingSemaphore.locked)
    available: Final = verb(AsyncCountingSemaphore.available)
    drain: Final = verb(AsyncCountingSemaphore.drain)
    add_permits: Final = verb(AsyncCountingSemaphore.add_permits)
    try_set_permits: Final = verb(AsyncCountingSemaphore.try_set_permits)
    statistics: Final = plain(AsyncCountingSemaphore.statistics)

    @property
    def name(self) -> str:
        """The name that was given to the factory."""
        return self._async.name

    def taking(self, permits: int) -> "CountingSemaphore":
        """The same semaphore; an acquire or a release without a number is one of *permits*. No I/O."""
        return CountingSemaphore(self._runner, face_of=self._async.taking(permits))

    async def _begin(self) -> tuple[Lease, None]:
        return Lease(self._runner, face_of=await self._async._block._acquire_or_raise(None, None))._in_block(), None


@final
class HeldSemaphore(Held[Lease]):
    """The result of `Semaphore.hold`, for one ``with`` at a time."""

    __slots__ = ()


@final
class Semaphore(One[AsyncSemaphore]):
    """A semaphore, whose permits are leases; made by `LockClient.semaphore`. See `AsyncSemaphore`."""

    __slots__ = ()

    acquire: Final = grant(AsyncSemaphore.acquire, Lease)
    try_acquire: Final = perhaps(AsyncSemaphore.try_acquire, Lease)
    hold: Final = part(AsyncSemaphore.hold, HeldSemaphore)
    locked: Final = verb(AsyncSemaphore.locked)
    available: Final = verb(AsyncSemaphore.available)
    acquired: Final = verb(AsyncSemaphore.acquired)
    permits: Final = verb(AsyncSemaphore.permits)
    holders: Final = verb(AsyncSemaphore.holders)
    set_permits: Final = verb(AsyncSemaphore.set_permits)
    add_permits: Final = verb(AsyncSemaphore.add_permits)
    force_release: Final = verb(AsyncSemaphore.force_release)
    _release: Final = verb(AsyncSemaphore.release)
    _renew: Final = verb(AsyncSemaphore.renew)

    def taking(self, permits: int) -> "Semaphore":
        """The same semaphore; an acquire without a number takes *permits*. No I/O."""
        return Semaphore(self._runner, face_of=self._async.taking(permits))

    def release(self, permit: Lease | None = None) -> None:
        """Give *permit* back, from any thread; see `AsyncSemaphore.release`."""
        self._release(None if permit is None else self._lease_of(permit))

    def renew(self, permit: Lease, lease: Duration | None = None) -> None:
        """Renew the lease of *permit*, from any thread; see `AsyncSemaphore.renew`."""
        self._renew(self._lease_of(permit), lease)

    def _lease_of(self, permit: object) -> Any:
        return self._own(permit, f"permit must be a Lease that an acquire of {quoted(self.name)} returned")
