"""The adoption of a lock that another process has detached: `LockClient.adopt`."""

from collections.abc import Generator, Sequence
from typing import Any, final

from aiolock._core.adopt import TicketAcquisition
from aiolock._core.detach import prolong
from aiolock._core.lease import Lease, release_unawaited
from aiolock._core.owners import current_task, refuse_elsewhere
from aiolock._core.session import Sessions
from aiolock._core.ticket import MULTI, Ticket
from aiolock._helpers.together import Begun, all_of
from aiolock._primitives.held_block import Acquirable, G, HeldBlock
from aiolock._primitives.multi.lease import MultiLease
from aiolock._primitives.multi.member import Member
from aiolock._types import Duration, lease_seconds


@final
class DetachedLocks:
    """The detached locks of a *ticket*, with a handle for each: an object that can be acquired."""

    def __init__(self, ticket: Ticket, members: Sequence[Member]) -> None:
        self._ticket = ticket
        self._members = members

    @property
    def name(self) -> str:
        """The names of the locks, as a text for people."""
        return ", ".join(part.name for part in self._ticket.parts)

    @property
    def _sessions(self) -> Sessions:
        return self._members[0]._sessions

    @property
    def _acts_as_one(self) -> bool:
        return self._members[0]._acts_as_one

    async def prolong(self, keep: float | None) -> float:
        """
        Keep the locks detached for at least *keep* seconds from now; returns for how many seconds they stay detached.

        ``None`` means the *keep* of the detach.
        """
        session, pairs = self._sessions.open(), zip(self._members, self._ticket.parts, strict=True)
        asked = [
            Begun(prolong(part, member._want, session, part.keep if keep is None else keep)) for member, part in pairs
        ]
        return min(await all_of(asked))

    async def _acquire_or_raise(self, wait: Duration | None, lease: Duration | None) -> Lease | MultiLease:
        adopted = await self._adopt(lease)
        return MultiLease(adopted) if self._ticket.kind == MULTI else adopted[0]

    async def _adopt(self, lease: Duration | None) -> list[Lease]:
        """Adopt all the locks, in one turn of the loop; after a failure, those that were granted are given back."""
        length = None if lease is None else lease_seconds(lease)
        granted: list[Lease] = []
        pairs = zip(self._members, self._ticket.parts, strict=True)
        acquisitions = [TicketAcquisition(member._acquisition(length), part) for member, part in pairs]

        async def adopt(acquisition: TicketAcquisition) -> Lease:
            adopted = await acquisition.run(0)
            # An adoption that is not granted raises.
            assert adopted is not None
            granted.append(adopted)
            return adopted

        try:
            return await all_of([Begun(adopt(each)) for each in acquisitions])
        except BaseException:
            release_unawaited(granted)
            raise


@final
class Adoption(HeldBlock[G]):
    """
    The result of `LockClient.adopt`: await it for the lease, or enter it with ``async with``; only once.

    Nothing is sent to Redis before that.
    """

    __slots__ = ("_caller",)

    _UNUSED = "adopt() was never awaited or entered, so nothing was adopted"

    def __init__(self, lock: Acquirable[G], lease: Duration | None) -> None:
        super().__init__(lock, None, lease)
        self._caller = current_task()

    def __await__(self) -> Generator[Any, Any, G]:
        self._unused = False
        return self._adopted().__await__()

    async def _adopted(self) -> G:
        if self._caller is not current_task():
            refuse_elsewhere(self)
        return await self._acquire()
