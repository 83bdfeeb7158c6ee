"""AsyncReadWriteLock: many readers at a time, or one writer."""

from collections.abc import Sequence
from dataclasses import replace
from typing import final

from aiolock._answers import answering
from aiolock._core.acquire import Acquisition
from aiolock._core.session import Sessions
from aiolock._helpers.together import Begun, all_of
from aiolock._keys import WRITER, LockKeys
from aiolock._primitives.base import Lock, added_up
from aiolock._scripts import INSPECT_READ_WRITE, READ, WRITE, Want
from aiolock._scripts.replies import SeenHold
from aiolock._types import Holder, LockStatistics, quoted

# Holders in one answer; the server looks at each.
_MOST_NAMED = 1000


@final
@answering
class AsyncReadWriteLock:
    """
    A reentrant distributed lock for many readers or one writer; made by `LockClient.read_write_lock`.

    Its two halves, `read` and `write`, have the verbs of `AsyncRLock`, without *at_least* and without a *token*; `read`
    has `holders`, and `write` has `holder`. The owner is the running task, unless the lock was made for a named owner.
    A writer may acquire the read lock, too, and keeps it after the release of the write lock. A reader has to release
    the read lock before it can get the write lock. Readers and writers take turns, so that a stream of readers never
    blocks a writer for ever, nor writers a reader. The lock follows Redisson's ``RReadWriteLock``, and has the same
    layout in Redis.
    """

    __slots__ = ("__weakref__", "_read", "_write")

    def __init__(self, sessions: Sessions, *, keys: tuple[LockKeys, LockKeys], named: str | None) -> None:
        reads, writes = keys
        self._read = AsyncReadLock(sessions, want=Want(reads, READ), named=named)
        self._write = AsyncWriteLock(sessions, want=Want(writes, WRITE), named=named)

    @property
    def name(self) -> str:
        """The name that was given to `LockClient.read_write_lock`."""
        return self._read.name

    @property
    def read(self) -> "AsyncReadLock":
        """The lock that many owners may hold at a time, while no other owner writes."""
        return self._read

    @property
    def write(self) -> "AsyncWriteLock":
        """The lock that one owner may hold at a time, while no other owner reads."""
        return self._write

    async def locked(self) -> bool:
        """Whether there is a reader or a writer, according to Redis; waits and raises like `AsyncReadLock.locked`."""
        return bool(await _look(self._read))

    async def holders(self) -> Sequence[Holder]:
        """
        The readers and the writer, according to Redis, the first thousand at most.

        An owner that reads and writes is listed twice. `AsyncReadLock.holders` and `AsyncWriteLock.holder` return only
        the readers, or only the writer. Waits and raises like `AsyncReadLock.locked`.
        """
        return [_without_mode(hold).holder for hold in await _look(self._read)]

    async def force_release(self) -> bool:
        """Free both halves from all holders; returns whether there were any. See `AsyncReadLock.force_release`."""
        return any(await all_of([Begun(half.force_release()) for half in (self._read, self._write)]))

    def statistics(self) -> LockStatistics:
        """The numbers of this client for both halves at the moment, added up; no I/O."""
        both = added_up([self._read, self._write])
        # The halves share one channel.
        return replace(both, subscriptions=min(1, both.subscriptions))

    def __repr__(self) -> str:
        return repr(self._read).replace(type(self._read).__name__, type(self).__name__, 1)


class _Half(Lock):
    """One half of a read-write lock."""

    __slots__ = ()

    async def _seen(self, owner: str = "") -> Sequence[SeenHold]:
        writes = self._want.scripts is WRITE
        return [_without_mode(hold) for hold in await _look(self, owner) if hold.owner.endswith(WRITER) == writes]


@final
@answering
class AsyncReadLock(_Half):
    """
    The half of an `AsyncReadWriteLock` that many owners may hold at a time: `AsyncReadWriteLock.read`.

    Its methods about holders are about readers only, and `force_release` leaves the writer alone.

    If the owner is a named one, and waits to write in another task, an acquire raises `RuntimeError` at once.
    """

    __slots__ = ()

    async def holders(self) -> Sequence[Holder]:
        """
        The readers, according to Redis: a thousand at most, those whose leases end last.

        Waits and raises like `locked`.
        """
        return await self._holders()

    def _acquisition(self, lease: float | None) -> Acquisition:
        if self._named is not None:
            session = self._sessions.open()
            writing = session.entries.get(self._keys.other)
            owner = session.owners.named(self._named)
            if writing is not None and writing.queue is not None and writing.queue.has(owner):
                raise RuntimeError(
                    f"lock {quoted(self.name)}: owner {quoted(self._named)} waits to write in another task, and would "
                    "wait for itself if it began to read"
                )
        return super()._acquisition(lease)


@final
@answering
class AsyncWriteLock(_Half):
    """
    The half of an `AsyncReadWriteLock` that one owner may hold at a time: `AsyncReadWriteLock.write`.

    Its methods about holders are about the writer only, and `force_release` leaves readers alone.

    If the owner holds the read lock, an acquire raises `RuntimeError` at once: the owner would wait for itself.
    """

    __slots__ = ()

    async def holder(self) -> Holder | None:
        """The writer, according to Redis; ``None`` if there is none. Waits and raises like `locked`."""
        return await self._holder()

    def _acquisition(self, lease: float | None) -> Acquisition:
        acquisition = super()._acquisition(lease)
        acquisition.refuse_upgrade()
        return acquisition


async def _look(half: _Half, owner: str = "") -> Sequence[SeenHold]:
    """
    The holds of both halves of the lock that *half* belongs to: those of *owner*, or the thousand that end last.

    The owner of a writing hold ends with `WRITER`.
    """
    return await half._sessions.open().commands.ask(INSPECT_READ_WRITE, half._keys, 1, _MOST_NAMED, owner)


def _without_mode(hold: SeenHold) -> SeenHold:
    return replace(hold, owner=hold.owner.removesuffix(WRITER))
