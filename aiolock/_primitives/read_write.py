"""AsyncReadWriteLock: many may read at a time, or one may write."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple, final

from aiolock._core.acquire import Acquisition
from aiolock._core.session import Sessions
from aiolock._core.together import Begun, all_of
from aiolock._errors import BackendError, LockTimeoutError, NotALockError, NotHeldError
from aiolock._keys import WRITER, LockKeys
from aiolock._primitives.base import BaseLock, added_up
from aiolock._scripts import INSPECT_READ_WRITE, READ, WRITE, ScriptSet, Want
from aiolock._types import Holder, LockStatistics

_MOST_NAMED = 1000  # Holds, of which the server looks at each.


class _Seen(NamedTuple):
    """A hold, as the server saw it; *left* is in seconds, *ours* says that it is of a client of aiolock."""

    owner: str
    writes: bool
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

    async def locked(self) -> bool:
        """Whether anyone reads or writes, by Redis; waits and raises as `AsyncReadLock.locked`."""
        return bool(await _look(self._read))

    async def holders(self) -> Sequence[Holder]:
        """
        Who reads or writes, by Redis, at most the first thousand; waits and raises as `AsyncReadLock.locked`.

        Who does both is there twice. Which of the two somebody does, the halves say: `AsyncReadLock.holders`,
        `AsyncWriteLock.holder`.
        """
        return await _described(self._read, await _look(self._read))

    async def force_release(self) -> bool:
        """Free both halves whoever holds them; whether anyone held either. As `AsyncReadLock.force_release`."""
        return any(await all_of([Begun(half.force_release()) for half in (self._read, self._write)]))

    def statistics(self) -> LockStatistics:
        """What this client does with both halves right now, added up; no I/O."""
        both = added_up([self._read, self._write])
        return replace(both, subscriptions=min(1, both.subscriptions))  # They have one channel.

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
        return bool(await self._seen())

    async def held(self) -> bool:
        """Whether the current owner holds this lock, by Redis; waits and raises as `locked`."""
        return await self.hold_count() > 0

    async def hold_count(self) -> int:
        """How many holds of this lock the current owner has, by Redis; waits and raises as `locked`."""
        owner, _ = self._sessions.open().owners.acting(self._named)
        return sum(hold.holds for hold in await self._seen() if hold.owner == owner)

    async def remaining(self) -> float | None:
        """Seconds until the last lease of this lock ends, by Redis; ``None`` if nobody holds it. Waits as `locked`."""
        return max((hold.left for hold in await self._seen()), default=None)

    async def force_release(self) -> bool:
        """
        Free this lock whoever holds it, and wake those who wait; whether anyone held it. The other half is left alone.

        For operators: a holder learns of it with its next renewal or release, and not before, unless it is of this
        client. Cancelling leaves it done or not done. Raises `NotALockError` and `BackendError`.
        """
        return await self._sessions.open().force_release(self._want)

    async def _seen(self) -> list[_Seen]:
        return [hold for hold in await _look(self) if hold.writes == self._writes]

    async def _holders(self) -> Sequence[Holder]:
        return await _described(self, await self._seen())

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
    """
    The lock of an `AsyncReadWriteLock` that many may have at a time: `AsyncReadWriteLock.read`.

    Whoever waits to write is refused it at once, with a `RuntimeError`, as a named owner may be in two tasks.
    """

    __slots__ = ()

    async def holders(self) -> Sequence[Holder]:
        """Who reads, by Redis, at most the first thousand; waits and raises as `locked`."""
        return await self._holders()

    def _acquisition(self, lease: float | None) -> Acquisition:
        if self._named is not None:
            session = self._sessions.open()
            writing = session.entries.get(self._other.entry)
            owner = session.owners.named(self._named)
            if writing is not None and writing.queue is not None and writing.queue.has(owner):
                raise RuntimeError(
                    f"lock {self.name!r}: owner {self._named!r} waits to write in another task, and would wait for "
                    "itself if it began to read"
                )
        return super()._acquisition(lease)


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
        acquisition = super()._acquisition(lease)
        acquisition.refuse_upgrade()
        return acquisition


async def _look(half: _Half) -> list[_Seen]:
    """All holds of the lock that *half* is one half of."""
    _, *named = await half._sessions.open().inspector.ask(INSPECT_READ_WRITE, half._keys, 1, _MOST_NAMED)
    fields = (field.decode(errors="replace") for field in named[::4])
    rows = zip(fields, named[1::4], named[2::4], named[3::4], strict=True)
    return [
        _Seen(field.removesuffix(WRITER), field.endswith(WRITER), holds, left / 1000, ours == 1)
        for field, holds, left, ours in rows
    ]


async def _described(half: _Half, holds: Iterable[_Seen]) -> Sequence[Holder]:
    described = half._sessions.open().inspector.described
    return [await described(hold.owner, hold.holds, hold.left, ours=hold.ours) for hold in holds]
