"""The factories of a client, which make the handles of all primitives; only `slot` does I/O."""

from collections.abc import Sequence
from typing import Any, Literal, Unpack, overload

from aiolock._config import LockConfig
from aiolock._core.lease import Lease
from aiolock._core.session import Sessions
from aiolock._core.ticket import MULTI, Part, Ticket, TicketKind
from aiolock._keys import WRITER, LockKeys, is_braced, stays_together
from aiolock._primitives.adoption import Adoption, DetachedLocks
from aiolock._primitives.counting_semaphore import AsyncCountingSemaphore
from aiolock._primitives.fair_lock import AsyncFairLock
from aiolock._primitives.latch import AsyncCountDownLatch
from aiolock._primitives.leader import AsyncLeader
from aiolock._primitives.multi.lease import MultiLease
from aiolock._primitives.multi.lock import AsyncMultiLock
from aiolock._primitives.multi.member import Member
from aiolock._primitives.once import AsyncOnce, Failures, Keep, Slot, slot_of
from aiolock._primitives.read_write import AsyncReadWriteLock
from aiolock._primitives.rlock import AsyncRLock
from aiolock._primitives.semaphore import AsyncSemaphore
from aiolock._scripts import FAIR, LOCK, PERMIT, Want
from aiolock._types import Duration, LockKind, OnUnavailable, number_of_permits, quoted, text
from aiolock._words import NoMore, shown_as, unexpected


@shown_as("LockClient")
class Factories:
    """The part of a `LockClient` that makes handles."""

    _config: LockConfig
    _sessions: Sessions
    _in_cluster: bool
    # The servers of a quorum; empty for one server or a cluster.
    _quorum: Sequence[object]

    def lock(self, name: str, *, owner: str | None = None, **unknown: Unpack[NoMore]) -> AsyncRLock:
        """
        The reentrant lock *name*, owned by the task that acquires it, or by the named *owner* of this client.

        A named owner is for work that acquires in one task and releases in another: every task that uses the name
        *owner* in this client acts as the same owner. `AsyncRLock.release` prefers a hold that the calling task
        acquired. No I/O. The Redis key is `LockConfig.prefix` and *name*, nothing else.

        Raises:
            TypeError, ValueError: *name* or *owner* is not a non-empty `str`, or has more than 1024 bytes, with the
                prefix. Or aiolock or Redisson may use this key for another name (``aiolock_token:...``,
                ``{...}:timeout``). Or, in a cluster, *name* has braces that would put its keys into several slots.
        """
        if unknown:
            raise unexpected("LockClient.lock", unknown)
        keys = LockKeys.of(self._checked(name), self._config.prefix)
        return AsyncRLock(self._sessions, want=Want(keys, LOCK), named=_named(owner))

    def fair_lock(self, name: str, *, owner: str | None = None, **unknown: Unpack[NoMore]) -> AsyncFairLock:
        """
        The reentrant lock *name*, granted in the order of the requests, over all clients and tasks.

        It costs more than `lock`. A fair and a plain lock of one name exclude each other; a task that waits for the
        plain lock gets a turn after a second, if others wait for the fair one. No I/O.

        Raises:
            TypeError, ValueError: `lock` would refuse *name* or *owner*, too; or this is a client of several servers
                (`redlock`).
        """
        if unknown:
            raise unexpected("LockClient.fair_lock", unknown)
        self._refuse_in_quorum("a fair lock")
        keys = LockKeys.of_fair(self._checked(name), self._config.prefix)
        return AsyncFairLock(self._sessions, want=Want(keys, FAIR), named=_named(owner))

    def read_write_lock(self, name: str, *, owner: str | None = None, **unknown: Unpack[NoMore]) -> AsyncReadWriteLock:
        """
        The lock *name* for many readers or one writer; its owner is the task that acquires it, or the named *owner*.

        No I/O. The Redis key is `LockConfig.prefix` and *name*; no other kind of lock may have the same key.

        Raises:
            TypeError, ValueError: `lock` would refuse *name* or *owner*, too; or *owner* ends with ``:write``, which
                marks writers in Redis; or this is a client of several servers (`redlock`).
        """
        if unknown:
            raise unexpected("LockClient.read_write_lock", unknown)
        self._refuse_in_quorum("a read-write lock")
        keys = LockKeys.of_read_write(self._checked_apart(name), self._config.prefix)
        named = _named(owner)
        if named is not None and named.endswith(WRITER):
            raise ValueError(f"owner must not end with {WRITER!r}: {owner!r}")
        return AsyncReadWriteLock(self._sessions, keys=keys, named=named)

    def semaphore(
        self, name: str, permits: int | None = None, *, owner: str | None = None, **unknown: Unpack[NoMore]
    ) -> AsyncSemaphore:
        """
        The semaphore *name*, which shares a number of *permits* among the tasks of all clients.

        A permit is a lease: it is renewed while its holder lives, and available again after the death of its holder. It
        belongs to the task that acquires it, or to the named *owner*.

        *permits* becomes the number of permits at the first acquire, if Redis has no number yet. ``None`` leaves the
        number to other clients (`AsyncSemaphore.set_permits`, a Java service); until one of them sets it, no permit is
        granted, and an acquire waits. No I/O. The Redis key is `LockConfig.prefix` and *name*; a lock must not have the
        same key.

        Raises:
            TypeError, ValueError: `lock` would refuse *name* or *owner*, too; or *permits* is not a whole number, or
                below zero; or this is a client of several servers (`redlock`).
        """
        if unknown:
            raise unexpected("LockClient.semaphore", unknown)
        self._refuse_in_quorum("a semaphore")
        keys = LockKeys.of_permits(self._checked_apart(name), self._config.prefix)
        number = None if permits is None else number_of_permits(permits, least=0)
        return AsyncSemaphore(self._sessions, want=Want(keys, PERMIT, (1,), number), named=_named(owner))

    def counting_semaphore(
        self, name: str, permits: int | None = None, **unknown: Unpack[NoMore]
    ) -> AsyncCountingSemaphore:
        """
        The counting semaphore *name*, which loses the permits of a process that dies; `semaphore` does not lose them.

        Its permits have no owner and no lease: one process may take a permit, and another may put it back.

        *permits* becomes the number of permits at the first acquire, if Redis has no number yet. ``None`` leaves the
        number to other clients (`AsyncCountingSemaphore.try_set_permits`, a Java service); until one of them sets it,
        no permit is granted, and an acquire waits. No I/O. The Redis key is `LockConfig.prefix` and *name*; a lock must
        not have the same key.

        Raises:
            TypeError, ValueError: `lock` would refuse *name*, too; or *permits* is not a whole number, or below zero;
                or this is a client of several servers (`redlock`).
        """
        if unknown:
            raise unexpected("LockClient.counting_semaphore", unknown)
        self._refuse_in_quorum("a counting semaphore")
        keys = LockKeys.of_counting_semaphore(self._checked(name), self._config.prefix)
        number = None if permits is None else number_of_permits(permits, least=0)
        return AsyncCountingSemaphore(self._sessions, keys=keys, initial=number)

    def count_down_latch(self, name: str) -> AsyncCountDownLatch:
        """
        The count-down latch *name*. No I/O.

        The Redis key is `LockConfig.prefix` and *name*; a lock must not have the same key.

        Raises:
            TypeError, ValueError: `lock` would refuse *name*, too; or this is a client of several servers (`redlock`).
        """
        self._refuse_in_quorum("a count-down latch")
        keys = LockKeys.of_latch(self._checked(name), self._config.prefix)
        return AsyncCountDownLatch(self._sessions, keys=keys)

    def once(
        self,
        key: str,
        *,
        keep: Keep,
        wait: Duration | None = None,
        failures: Failures = "release",
        stale: Duration | None = None,
        on_unavailable: OnUnavailable = "refuse",
    ) -> AsyncOnce:
        """
        Work that runs once per *key* in the whole fleet; Redis keeps the result for *keep* seconds after the work ends.

        ``await locks.once("report:7", keep=3600).run(make_report)``, or ``async with locks.once(...) as turn: if turn:
        ...``. A caller that comes while another one runs the work waits for the result, *wait* seconds at most:
        ``None`` means no limit, and with 0 the caller does not wait. If the work fails, is cancelled or its process
        dies, another caller runs it; with *failures* "remember" nobody runs it again while *keep* lasts. No I/O. A lock
        may have the same name.

        *keep* may be a plain function, which gets the result and returns seconds: ``keep=lambda token:
        json.loads(token)["expires_in"] - 30``. It is called once, in the event loop of the client. If it returns 0 or
        less, the result is not remembered, and the next caller runs the work again; with *stale*, all other callers
        meanwhile get the result of the run before. If *keep* raises, the work has failed.

        For *stale* seconds after *keep*, while one caller runs the work again, all others get the old result at once:
        `Turn.stale`. If that caller fails or dies, the next one runs the work. Give all callers the same *stale*.

        With *on_unavailable* ``"run"``, the work runs without a lock if the acquire fails with `BackendError` or
        `ReplicationError`: see `Bypassed`. Then the work may run several times, and its result is not remembered; but
        it does not run while another task of this client runs it. If only the end of the work fails to reach Redis, the
        caller still gets the result.

        Raises:
            TypeError, ValueError: `lock` would refuse *key* as a name; or a duration, *failures* or *on_unavailable* is
                not valid; or *keep* is a coroutine function; or *failures* is "remember", but *keep* is a function or
                *stale* is given; or this is a client of several servers (`redlock`).
        """
        self._refuse_in_quorum("`once`")
        keys = LockKeys.of_once(self._checked(key), self._config.prefix)
        return AsyncOnce(
            self._sessions,
            keys=keys,
            keep=keep,
            wait=wait,
            failures=failures,
            stale=stale,
            on_unavailable=on_unavailable,
        )

    async def slot(self, name: str, *, every: Duration) -> Slot:
        """
        The current time slot of *every* seconds by the server's clock: it gives all processes the same name for `once`.

        Slots are counted from the epoch, so that slots of a day begin at midnight UTC. In a cluster, *name* chooses the
        server whose clock counts. Waits up to `LockConfig.command_timeout`; cancelling is harmless.

        Raises:
            TypeError, ValueError: `lock` would refuse *name*, too, or *every* is not a duration.
            BackendError: Redis failed.
            ClientClosedError: the client is closed, or belongs to another loop or process.
        """
        return await slot_of(self._sessions, LockKeys.of_once(self._checked(name), self._config.prefix), every)

    def leader(self, name: str, *, pause: Duration = 1) -> AsyncLeader:
        """
        The leader election *name*: one candidate at a time leads, among all processes.

        The leader holds the lock *name*, which is the one that `lock` makes. After a term or a failure of Redis, this
        process waits *pause* seconds before it runs for election again, so that others may go first. No I/O.

        Raises:
            TypeError, ValueError: `lock` would refuse *name*, too, or *pause* is not a duration.
        """
        return AsyncLeader(lock=self.lock(name), pause=pause)

    def multi(self, *locks: str | Member, owner: str | None = None) -> AsyncMultiLock:
        """
        Several locks that are acquired as one, all of them or none.

        *locks* are names or lock objects, which may be of different clients and kinds: for example one half of a
        read-write lock, or a semaphore (`AsyncSemaphore.taking` sets the number of permits). *owner* is the owner of
        the locks that are given by name, as in `lock`; a lock object keeps its own owner. No I/O.

        Raises:
            TypeError, ValueError: there is no lock; or one has no lease, such as a counting semaphore; or `lock` would
                refuse a name; or two different locks have the same name, or the same key in Redis.
        """
        members = (self.lock(each, owner=owner) if isinstance(each, str) else each for each in locks)
        return AsyncMultiLock(members=members)

    @overload
    def adopt(
        self,
        ticket: str,
        *,
        name: Sequence[str] | None = None,
        kind: Literal["multi_lock"],
        lease: Duration | None = None,
        owner: str | None = None,
    ) -> Adoption[MultiLease]: ...

    @overload
    def adopt(
        self,
        ticket: str,
        *,
        name: str | None = None,
        kind: LockKind | None = None,
        lease: Duration | None = None,
        owner: str | None = None,
    ) -> Adoption[Lease]: ...

    def adopt(
        self,
        ticket: str,
        *,
        name: str | Sequence[str] | None = None,
        kind: TicketKind | None = None,
        lease: Duration | None = None,
        owner: str | None = None,
    ) -> Adoption[Any]:
        """
        Adopt a lock that another process has detached: ``lease = await locks.adopt(ticket)``, or ``async with
        locks.adopt(ticket) as lease:``.

        Adopting is a grant: to a new owner, which is the running task or the named *owner*, with a greater fencing
        token. It uses the ticket up. A ticket of a multi lock needs *kind* ``"multi_lock"``, and gives a `MultiLease`.
        If you give *name* or *kind* (the name of a factory, ``"read_lock"`` or ``"write_lock"``), a ticket for another
        one is refused. *lease* is in seconds, as in `AsyncRLock.acquire`.

        The call does no I/O. Awaiting the result waits for the server's answer, up to `LockConfig.command_timeout`, and
        for `LockConfig.replicas`. After a cancellation, or without an answer, the lock is released if it was adopted,
        and the ticket may be used up.

        Raises:
            TypeError, ValueError: *ticket* is malformed, or of another prefix, name or kind; or this is a client of
                several servers (`redlock`).
            LeaseLostError: the ticket was used before, or its time is over, or the lock was released by force.
            RuntimeError: the owner holds the lock already; or the result is awaited in another task than the caller's.
            BackendError, ReplicationError, ClientClosedError: as in `AsyncRLock.acquire`.
        """
        self._refuse_in_quorum("an adopted lock")
        opened = Ticket.read(ticket)
        wanted = "lock" if kind is None and opened.kind == MULTI else kind
        opened.check(self._config.prefix, name, wanted)
        return Adoption(self._detached(opened, owner), lease)

    def _detached(self, ticket: Ticket, owner: str | None) -> DetachedLocks:
        """The detached locks that *ticket* is for."""
        return DetachedLocks(ticket, [self._detached_part(part, owner) for part in ticket.parts])

    def _detached_part(self, part: Part, owner: str | None) -> Member:
        """The handle of the lock that *part* of a ticket is for."""
        match part.kind:
            case "fair_lock":
                return self.fair_lock(part.name, owner=owner)
            case "read_lock":
                return self.read_write_lock(part.name, owner=owner).read
            case "write_lock":
                return self.read_write_lock(part.name, owner=owner).write
            case "semaphore":
                return self.semaphore(part.name, owner=owner).taking(*part.amount)
            case _:
                return self.lock(part.name, owner=owner)

    def _checked(self, name: str) -> str:
        name = text(name, "name")
        if self._in_cluster and not stays_together(self._config.prefix + name):
            raise ValueError(
                f"name {quoted(name)} would put its keys into several slots of the cluster: write it without braces, "
                "or with one part in braces, which then chooses the slot: '{shop}:order:7'"
            )
        return name

    def _checked_apart(self, name: str) -> str:
        """*name*, checked as in `_checked`, for a primitive that has several keys in Redisson."""
        name = self._checked(name)
        if is_braced(key := self._config.prefix + name):
            raise ValueError(
                f"the key {quoted(key)} would share further keys with {quoted(key[1:-1])} in Redisson's layout: write "
                "the name without the braces around it; in a cluster, it has the same slot"
            )
        return name

    def _refuse_in_quorum(self, what: str) -> None:
        if self._quorum:
            raise TypeError(
                f"several independent servers cannot keep {what}, because each may have missed different commands: use "
                "a LockClient of one server"
            )


def _named(owner: str | None) -> str | None:
    return None if owner is None else text(owner, "owner")
