"""AsyncReadWriteLock: many may read at a time, or one may write."""

from collections.abc import Sequence
from typing import NamedTuple, final

from aiolock._core.acquire import Acquisition
from aiolock._core.session import Sessions
from aiolock._errors import BackendError, LockTimeoutError, NotALockError, NotHeldError
from aiolock._keys import WRITER, LockKeys
from aiolock._primitives.base import BaseLock
from aiolock._scripts import INSPECT_READ_WRITE, READ, WRITE, ScriptSet, Want
from aiolock._types import Holder

_MOST_NAMED = 1000  # Holds, of which the server looks at each.


class _Seen(NamedTuple):
    """A hold, as the server saw it; *left* is in seconds, *ours* says that it is of a client of aiolock."""

    owner: str
    holds: int
    left: float
    ours: bool


@final
class AsyncReadWriteLock:
    """
    A reentrant distributed lock that many may have to read, or one to write; made by `LockClient.read_write_lock`.

    Its two halves, `read` and `write`, are locks with all verbs of `AsyncRLock`. The owner is the running task, unless
    it was made for a named owner. Who writes may read as well, and goes on to read when it has released the write lock.
    Who reads cannot get the write lock before it has stopped to read. Readers and writers take turns, so that neither
    waits for ever for a stream of the others. Follows Redisson's ``RReadWriteLock``, with which it shares its layout in
    Redis.
    """

    __slots__ = ("__weakref__", "_read", "_write")

    def __init__(self, sessions: Sessions, keys: tuple[LockKeys, LockKeys], named: str | None) -> None:
        reads, writes = keys
        self._read = AsyncReadLock(sessions, reads, writes, READ, named)
        self._write = AsyncWriteLock(sessions, writes, reads, WRITE, named)

    @property
    def name(self) -> str:
        """The name that it was made with."""
        return self._read.name

    @property
    def read(self) -> "AsyncReadLock":
        """The lock that many may have at a time, while nobody else writes."""
        return self._read

    @property
    def write(self) -> "AsyncWriteLock":
        """The lock that one may have at a time, while nobody else reads."""
        return self._write

    def __repr__(self) -> str:
        return repr(self._read).replace(type(self._read).__name__, type(self).__name__, 1)


class _Half(BaseLock):
    """One half of a read-write lock; *other* are the keys of the other half."""

    __slots__ = ("_other", "_writes")

    def __init__(
        self, sessions: Sessions, keys: LockKeys, other: LockKeys, scripts: ScriptSet, named: str | None
    ) -> None:
        super().__init__(sessions, Want(keys, scripts), named)
        self._other = other
        self._writes = scripts is WRITE

    async def locked(self) -> bool:
        """
        Whether anyone holds this lock, by Redis; the other half does not count.

        Waits for the server's answer, up to `LockConfig.command_timeout`, and changes nothing; cancelling is harmless.
        `held`, `hold_count`, `remaining` and who holds it do the same.

        Raises:
            NotALockError: the key is something else.
            BackendError: Redis failed.
            ClientClosedError: the client is closed, or belongs to another loop or process.
        """
        return bool(await self._look())

    async def held(self) -> bool:
        """Whether the current owner holds this lock, by Redis; waits and raises as `locked`."""
        return await self.hold_count() > 0

    async def hold_count(self) -> int:
        """How many holds of this lock the current owner has, by Redis; waits and raises as `locked`."""
        owner, _ = self._sessions.open().owners.acting(self._named)
        return sum(hold.holds for hold in await self._look() if hold.owner == owner)

    async def remaining(self) -> float | None:
        """Seconds until the last lease of this lock ends, by Redis; ``None`` if nobody holds it. Waits as `locked`."""
        return max((hold.left for hold in await self._look()), default=None)

    async def force_release(self) -> bool:
        """
        Free this lock whoever holds it, and wake those who wait; whether anyone held it. The other half is left alone.

        For operators: a holder learns of it with its next renewal or release, and not before, unless it is of this
        client. Cancelling leaves it done or not done. Raises `NotALockError` and `BackendError`.
        """
        return await self._sessions.open().force_release(self._want)

    async def _look(self) -> list[_Seen]:
        _, *named = await self._sessions.open().inspector.ask(INSPECT_READ_WRITE, self._keys, 1, _MOST_NAMED)
        fields = (field.decode(errors="replace") for field in named[::4])
        rows = zip(fields, named[1::4], named[2::4], named[3::4], strict=True)
        return [
            _Seen(field.removesuffix(WRITER), holds, left / 1000, ours == 1)
            for field, holds, left, ours in rows
            if field.endswith(WRITER) == self._writes
        ]

    async def _holders(self) -> list[Holder]:
        described = self._sessions.open().inspector.described
        return [await described(hold.owner, hold.holds, hold.left, ours=hold.ours) for hold in await self._look()]

    async def _not_held(self) -> NotHeldError:
        owner, _ = self._sessions.open().owners.acting(self._named)
        try:
            return NotHeldError(self.name, owner, next(iter(await self._holders()), None))
        except (BackendError, NotALockError):
            return NotHeldError(self.name, owner, None, "it is not known who does")

    def _timeout(self, waited: float) -> LockTimeoutError:
        leases = self._sessions.here().leases
        readers = leases.held_by(self._other) if self._writes else None
        writer = leases.held_by(self._keys if self._writes else self._other)
        return LockTimeoutError(self.name, waited, writer or readers)


@final
class AsyncReadLock(_Half):
    """The lock of an `AsyncReadWriteLock` that many may have at a time: `AsyncReadWriteLock.read`."""

    __slots__ = ()

    async def holders(self) -> Sequence[Holder]:
        """Who reads, by Redis, at most the first thousand; waits and raises as `locked`."""
        return await self._holders()


@final
class AsyncWriteLock(_Half):
    """
    The lock of an `AsyncReadWriteLock` that one may have at a time: `AsyncReadWriteLock.write`.

    Whoever reads is refused it at once, with a `RuntimeError`: it would wait for itself.
    """

    __slots__ = ()

    async def holder(self) -> Holder | None:
        """Who writes, by Redis; ``None`` if nobody does. Waits and raises as `locked`."""
        return next(iter(await self._holders()), None)

    def _acquisition(self, lease: float | None) -> Acquisition:
        leases = self._sessions.open().leases
        owner, _ = self._sessions.here().owners.acting(self._named)
        if leases.get(self._other, owner) is not None and leases.get(self._keys, owner) is None:
            raise RuntimeError(
                f"lock {self.name!r}: who reads cannot get the write lock, because it would wait for itself; "
                "release the read lock before, or acquire the write lock first and then the read lock"
            )
        return super()._acquisition(lease)
