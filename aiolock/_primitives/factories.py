"""What a client makes: a handle for each primitive, by its name; no I/O but for the clock of a slot."""

from collections.abc import Sequence

from aiolock._config import LockConfig
from aiolock._core.session import Sessions
from aiolock._keys import WRITER, LockKeys, stays_together
from aiolock._primitives.fair_lock import AsyncFairLock
from aiolock._primitives.latch import AsyncCountDownLatch
from aiolock._primitives.leader import AsyncLeader
from aiolock._primitives.member import Member
from aiolock._primitives.multi import AsyncMultiLock
from aiolock._primitives.once import AsyncOnce, Failures, Slot, slot_of
from aiolock._primitives.permits import AsyncPermitExpirableSemaphore
from aiolock._primitives.read_write import AsyncReadWriteLock
from aiolock._primitives.rlock import AsyncRLock
from aiolock._primitives.semaphore import AsyncSemaphore
from aiolock._scripts import FAIR, LOCK, Want
from aiolock._types import Duration, number_of_permits, text


class Factories:
    """The part of a `LockClient` that makes handles."""

    _config: LockConfig
    _sessions: Sessions
    _in_cluster: bool
    _quorum: Sequence[object]  # Several independent servers, or none.

    def lock(self, name: str, *, owner: str | None = None) -> AsyncRLock:
        """
        The reentrant lock *name*, owned by the task that acquires it, or by the named *owner* of this client.

        A named owner is for work that acquires in one task and releases in another: whoever uses its name in this
        client acts as it. When several tasks do at once, `AsyncRLock.release` prefers what the calling task acquired.
        No I/O. The Redis key is `LockConfig.prefix` and *name*, nothing else.

        Raises:
            TypeError, ValueError: *name* or *owner* is not a non-empty `str`, or the key would be one that aiolock
                needs for itself (``aiolock_token:...``, ``aiolock_client:...``, ``aiolock_once:...``,
                ``aiolock_mark:...``). Or, in a cluster, *name* has braces that would put its keys into several slots.
        """
        keys = LockKeys.of(self._checked(name), self._config.prefix)
        return AsyncRLock(self._sessions, Want(keys, LOCK), _named(owner))

    def fair_lock(self, name: str, *, owner: str | None = None) -> AsyncFairLock:
        """
        The reentrant lock *name*, granted in the order in which it was asked for, by whatever client and task.

        It costs more than `lock`, of which it is the same lock otherwise: two of one name exclude each other, but those
        who wait for the plain one are not told while somebody waits for the fair one. No I/O.

        Raises:
            TypeError, ValueError: *name* or *owner* is refused as `lock` does; or this is a client of several servers
                (`redlock`).
        """
        self._refuse_in_quorum("a fair lock")
        keys = LockKeys.of_fair(self._checked(name), self._config.prefix)
        return AsyncFairLock(self._sessions, Want(keys, FAIR), _named(owner))

    def read_write_lock(self, name: str, *, owner: str | None = None) -> AsyncReadWriteLock:
        """
        The lock *name* that many may have to read, or one to write, for the task that does, or for the named *owner*.

        No I/O. The Redis key is `LockConfig.prefix` and *name*; another lock must not have the same.

        Raises:
            TypeError, ValueError: *name* or *owner* is refused as `lock` does; or *owner* ends with ``:write``, which
                is how a writer is told from a reader in Redis.
        """
        keys = LockKeys.of_read_write(self._checked(name), self._config.prefix)
        named = _named(owner)
        if named is not None and named.endswith(WRITER):
            raise ValueError(f"owner must not end with {WRITER!r}: {owner!r}")
        return AsyncReadWriteLock(self._sessions, keys, named)

    def permit_expirable_semaphore(
        self, name: str, permits: int | None = None, *, owner: str | None = None
    ) -> AsyncPermitExpirableSemaphore:
        """
        The semaphore *name* whose permits expire, for the task that acquires them, or for the named *owner*.

        The first acquire lets there be so many *permits*, if nobody has said so before; ``None`` leaves that to others
        (`AsyncPermitExpirableSemaphore.set_permits`, a Java service), and until then there are none. No I/O. The Redis
        key is `LockConfig.prefix` and *name*; a lock must not have the same.

        Raises:
            TypeError, ValueError: *name* or *owner* is refused as `lock` does; or *permits* is no whole number, or is
                below zero.
        """
        keys = LockKeys.of_permits(self._checked(name), self._config.prefix)
        number = None if permits is None else number_of_permits(permits, least=0)
        return AsyncPermitExpirableSemaphore(self._sessions, keys, number, _named(owner))

    def semaphore(self, name: str, permits: int | None = None) -> AsyncSemaphore:
        """
        The semaphore *name*, which counts permits and knows nobody who has them.

        The first acquire lets there be so many *permits*, if nobody has said so before; ``None`` leaves that to others
        (`AsyncSemaphore.try_set_permits`, a Java service), and until then there are none. No I/O. The Redis key is
        `LockConfig.prefix` and *name*; a lock must not have the same.

        Raises:
            TypeError, ValueError: *name* is refused as `lock` does; or *permits* is no whole number, or is below zero;
                or this is a client of several servers (`redlock`).
        """
        self._refuse_in_quorum("a semaphore that only counts")
        keys = LockKeys.of_semaphore(self._checked(name), self._config.prefix)
        return AsyncSemaphore(self._sessions, keys, None if permits is None else number_of_permits(permits, least=0))

    def count_down_latch(self, name: str) -> AsyncCountDownLatch:
        """
        The count-down latch *name*. No I/O. The Redis key is `LockConfig.prefix` and *name*; a lock must not have it.

        Raises:
            TypeError, ValueError: *name* is refused as `lock` does; or this is a client of several servers (`redlock`).
        """
        self._refuse_in_quorum("a count-down latch")
        return AsyncCountDownLatch(self._sessions, LockKeys.of_latch(self._checked(name), self._config.prefix))

    def once(
        self, key: str, *, keep: Duration, wait: Duration | None = None, failures: Failures = "release"
    ) -> AsyncOnce:
        """
        What is done once per *key* in the whole fleet, while *keep* lasts: seconds from when it has been done.

        ``await locks.once("report:7", keep=3600).run(make_report)``, or ``async with locks.once(...) as turn: if turn:
        ...``. Who comes while another does it waits for that, *wait* seconds at most: ``None`` for as long as it takes,
        0 skips it. When who does it fails, is cancelled or dies, the next one does it; if *failures* are to
        "remember", nobody does while *keep* lasts. No I/O. A lock may have the same name.

        Raises:
            TypeError, ValueError: *key* is refused as `lock` does its name; or a duration or *failures* is none; or
                this is a client of several servers (`redlock`).
        """
        self._refuse_in_quorum("what is done once")
        keys = LockKeys.of_once(self._checked(key), self._config.prefix)
        return AsyncOnce(self._sessions, keys, keep, wait, failures)

    async def slot(self, name: str, *, every: Duration) -> Slot:
        """
        Which slot of so many seconds it is, by the server's clock: a name for `once` that all processes agree about.

        Slots are counted from the epoch, so that those of a day begin at midnight UTC. In a cluster, *name* says whose
        clock it is. Waits up to `LockConfig.command_timeout`; cancelling is harmless.

        Raises:
            TypeError, ValueError: *name* is refused as `lock` does, or *every* is no duration.
            BackendError: Redis failed.
            ClientClosedError: the client is closed, or belongs to another loop or process.
        """
        return await slot_of(self._sessions, LockKeys.of_once(self._checked(name), self._config.prefix), every)

    def leader(self, name: str, *, pause: Duration = 1) -> AsyncLeader:
        """
        The leader *name*: of all who stand for it, in all processes, one at a time leads.

        Who leads has the lock *name*, which `lock` gives, too. After a term, and when Redis has failed, *pause* seconds
        pass before this process stands again, so that others may go first. No I/O.

        Raises:
            TypeError, ValueError: *name* is refused as `lock` does, or *pause* is no duration.
        """
        return AsyncLeader(self.lock(name), pause)

    def multi(self, *locks: str | Member, owner: str | None = None) -> AsyncMultiLock:
        """
        Several locks as one, all of them or none: names, or locks, which may be of other clients and kinds.

        Of a read-write lock one half, of a semaphore whose permits expire as many as its handle takes
        (`AsyncPermitExpirableSemaphore.taking`). *owner* is whose the locks are that are given by name, as in `lock`; a
        lock keeps its own. No I/O.

        Raises:
            TypeError, ValueError: there is none; one has no lease, as a semaphore that only counts; a name is refused
                as `lock` does; two have one name, or one key in Redis, and are not the same lock.
        """
        return AsyncMultiLock(self.lock(each, owner=owner) if isinstance(each, str) else each for each in locks)

    def _checked(self, name: str) -> str:
        name = text(name, "name")
        if self._in_cluster and not stays_together(self._config.prefix + name):
            raise ValueError(
                f"name {name!r} would put its keys into several slots of the cluster: write it without braces, or with "
                "one part in braces, which then says the slot: '{shop}:order:7'"
            )
        return name

    def _refuse_in_quorum(self, what: str) -> None:
        if self._quorum:
            raise TypeError(
                f"{what} cannot be kept by several independent servers, each of which may miss something else: use a "
                "LockClient of one server"
            )


def _named(owner: str | None) -> str | None:
    return None if owner is None else text(owner, "owner")
