"""One call of a function under its lock; as the user chooses, the function runs without the lock, or is skipped."""

from collections.abc import Sequence
from types import TracebackType
from typing import NamedTuple

from aiolock._core.lease import Lease
from aiolock._errors import AioLockError, BackendError, LockTimeoutError, ReplicationError
from aiolock._primitives.base import Single
from aiolock._primitives.counting_semaphore import AsyncCountingSemaphore
from aiolock._primitives.handle import Handle, acquirable_of
from aiolock._primitives.held_block import Acquirable, Terms
from aiolock._primitives.multi.lease import MultiLease
from aiolock._primitives.multi.lock import AsyncMultiLock
from aiolock._types import BlockRelease, Duration, OnBusy, OnUnavailable, check_choice

# The errors of an acquire that say nothing about other owners: Redis failed, or too few replicas acknowledged.
UNAVAILABLE = (BackendError, ReplicationError)


class Conduct(NamedTuple):
    """The *terms* of the block around a function, and what happens if the lock is busy or Redis is unavailable."""

    terms: Terms
    busy: OnBusy
    on_unavailable: OnUnavailable

    @classmethod
    def of(
        cls,
        wait: Duration | None,
        lease: Duration | None,
        release: BlockRelease | None,
        on_unavailable: OnUnavailable,
        busy: OnBusy = "raise",
    ) -> "Conduct":
        """Check the arguments; with *busy* "skip" the default of the wait is 0."""
        check_choice(busy, OnBusy, "busy")
        check_choice(on_unavailable, OnUnavailable, "on_unavailable")
        terms = Terms.of(0 if busy == "skip" and wait is None else wait, lease, release)
        return cls(terms, busy, on_unavailable)


class Section:
    """The section of one call; the value of its ``async with`` says whether the function is to run."""

    __slots__ = ("_conduct", "_granted", "_handle", "_lock", "runs")

    def __init__(self, handle: Handle, conduct: Conduct) -> None:
        self._handle = handle
        self._lock: Acquirable[Lease | MultiLease] = acquirable_of(handle, conduct.terms)
        self._conduct = conduct
        self._granted: Lease | MultiLease | None = None
        self.runs: bool = True
        """Whether the function is to run, under the lock or without it."""

    @property
    def name(self) -> str:
        """The name of the lock."""
        return self._handle.name

    @property
    def release(self) -> BlockRelease | None:
        """Whether the end of the block waits for the answer to its release; ``None`` means as the client says."""
        return self._conduct.terms.release

    async def acquire(self) -> Lease | MultiLease | None:
        """The lease for the function; ``None`` if the function runs without a lease, or is skipped: see `runs`."""
        try:
            return await self._lock._acquire_or_raise(self._conduct.terms.wait, self._conduct.terms.lease)
        except LockTimeoutError:
            if self._conduct.busy != "skip":
                raise
            self.runs = False
        except UNAVAILABLE as error:
            if not bypass(self._conduct.on_unavailable, _parts_of(self._handle), error):
                raise
        return None

    async def _begin(self) -> tuple[Lease | MultiLease | None, Lease | MultiLease | None]:
        """Begin the block, if there is a lease, as `Entered._begin` does; a counting semaphore's users see no lease."""
        granted = await self.acquire()
        if granted is not None:
            granted._open_block(self.release)
        return granted, None if isinstance(self._handle, AsyncCountingSemaphore) else granted

    async def __aenter__(self) -> bool:
        self._granted, _ = await self._begin()
        return self.runs

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._granted is None:
            return
        try:
            await self._granted.__aexit__(kind, error, trace)
        except UNAVAILABLE as failure:
            if error is not None or not self.forgives(failure):
                raise

    def forgives(self, failure: AioLockError) -> bool:
        """Whether the *failure* of the release is logged and not raised, after the function ended without an error."""
        return forgives(self._conduct.on_unavailable, _parts_of(self._handle), failure)


def bypass(on_unavailable: OnUnavailable, parts: Sequence[Single], error: AioLockError) -> bool:
    """
    Whether work that needs the locks *parts* runs without them, because Redis failed with *error*; if so, reports it.

    The work does not run while another task of this client has one of the locks: that lock is busy.
    """
    if on_unavailable != "run":
        return False
    acting = [(part, session := part._sessions.open(), session.owners.acting(part._named)[0]) for part in parts]
    if any(session.leases.has_another(part._want, owner) for part, session, owner in acting):
        return False
    for part, session, owner in acting:
        session.report.bypassed(part._want, owner, error)
    return True


def forgives(on_unavailable: OnUnavailable, parts: Sequence[Single], failure: AioLockError) -> bool:
    """Whether the *failure* of the release of *parts*, after work without an error, is not raised; if so, logs it."""
    if on_unavailable != "run":
        return False
    for part in parts:
        part._sessions.here().report.left_unanswered(part._want, failure)
    return True


def _parts_of(handle: Handle) -> Sequence[Single]:
    if isinstance(handle, AsyncMultiLock):
        return handle._members
    return (handle._block if isinstance(handle, AsyncCountingSemaphore) else handle,)
