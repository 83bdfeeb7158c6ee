"""AsyncSemaphore: so many permits, counted and nothing else."""

import sys
from collections.abc import Coroutine
from types import TracebackType
from typing import final

from aiolock._core.lease import Lease
from aiolock._core.scope import place_of
from aiolock._core.session import Sessions
from aiolock._keys import LockKeys
from aiolock._primitives.base import ACQUIRES, Held, Named, Single, taken_by_nobody
from aiolock._primitives.entered import Entered
from aiolock._scripts import ADD_PERMITS, DRAIN, GRANTED, INSPECT_SEMAPHORE, SEMAPHORE, SET_PERMITS, Want
from aiolock._types import Duration, number_of_permits


@final
class AsyncSemaphore(Named):
    """
    A distributed semaphore that only counts; made by `LockClient.semaphore`.

    Whoever acquires may end and another release, as with `asyncio.Semaphore`. What a process has acquired when it dies
    never comes back by itself: where that must not be, use `LockClient.permit_expirable_semaphore`. A handle without
    state of its own; held, in its statistics, are its blocks and no other permits. Follows Redisson's ``RSemaphore``,
    with which it shares its layout in Redis.
    """

    __slots__ = ("_block", "_initial", "_number")

    def __init__(self, sessions: Sessions, keys: LockKeys, initial: int | None, *, number: int = 1) -> None:
        super().__init__(sessions, keys)
        self._initial = initial
        self._number = number  # Of permits that an acquire or a release means which does not say how many.
        self._block = Block(sessions, self._want(None), None)

    def taking(self, permits: int) -> "AsyncSemaphore":
        """
        The same semaphore, of which each acquire takes so many *permits*, unless it says another number.

        So does each release. For ``async with`` and `LockClient.synchronized`, where no number can be said. No I/O.

        Raises:
            TypeError, ValueError: *permits* is not a whole number above zero.
        """
        return AsyncSemaphore(self._sessions, self._keys, self._initial, number=number_of_permits(permits, least=1))

    async def acquire(self, permits: int | None = None) -> None:
        """
        Wait as long as it takes for so many *permits*, all at once; ``None`` is one, or what `taking` said.

        Waits in a FIFO with the other tasks of this client; other clients may overtake who wants several. Cancelling
        leaves nothing behind: permits that were on their way are put back.

        Raises:
            TypeError, ValueError: *permits* is not a whole number above zero.
            NotALockError: the key is something else.
            BackendError: Redis failed for longer than `LockConfig.command_timeout`.
            ReplicationError: fewer replicas than `LockConfig.replicas` have it; the grant was undone.
            ClientClosedError: the client is closed, or belongs to another loop or process.
        """
        await self.try_acquire(permits, None)

    async def try_acquire(self, permits: int | None = None, wait: Duration | None = 0) -> bool:
        """
        Take so many *permits* if that is possible within *wait* seconds, else none of them; whether it took them.

        ``wait=0`` asks Redis once; ``wait=None`` waits for ever. Cancelling and errors as in `acquire`. When Redis does
        not answer, the error may come up to `LockConfig.command_timeout` after the wait has ended.
        """
        return await taken_by_nobody(self._sessions, self._want(permits), wait)

    async def release(self, permits: int | None = None) -> None:
        """
        Put so many *permits* back, whoever acquired them; ``None`` as in `acquire`.

        As in Redisson there may be more than before. Waits for the server's answer, up to `LockConfig.release_timeout`.
        Cancelling stops the waiting only: the release is sent all the same. Sent twice, it counts once.

        Raises:
            TypeError, ValueError: *permits* is not a whole number above zero.
            NotALockError: the key is something else.
            BackendError: no answer in time; it is tried on for half a minute from its beginning.
            ClientClosedError: the client is closed, or belongs to another loop or process.
        """
        # If nobody has said how many there are, none is acquired: then there are as many as were said to be.
        number = self._several(permits)
        before = 0 if self._initial is None else self._initial - number
        await self._change_by(number, before, frees=True)

    def hold(self, wait: Duration | None = None, *, permits: int | None = None) -> "HeldSemaphore":
        """
        So many *permits* for an ``async with`` block, bounded: ``async with semaphore.hold(wait=2):``.

        *wait* is in seconds, as in `try_acquire`, but a wait that ends raises `LockTimeoutError`. The block puts them
        back at its end, also when its task is cancelled or the client closed; closing cancels it, and raises
        `LeaseLostError`.
        """
        return HeldSemaphore(Block(self._sessions, self._want(permits), None), wait)

    async def locked(self) -> bool:
        """Whether there are fewer permits than an acquire takes, by Redis; waits and raises as `available`."""
        return await self.available() < self._number

    async def available(self) -> int:
        """
        How many permits are there to be acquired, by Redis.

        Waits for the server's answer, up to `LockConfig.command_timeout`, and changes nothing; cancelling is harmless.

        Raises:
            NotALockError: the key is something else.
            BackendError: Redis failed.
            ClientClosedError: the client is closed, or belongs to another loop or process.
        """
        status, available, _ = await self._sessions.open().inspector.ask(INSPECT_SEMAPHORE, self._keys, 1)
        return int(available) if status == GRANTED else self._initial or 0

    async def drain(self) -> int:
        """
        Take all permits that are available; how many that were.

        Waits for the server's answer, up to `LockConfig.command_timeout`; cancelling leaves it done or not done. Sent
        twice, it counts once, and says the same. Raises as `available`.
        """
        _, taken, _ = await self._sessions.open().change(DRAIN, self._keys, self._initial or 0)
        return int(taken)

    async def add_permits(self, permits: int) -> None:
        """
        Let there be so many *permits* more, or fewer if that is below zero.

        Fewer than are available makes that number fall below zero, and nobody is granted any until it has risen. Waits
        for the server's answer; cancelling leaves it done or not done. Sent twice, it counts once. Raises as
        `available`, and `TypeError` or `ValueError` if *permits* is no whole number.
        """
        await self._change_by(number_of_permits(permits, least=None), self._initial or 0)

    async def try_set_permits(self, permits: int) -> bool:
        """
        Let there be so many *permits*, if nobody has said so before; whether nobody had.

        Waits for the server's answer; cancelling leaves it done or not done. Sent twice, it says the same. Raises as
        `add_permits`.
        """
        how = (number_of_permits(permits, least=0), self._keys.channel)
        status, *_ = await self._sessions.open().change(SET_PERMITS, self._keys, *how)
        return bool(status == GRANTED)

    def __aenter__(self) -> Coroutine[object, object, None]:
        return _without_lease(self._block._enter(place_of(sys._getframe(1))))

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Coroutine[object, object, None]:
        return self._block._leave(sys._getframe(1), error)

    def _want(self, permits: int | None) -> Want:
        terms = ("" if self._initial is None else self._initial,)
        return Want(self._keys, SEMAPHORE, (self._several(permits),), terms)

    def _several(self, permits: int | None) -> int:
        return self._number if permits is None else number_of_permits(permits, least=1)

    async def _change_by(self, more: int, before: int, *, frees: bool = False) -> None:
        how = (more, before, self._keys.channel)
        await self._sessions.open().change(ADD_PERMITS, self._keys, *how, frees=frees)


@final
class HeldSemaphore(Entered[None]):
    """What `AsyncSemaphore.hold` returns, for one ``async with`` at a time."""

    __slots__ = ("_held", "_name")

    def __init__(self, block: "Block", wait: Duration | None) -> None:
        super().__init__()
        self._held = block.hold(wait)
        self._name = block.name

    async def _begin(self) -> tuple[Lease, None]:
        lease, _ = await self._held._begin()
        return lease, None

    def __repr__(self) -> str:
        return f"<HeldSemaphore of {self._name!r}>"


@final
class Block(Single):
    """What a block of a semaphore holds: a lease that nobody is shown, as it has no end to be told of."""

    __slots__ = ()

    def hold(self, wait: Duration | None) -> Held[Lease]:
        """A block."""
        return Held(self, wait, None)


async def _without_lease(entering: Coroutine[object, object, Lease]) -> None:
    await entering


ACQUIRES.add(_without_lease.__code__)
