"""A block with a wait and a lease of its own, which `hold` of each lock returns."""

import sys
import warnings
from asyncio import Task
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, Protocol, TypeVar, final

from aiolock._core.lease import Lease
from aiolock._core.session import Sessions
from aiolock._primitives.entered import Entered
from aiolock._primitives.multi.lease import MultiLease
from aiolock._process import Unique
from aiolock._types import BlockRelease, Duration, check_choice, lease_seconds, quoted, seconds

G = TypeVar("G", bound=Lease | MultiLease)
G_co = TypeVar("G_co", bound=Lease | MultiLease, covariant=True)


class Terms(NamedTuple):
    """The arguments of `hold`, checked."""

    wait: float | None
    lease: float | None
    release: BlockRelease | None

    @classmethod
    def of(cls, wait: Duration | None, lease: Duration | None, release: BlockRelease | None) -> "Terms":
        """Check the arguments; `TypeError` or `ValueError` for an invalid one."""
        most = None if wait is None else seconds(wait, "wait", zero=True)
        length = None if lease is None else lease_seconds(lease)
        if release is not None:
            check_choice(release, BlockRelease, "release")
        return cls(most, length, release)


class Acquirable(Protocol[G_co]):
    """A handle that a block can acquire."""

    @property
    def name(self) -> str:
        """The name that was given to the factory."""

    @property
    def _sessions(self) -> Sessions:
        """The session of the client that made the handle."""

    @property
    def _acts_as_one(self) -> bool:
        """Whether all tasks that acquire it are the same owner."""

    def _acquire_or_raise(self, wait: Duration | None, lease: Duration | None) -> Coroutine[Any, Any, G_co]:
        """Acquire within *wait* seconds, or raise `LockTimeoutError`."""


class HeldBlock(Unique, Entered[G]):
    """The result of `hold`, for one ``async with`` at a time."""

    __slots__ = ("_lock", "_terms", "_unused")

    _UNUSED = (
        "hold() was never entered, so it acquired nothing: write `async with`, or `with` for a lock of "
        "`aiolock.blocking`"
    )

    def __init__(
        self,
        lock: Acquirable[G],
        wait: Duration | None,
        lease: Duration | None,
        release: BlockRelease | None = None,
    ) -> None:
        # False until the arguments are checked: an object that was refused needs no warning.
        self._unused = False
        super().__init__(lock._sessions)
        self._lock = lock
        self._terms = Terms.of(wait, lease, release)
        self._unused = True

    def __del__(self, is_exiting: Callable[[], bool] = sys.is_finalizing) -> None:
        try:
            unused = self._unused
        except AttributeError:
            # An interrupt came before `__init__`.
            return
        if unused and not is_exiting():
            text = f"lock {quoted(self._lock.name)}: {self._UNUSED}"
            warnings.warn(text, RuntimeWarning, stacklevel=2, source=self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {quoted(self._lock.name)}>"

    @property
    def _acts_as_one(self) -> bool:
        return self._lock._acts_as_one

    def _enter(self, caller: "Task[object] | None") -> Coroutine[Any, Any, G]:
        # Also if the enter is refused.
        self._unused = False
        return super()._enter(caller)

    async def _acquire(self) -> G:
        """Acquire the lease of a block."""
        return await self._lock._acquire_or_raise(self._terms.wait, self._terms.lease)

    async def _begin(self) -> tuple[G, G]:
        granted = await self._acquire()
        granted._open_block(self._terms.release)
        return granted, granted


@final
class HeldLock(HeldBlock[Lease]):
    """The result of `AsyncRLock.hold`, for one ``async with`` at a time."""

    __slots__ = ()
