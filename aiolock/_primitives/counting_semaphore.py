"""AsyncCountingSemaphore: a number of permits, without owners or leases."""

import sys
from asyncio import Task
from collections.abc import Coroutine
from types import CoroutineType, TracebackType
from typing import Any, Unpack, cast, final

from aiolock._answers import answering, marked
from aiolock._core.lease import Lease
from aiolock._core.owners import current_task
from aiolock._core.session import Sessions
from aiolock._keys import LockKeys
from aiolock._primitives.base import Single
from aiolock._primitives.entered import Entered
from aiolock._primitives.held_block import HeldBlock
from aiolock._primitives.named import Named, acquire_without_owner
from aiolock._scripts import ADD_PERMITS, COUNTING_SEMAPHORE, DRAIN, INSPECT_COUNTING_SEMAPHORE, SET_PERMITS, Want
from aiolock._types import Duration, number_of_permits, quoted
from aiolock._words import NoMore, unexpected


@final
@answering
class AsyncCountingSemaphore(Named):
    """
    A counter of permits, which loses the permits of a process that dies; made by `LockClient.counting_semaphore`.

    The lost permits never come back by themselves: if that is a problem, use `LockClient.semaphore`. One task may
    acquire and another release, as with `asyncio.Semaphore`. The handle has no state of its own; `held` in its
    statistics counts open blocks only. The semaphore follows Redisson's ``RSemaphore``, and has the same layout in
    Redis.
    """

    __slots__ = ("_block", "_initial", "_number")

    def __init__(self, sessions: Sessions, *, keys: LockKeys, initial: int | None, number: int = 1) -> None:
        super().__init__(sessions, keys=keys)
        self._initial = initial
        # The permits of an acquire or a release without a number.
        self._number = number
        self._block = Block(sessions, want=self._want(None), named=None)

    def taking(self, permits: int) -> "AsyncCountingSemaphore":
        """
        The same semaphore with another default: an acquire or a release without a number is one of *permits*.

        For ``async with`` and `LockClient.synchronized`, where no number can be given. No I/O.

        Raises:
            TypeError, ValueError: *permits* is not a whole number above zero.
        """
        number = number_of_permits(permits, least=1)
        return AsyncCountingSemaphore(self._sessions, keys=self._keys, initial=self._initial, number=number)

    async def acquire(self, permits: int | None = None) -> None:
        """
        Wait as long as it takes for *permits*, all at once; ``None`` means one, or the number given to `taking`.

        Waits in a FIFO with the other tasks of this client; other clients may overtake an acquire of several permits.
        Cancelling leaves nothing behind: permits that were on their way are put back.

        Raises:
            TypeError, ValueError: *permits* is not a whole number above zero.
            NotALockError: the key is not a semaphore.
            BackendError: Redis failed for longer than `LockConfig.command_timeout`.
            ReplicationError: fewer replicas than `LockConfig.replicas` acknowledged it; the grant was undone.
            ClientClosedError: the client is closed, or belongs to another loop or process.
        """
        await self.try_acquire(None, permits=permits)

    async def try_acquire(self, wait: Duration | None = 0, *, permits: int | None = None) -> bool:
        """
        Take all *permits* within *wait* seconds, or none of them; returns whether it took them.

        ``wait=0`` asks Redis once; ``wait=None`` waits for ever. Cancellation and errors are as in `acquire`. When
        Redis does not answer, the error may come up to `LockConfig.command_timeout` after the wait has ended.
        """
        return await acquire_without_owner(self._sessions, self._want(permits), wait)

    async def release(self, permits: int | None = None) -> None:
        """
        Put *permits* back, even those that another task acquired; ``None`` as in `acquire`.

        As with `asyncio.Semaphore`, a release adds permits, even before the first acquire: a new semaphore of 2 has 3
        permits after a `release`. Waits for the server's answer, up to `LockConfig.release_timeout`. Cancelling only
        stops the waiting: the release is sent all the same. A release that is sent twice counts once.

        A release does not wait for `LockConfig.replicas`: a failover may lose a release that was just answered. Its
        permits are gone then, until you replace them with `add_permits`.

        Raises:
            TypeError, ValueError: *permits* is not a whole number above zero.
            NotALockError: the key is not a semaphore.
            BackendError: no answer in time; aiolock goes on trying, for half a minute from the call.
            ClientClosedError: the client is closed, or belongs to another loop or process.
        """
        await self._change_by(self._several(permits), frees=True)

    def hold(
        self, wait: Duration | None = None, *, permits: int | None = None, **unknown: Unpack[NoMore]
    ) -> "HeldCountingSemaphore":
        """
        Hold *permits* for an ``async with`` block: ``async with semaphore.hold(wait=2):``.

        *wait* is in seconds, as in `try_acquire`, but a wait that ends raises `LockTimeoutError`. The block puts the
        permits back at its end, even if its task is cancelled or the client is closed. Closing the client cancels the
        block, which then raises `LeaseLostError`. If the task that entered the block ends before, as that of a pytest
        fixture does, the permits are put back then, and the end of the block raises `LeaseLostError`.
        """
        if unknown:
            raise unexpected("hold", unknown)
        return HeldCountingSemaphore(Block(self._sessions, want=self._want(permits), named=None), wait)

    async def locked(self) -> bool:
        """Whether fewer permits are available than an acquire takes, by Redis; waits and raises like `available`."""
        return await self.available() < self._number

    async def available(self) -> int:
        """
        The number of permits that can be acquired, according to Redis.

        Redis has no number before the first acquire, release or change; until then, the result is the number that was
        given to the factory, or 0.

        Waits for the server's answer, up to `LockConfig.command_timeout`, and changes nothing; cancelling is harmless.

        Raises:
            NotALockError: the key is not a semaphore.
            BackendError: Redis failed.
            ClientClosedError: the client is closed, or belongs to another loop or process.
        """
        seen = await self._sessions.open().commands.ask(INSPECT_COUNTING_SEMAPHORE, self._keys, 1)
        return seen.available_of(self._initial)

    async def drain(self) -> int:
        """
        Take all permits that are available, and return their number.

        Waits for the server's answer, up to `LockConfig.command_timeout`; a cancelled call may have taken the permits
        or not. A command that is sent twice counts once, with the same result. Raises like `available`.
        """
        taken = await self._sessions.open().change(DRAIN, self._keys, self._initial or 0)
        return taken or 0

    async def add_permits(self, permits: int) -> None:
        """
        Add *permits* to the number of permits; a negative number takes permits away.

        If the number falls below zero, no permit is granted until it has risen again. Waits for the server's answer; a
        cancelled call may have changed the number or not. A command that is sent twice counts once. Raises like
        `available`, and `TypeError` or `ValueError` if *permits* is not a whole number.
        """
        await self._change_by(number_of_permits(permits, least=None))

    async def try_set_permits(self, permits: int) -> bool:
        """
        Set the number of permits, if none is set yet; returns whether it was set.

        Waits for the server's answer; a cancelled call may have set the number or not. A command that is sent twice has
        the same result. Raises like `add_permits`.
        """
        how = (number_of_permits(permits, least=0), self._keys.channel)
        return await self._sessions.open().change(SET_PERMITS, self._keys, *how) is not None

    @marked
    def __aenter__(self) -> "CoroutineType[Any, Any, None]":
        return cast("CoroutineType[Any, Any, None]", _without_lease(self._block._enter(current_task(), depth=2)))

    @marked
    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> "CoroutineType[Any, Any, None]":
        left = self._sessions.leave(sys._getframe(1), current_task(), self._block._want, None, error)
        return cast("CoroutineType[Any, Any, None]", left)

    def _want(self, permits: int | None) -> Want:
        return Want(self._keys, COUNTING_SEMAPHORE, (self._several(permits),), self._initial)

    def _several(self, permits: int | None) -> int:
        return self._number if permits is None else number_of_permits(permits, least=1)

    async def _change_by(self, more: int, *, frees: bool = False) -> None:
        how = (more, self._initial or 0, self._keys.channel)
        await self._sessions.open().change(ADD_PERMITS, self._keys, *how, frees=frees)


@final
class HeldCountingSemaphore(Entered[None]):
    """The result of `AsyncCountingSemaphore.hold`, for one ``async with`` at a time."""

    __slots__ = ("_held", "_name")

    def __init__(self, block: "Block", wait: Duration | None) -> None:
        super().__init__(block._sessions)
        self._held = HeldBlock(block, wait, None)
        self._name = block.name

    def _enter(self, caller: "Task[object] | None") -> Coroutine[Any, Any, None]:
        self._held._unused = False
        return super()._enter(caller)

    async def _begin(self) -> tuple[Lease, None]:
        lease, _ = await self._held._begin()
        return lease, None

    def __repr__(self) -> str:
        return f"<HeldCountingSemaphore of {quoted(self._name)}>"


@final
class Block(Single):
    """The hold of a block; it has an endless lease, which users do not see."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<AsyncCountingSemaphore {quoted(self.name)}>"


async def _without_lease(entering: Coroutine[Any, Any, Lease]) -> None:
    await entering
