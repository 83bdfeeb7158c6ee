"""AsyncReadWriteLock: many may read at a time, or one may write."""

from collections.abc import Sequence
from dataclasses import replace
from typing import final

from aiolock._core.acquire import Acquisition
from aiolock._core.inspect import Seen
from aiolock._core.session import Sessions
from aiolock._core.together import Begun, all_of
from aiolock._errors import LockTimeoutError
from aiolock._keys import WRITER, LockKeys
from aiolock._primitives.base import added_up
from aiolock._primitives.reentrant import Reentrant
from aiolock._scripts import INSPECT_READ_WRITE, READ, WRITE, Want
from aiolock._types import Holder, LockStatistics

_MOST_NAMED = 1000  # Holds, of which the server looks at each.


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
        self._read = AsyncReadLock(sessions, Want(reads, READ), named)
        self._write = AsyncWriteLock(sessions, Want(writes, WRITE), named)

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
        return await self._read._sessions.open().inspector.described(map(_without_mode, await _look(self._read)))

    async def force_release(self) -> bool:
        """Free both halves whoever holds them; whether anyone held either. As `AsyncReadLock.force_release`."""
        return any(await all_of([Begun(half.force_release()) for half in (self._read, self._write)]))

    def statistics(self) -> LockStatistics:
        """What this client does with both halves right now, added up; no I/O."""
        both = added_up([self._read, self._write])
        return replace(both, subscriptions=min(1, both.subscriptions))  # They have one channel.

    def __repr__(self) -> str:
        return repr(self._read).replace(type(self._read).__name__, type(self).__name__, 1)


class _Half(Reentrant):
    """One half of a read-write lock."""

    __slots__ = ()

    async def _seen(self) -> Sequence[Seen]:
        writes = self._want.scripts is WRITE
        return [_without_mode(hold) for hold in await _look(self) if hold.owner.endswith(WRITER) == writes]

    def _timeout(self, waited: float) -> LockTimeoutError:
        leases = self._sessions.here().leases
        mine = leases.held_by(self._keys.entry) if self._want.scripts is WRITE else None  # Readers keep out no reader.
        return LockTimeoutError(self.name, waited, mine or leases.held_by(self._keys.other))


@final
class AsyncReadLock(_Half):
    """
    The lock of an `AsyncReadWriteLock` that many may have at a time: `AsyncReadWriteLock.read`.

    What it tells of who holds it is about those who read, and `force_release` leaves those who write alone.

    Whoever waits to write is refused it at once, with a `RuntimeError`, as a named owner may be in two tasks.
    """

    __slots__ = ()

    async def holders(self) -> Sequence[Holder]:
        """Who reads, by Redis, at most the first thousand; waits and raises as `locked`."""
        return await self._holders()

    def _acquisition(self, lease: float | None) -> Acquisition:
        if self._named is not None:
            session = self._sessions.open()
            writing = session.entries.get(self._keys.other)
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

    What it tells of who holds it is about who writes, and `force_release` leaves those who read alone.

    Whoever reads is refused it at once, with a `RuntimeError`: it would wait for itself.
    """

    __slots__ = ()

    async def holder(self) -> Holder | None:
        """Who writes, by Redis; ``None`` if nobody does. Waits and raises as `locked`."""
        return await self._holder()

    def _acquisition(self, lease: float | None) -> Acquisition:
        acquisition = super()._acquisition(lease)
        acquisition.refuse_upgrade()
        return acquisition


async def _look(half: _Half) -> Sequence[Seen]:
    """All holds of the lock that *half* is one half of; the owner of one who writes has `WRITER` behind it."""
    return await half._sessions.open().inspector.look(INSPECT_READ_WRITE, half._keys, _MOST_NAMED)


def _without_mode(hold: Seen) -> Seen:
    return hold._replace(owner=hold.owner.removesuffix(WRITER))
