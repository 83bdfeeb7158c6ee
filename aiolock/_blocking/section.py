"""One call of a plain function under its lock, or without it; see `aiolock._primitives.section`."""

from aiolock._blocking.blocks import Entered
from aiolock._blocking.lease import Lease, MultiLease, lease_of
from aiolock._primitives.section import UNAVAILABLE
from aiolock._primitives.section import Section as AsyncSection


class _Under:
    """The block of one call, with a *lease* or without."""

    def __init__(self, section: AsyncSection, lease: Lease | MultiLease | None) -> None:
        self._section = section
        self._lease = lease

    def _refuse_lost(self) -> None:
        if self._lease is not None:
            self._lease._refuse_lost()

    async def _leave(self, error: BaseException | None) -> None:
        if self._lease is None:
            return
        try:
            await self._lease._leave(error)
        except UNAVAILABLE as failure:
            if not self._section.forgives(failure):
                raise


class Section(Entered[AsyncSection, bool]):
    """The section of one call; the value of its ``with`` says whether the function is to run."""

    __slots__ = ()

    async def _begin(self) -> tuple[_Under, bool]:
        granted = await self._async.acquire()
        lease = None if granted is None else lease_of(self._runner, face_of=granted)._in_block(self._async.release)
        return _Under(self._async, lease), self._async.runs
