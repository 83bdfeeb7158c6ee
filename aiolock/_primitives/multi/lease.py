"""The lease of a multi lock: one object for the leases of all its locks."""

import asyncio
from collections.abc import Generator, Iterable, Mapping, Sequence
from functools import partial
from types import CoroutineType, MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Self, cast, final

from aiolock._answers import NoCondition, marked
from aiolock._core.detach import detach, refuse_to_detach
from aiolock._core.lease import Lease
from aiolock._core.ticket import MOST_PARTS, MULTI, Ticket
from aiolock._errors import LossReason
from aiolock._helpers.together import Begun, all_of, leave_all
from aiolock._types import BlockRelease, Duration, lease_seconds
from aiolock._words import refuse_attribute


@final
class MultiLoss(NoCondition):
    """Whether any of several leases is lost: call `is_set`, or await this object."""

    __slots__ = ("_leases",)

    def __init__(self, leases: Sequence[Lease]) -> None:
        self._leases = leases

    def is_set(self) -> bool:
        """Whether any of the locks is lost, by the clock or by an answer of the server; see `Loss.is_set`."""
        return any(lease.lost.is_set() for lease in self._leases)

    def __await__(self) -> Generator[Any, None, LossReason]:
        """
        Wait until any of the locks is lost, and return the reason; never ends if none is lost, even after the release.

        Raises:
            ClientClosedError: you await it in another event loop or process than the client's.
        """
        return self._first().__await__()

    async def _first(self) -> LossReason:
        waits = [asyncio.ensure_future(lease.lost) for lease in self._leases]
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
        return done.pop().result()

    def __repr__(self) -> str:
        return f"<MultiLoss {'set' if self.is_set() else 'not set'}>"


@final
class MultiLease:
    """
    One hold of each of several locks, as `AsyncMultiLock.acquire` and similar methods return it.

    You may pass it to other tasks; the holds still belong to the owner that acquired them, and end with that owner.
    ``async with lease:`` gives the holds back at the end, and cancels its body when any of the locks is lost.
    """

    __slots__ = ("_leases",)

    if not TYPE_CHECKING:
        __getattr__ = refuse_attribute

    def __init__(self, leases: Iterable[Lease]) -> None:
        self._leases = tuple(leases)

    @property
    def leases(self) -> Mapping[str, Lease]:
        """The lease of each lock, by its name."""
        return MappingProxyType({lease.name: lease for lease in self._leases})

    @property
    def tokens(self) -> Mapping[str, int]:
        """The fencing token of each lock, by its name; see `Lease.token`."""
        return MappingProxyType({lease.name: lease.token for lease in self._leases})

    @property
    def lease(self) -> float:
        """Seconds: the lease that the acquire asked for, or the watchdog's."""
        return min(lease.lease for lease in self._leases)

    @property
    def remaining(self) -> float:
        """Seconds until the first of the leases ends, unless it is renewed; 0 if one is lost."""
        return min(lease.remaining for lease in self._leases)

    @property
    def given_back(self) -> bool:
        """Whether all the holds were given back."""
        return all(lease.given_back for lease in self._leases)

    @property
    def lost(self) -> MultiLoss:
        """Whether any of the locks is lost: ``lease.lost.is_set()``, ``await lease.lost``."""
        return MultiLoss(self._leases)

    def check(self) -> None:
        """
        Raise if any of the locks is no longer held; cheap, no I/O.

        Raises:
            LeaseLostError: one of the locks is lost, by the clock or by an answer of the server.
            NotHeldError: one of the holds was given back.
        """
        for lease in sorted(self._leases, key=_is_not_lost):
            lease.check()

    async def __aenter__(self) -> Self:
        for lease in self._leases:
            lease._refuse_block()
        self._open_block()
        return self

    @marked
    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> "CoroutineType[Any, Any, None]":
        blocks = [partial(lease._session.blocks.leave_lease, lease) for lease in reversed(self._leases)]
        return cast("CoroutineType[Any, Any, None]", leave_all(blocks, error))

    async def release(self) -> None:
        """
        Give the holds back, from any task.

        Waits for the server's answers, up to `LockConfig.release_timeout`. Cancelling only stops the waiting: the
        releases are sent all the same.

        Raises:
            NotHeldError: one of the holds was given back before; the others are given back now.
            LeaseLostError: one of the locks was lost; the others are given back.
            BackendError: no answer in time; the releases are tried for as long as there can be something to free.
        """
        await all_of([Begun(lease.release()) for lease in reversed(self._leases)])

    async def renew(self, lease: Duration | None = None) -> None:
        """
        Let each lock live *lease* seconds from now; ``None`` means the length that the acquire asked for.

        Waiting, cancellation and errors are as in `Lease.renew`.
        """
        await all_of([Begun(each.renew(lease)) for each in self._leases])

    async def detach(self, keep: Duration) -> str:
        """
        Hand all the locks over to another process; returns a ticket for `LockClient.adopt` of kind ``"multi_lock"``.

        If one of the locks cannot be detached, all of them are released. Waiting, cancellation and errors are as in
        `Lease.detach`. `ValueError` is also raised if the locks are of several clients, or more than 1,000.
        """
        seconds = lease_seconds(keep, "keep")
        if len(self._leases) > MOST_PARTS:
            raise ValueError(f"a ticket is for {MOST_PARTS} locks at most, not {len(self._leases)}: detach fewer")
        for lease in self._leases:
            refuse_to_detach(lease, lease._session, seconds)
        if any(lease._session is not self._leases[0]._session for lease in self._leases):
            raise ValueError("locks of several clients cannot be detached as one: detach the lease of each")
        try:
            parts = await all_of([Begun(detach(lease, lease._session, seconds)) for lease in self._leases])
        except BaseException:
            for lease in self._leases:
                if lease._detached is not None:
                    _ = lease._detached.take_back()
            raise
        return Ticket(MULTI, parts).text()

    def __repr__(self) -> str:
        return f"<MultiLease of {', '.join(repr(lease.name) for lease in self._leases)}>"

    def _open_block(self, release: BlockRelease | None = None) -> None:
        """Begin a block for each lock, the last one innermost."""
        for lease in self._leases:
            lease._open_block(release)

    @property
    def _is_settled(self) -> bool:
        """Whether `BaseLease._is_settled` is true for all leases."""
        return all(lease._is_settled for lease in self._leases)

    def _note_may_be_left(self) -> None:
        """Call `BaseLease._note_may_be_left` for all leases."""
        for lease in self._leases:
            lease._note_may_be_left()


def _is_not_lost(lease: Lease) -> bool:
    return not lease.lost.is_set()
