"""AsyncRLock: a reentrant lock, owned by one asyncio task or by a named owner."""

from copy import copy
from dataclasses import replace
from enum import IntEnum
from typing import Self, Unpack

from aiolock._answers import answering
from aiolock._core.lease import Lease
from aiolock._core.owners import in_own_task
from aiolock._primitives.base import Lock
from aiolock._primitives.held_block import HeldLock
from aiolock._types import BlockRelease, Duration, Holder, lease_seconds, whole_number
from aiolock._words import NoMore, unexpected

# The greatest token: Redis loses digits of greater numbers.
_MOST = 2**53
_TOKEN = "the token (leave it out to free the lock from any holder)"


class Whose(IntEnum):
    """The default of *token*: unlike ``None``, it is no value that a variable may have by mistake."""

    ANYBODY = 0


@answering
class AsyncRLock(Lock):
    """
    A reentrant distributed lock; made by `LockClient.lock`.

    The handle has no state of its own: it is cheap, tasks may share it, and all handles of one name do the same. The
    owner is the running task, unless the lock was made for a named owner. The owner may acquire again, and the lock is
    free after as many releases. The lock follows Redisson's ``RLock``, and has the same layout in Redis.
    """

    __slots__ = ()

    @in_own_task
    async def try_lock(
        self,
        wait: Duration | None = 0,
        lease: Duration | None = None,
        *,
        at_least: Duration | None = None,
    ) -> Lease | None:
        """
        Take the lock if that is possible within *wait* seconds, else return ``None``.

        ``wait=0`` asks Redis once; ``wait=None`` waits for ever. *lease*, cancellation and errors are as in `acquire`,
        and *at_least* is as in `hold`. When Redis does not answer, the error may come up to
        `LockConfig.command_timeout` after the wait has ended.
        """
        return await self._keeping(at_least, lease)._acquire(wait, lease)

    try_acquire = try_lock

    def hold(
        self,
        wait: Duration | None = None,
        lease: Duration | None = None,
        *,
        at_least: Duration | None = None,
        release: BlockRelease | None = None,
        **unknown: Unpack[NoMore],
    ) -> HeldLock:
        """
        Hold the lock for an ``async with`` block: ``async with lock.hold(wait=2, lease=10) as lease:``.

        *wait* and *lease* are in seconds, as in `try_lock`, but a wait that ends raises `LockTimeoutError`. If the lock
        is lost, the block is cancelled, once, and `LeaseLostError` is raised.

        For *at_least* seconds from the grant, nobody else gets the lock, nor the same owner again, even if the block
        ends sooner, for whatever reason, or the process dies. The end of the block does not wait for this time. If
        holds are nested, the longest *at_least* counts. ShedLock calls this ``lockAtLeastFor``. An *at_least* above
        *lease* raises `ValueError`.

        *release* overrides `LockConfig.release`; ``"behind"`` with *at_least* raises `ValueError`.
        """
        if unknown:
            raise unexpected("hold", unknown)
        if at_least is not None:
            refuse_behind(release)
        return HeldLock(self._keeping(at_least, lease), wait, lease, release)

    async def force_release(self, *, token: int = Whose.ANYBODY) -> bool:
        """
        Free the lock from any holder, and wake a waiter; returns whether the lock was freed.

        With a *token*, the lock is freed only if its holder has that fencing token: a later holder is left alone. A
        token of ``None`` is refused; leave the argument out to free the lock from any holder. A lock that was released,
        but that *at_least* keeps, has no token. For operators: a holder in another client learns of the loss at its
        next renewal or release. Waits for the server's answer, up to `LockConfig.command_timeout`; a cancelled call may
        have freed the lock or not.

        Raises:
            TypeError, ValueError: *token* is not a whole number above zero; or this is a client of several servers
                (`redlock`), which takes no *token*.
            NotALockError: the key is not a lock.
            BackendError: Redis failed.
            ClientClosedError: the client is closed, or belongs to another loop or process.
        """
        session = self._sessions.open()
        if token is Whose.ANYBODY:
            return await session.force_release(self._want)
        token = whole_number(token, _TOKEN, least=1, most=_MOST)
        # Servers outside of the majority may know the holder by another token.
        if session.timing.is_of_quorum:
            raise TypeError("several independent servers cannot compare tokens: call force_release() without one")
        return await session.force_release(self._want, token)

    def _keeping(self, at_least: Duration | None, lease: Duration | None) -> Self:
        """A handle of the same lock whose holds last *at_least*, if that is given; checked against *lease*."""
        return self if at_least is None else self._kept(at_least_seconds(at_least, lease))

    def _kept(self, at_least: float) -> Self:
        """A handle of the same lock whose holds last *at_least* seconds."""
        kept = copy(self)
        kept._want = replace(self._want, at_least=at_least)
        return kept

    async def holder(self) -> Holder | None:
        """The holder, according to Redis; ``None`` if there is none. Waits and raises like `locked`."""
        return await self._holder()


def refuse_behind(release: BlockRelease | None) -> None:
    """Raise if *release* is "behind", which does not work with `at_least`."""
    if release == "behind":
        raise ValueError('release must be "answered" with at_least: only the answer tells whether the lock is kept')


def at_least_seconds(at_least: Duration, lease: Duration | None) -> float:
    """The seconds of *at_least*, checked against the *lease*."""
    least = lease_seconds(at_least, "at_least")
    if lease is not None and lease_seconds(lease) < least:
        raise ValueError(f"at_least must be no longer than the lease, {lease!r}, not {at_least!r}")
    return least
