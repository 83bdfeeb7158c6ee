"""What the user of a multi lock gets to see: one lease for each of its locks, as one."""

import asyncio
from collections.abc import Coroutine, Generator, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType, TracebackType
from typing import Any, Self, final

from aiolock._core.lease import Lease
from aiolock._core.scope import Place
from aiolock._core.together import Begun, all_of, leave_all
from aiolock._errors import LossReason
from aiolock._types import Duration


@final
class MultiLoss:
    """Whether any of several leases was lost: ask `is_set`, or await it."""

    __slots__ = ("_leases",)

    def __init__(self, leases: Sequence[Lease]) -> None:
        self._leases = leases

    def is_set(self) -> bool:
        """Whether any of the locks is lost; by the clock too, as `Loss.is_set`."""
        return any(lease.lost.is_set() for lease in self._leases)

    def __await__(self) -> Generator[Any, None, LossReason]:
        """
        Wait until any of the locks is lost, and tell why; for ever if none ever is, also after their release.

        Raises:
            ClientClosedError: in another event loop or process than that of its client.
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
    One hold of each of several locks, as `AsyncMultiLock.acquire` and its kin return it.

    It may be passed to other tasks; the holds still belong to the owner that acquired them, and end with it. ``async
    with lease:`` gives them back at the end, and cancels its body when any of the locks is lost.
    """

    __slots__ = ("_leases",)

    def __init__(self, leases: Iterable[Lease]) -> None:
        self._leases = tuple(leases)

    @property
    def leases(self) -> Mapping[str, Lease]:
        """The lease of each lock, by its name."""
        return MappingProxyType({lease.name: lease for lease in self._leases})

    @property
    def tokens(self) -> Mapping[str, int]:
        """The fencing token of each lock, by its name; as `Lease.token`."""
        return MappingProxyType({lease.name: lease.token for lease in self._leases})

    @property
    def lease(self) -> float:
        """Seconds: how long the locks were asked for, or the watchdog's lease."""
        return min(lease.lease for lease in self._leases)

    @property
    def remaining(self) -> float:
        """Seconds until the first of the leases counts as over, unless it is renewed; 0 when one is lost."""
        return min(lease.remaining for lease in self._leases)

    @property
    def given_back(self) -> bool:
        """Whether all were released."""
        return all(lease.given_back for lease in self._leases)

    @property
    def lost(self) -> MultiLoss:
        """Whether any of the locks is lost: ``lease.lost.is_set()``, ``await lease.lost``."""
        return MultiLoss(self._leases)

    def check(self) -> None:
        """
        Raise if any of the locks is no longer held; cheap, no I/O.

        Raises:
            LeaseLostError: one is lost, by the clock or by word of the server.
            NotHeldError: one was given back.
        """
        for lease in sorted(self._leases, key=_is_not_lost):
            lease.check()

    async def __aenter__(self) -> Self:
        for lease in self._leases:
            lease._refuse_block()
        self._open_block(None)
        return self

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Coroutine[object, object, None]:
        blocks = [partial(lease._session.blocks.leave_lease, lease) for lease in reversed(self._leases)]
        return leave_all(blocks, error)

    async def release(self) -> None:
        """
        Give the holds back, from any task.

        Waits for the server's answers, up to `LockConfig.release_timeout`. Cancelling stops the waiting only: the
        releases are sent all the same.

        Raises:
            NotHeldError: one was given back before; the others are given back.
            LeaseLostError: one was lost; the others are given back.
            BackendError: no answer in time; the releases are tried on for as long as there can be something to free.
        """
        await all_of([Begun(lease.release()) for lease in reversed(self._leases)])

    async def renew(self, lease: Duration | None = None) -> None:
        """
        Let each lock live *lease* seconds from now; ``None`` means as long as it was asked for.

        Waits, raises and is cancelled as `Lease.renew`.
        """
        await all_of([Begun(each.renew(lease)) for each in self._leases])

    def __repr__(self) -> str:
        return f"<MultiLease of {', '.join(repr(lease.name) for lease in self._leases)}>"

    def _open_block(self, place: Place | None) -> None:
        """A block begins, which is one of each lock, the last one innermost."""
        for lease in self._leases:
            lease._session.blocks.enter(lease, place)


def _is_not_lost(lease: Lease) -> bool:
    return not lease.lost.is_set()
