"""The only place where tests reach into private parts: a change of those parts is followed here."""

import asyncio
from collections.abc import Sequence
from time import monotonic
from typing import Any

from aiolock import AsyncCountingSemaphore, Lease, LockClient
from aiolock._backend import Argument, Backend, Call, Notifier
from aiolock._core.covered import CoveredHold
from aiolock._core.hold import Hold
from aiolock._core.place import Place
from aiolock._core.queue import Queue
from aiolock._core.session import Session
from aiolock._keys import LockKeys
from aiolock._otel.marks import Marks
from aiolock._primitives.base import Single
from aiolock._primitives.multi.lease import MultiLease
from aiolock._primitives.named import Named
from aiolock._redis.backend import OneServer
from aiolock._redis.cluster.topology import Cluster
from aiolock._redis.quorum.backend import QuorumBackend
from aiolock._redis.quorum.member import Member
from aiolock._redis.sentinel.watch import PrimaryWatch
from aiolock._redis.topology import Topology
from aiolock._scripts import Script


def submit(
    backend: Backend,
    script: Script,
    keys: tuple[str, ...],
    args: tuple[Argument, ...] = (),
    patience: float = 5,
    **how: Any,
) -> Call:
    call = Call(script, keys, args, monotonic() + patience, **how)
    backend.submit(call)
    return call


def session_of(locks: LockClient) -> Session:
    return locks._sessions.here()


def backend_of(locks: LockClient) -> Topology:
    backend = session_of(locks).commands.backend
    assert isinstance(backend, Topology)
    return backend


def connections_of_thread(locks: LockClient) -> int:
    """The open connections of the thread that stands in for a blocked event loop."""
    stand_in = session_of(locks).stand_in
    assert stand_in is not None
    return stand_in.connections


def members_of(locks: LockClient) -> Sequence[Member]:
    """The servers of a quorum, each of which has to answer, even after the majority has answered."""
    backend = session_of(locks).commands.backend
    assert isinstance(backend, QuorumBackend)
    return backend._members


def timers_of_marks(locks: LockClient) -> list[asyncio.TimerHandle]:
    """The timers that are still to look at a mark."""
    session = locks._sessions.session
    marks = None if session is None else session.report._observer
    return [] if not isinstance(marks, Marks) else [each for each in marks._timers.values() if not each.cancelled()]


def cluster_of(locks: LockClient) -> Cluster:
    topology = backend_of(locks)
    assert isinstance(topology, Cluster)
    return topology


async def slots_are_settled(locks: LockClient) -> bool:
    """Whether no server is being asked for the slots of the cluster."""
    return cluster_of(locks)._asking is None


def watch_of(locks: LockClient) -> PrimaryWatch:
    topology = backend_of(locks)
    assert isinstance(topology, OneServer)
    assert topology._watch is not None
    return topology._watch


def notifier_of(locks: LockClient) -> Notifier:
    return session_of(locks).entries.notifier


def hears(locks: LockClient, lock: Single) -> bool:
    """Whether messages of the lock arrive."""
    return notifier_of(locks).confirmed(lock._keys.channel)


def queue_of(lock: Single) -> Queue | None:
    session = lock._sessions.session
    entry = None if session is None else session.entries.get(lock._keys.entry)
    return None if entry is None else entry.queue


def expected_echoes(lock: Single) -> int:
    """The number of this client's releases whose messages the queue of the lock expects."""
    queue = queue_of(lock)
    return 0 if queue is None else len(queue._echoes)


def places_of(lock: Single) -> list[Place]:
    """The places of the lock's waiters in this client, in order."""
    queue = queue_of(lock)
    return [] if queue is None else list(queue._places)


def keys_of(lock: Named) -> LockKeys:
    return lock._keys


def block_of(semaphore: AsyncCountingSemaphore) -> Single:
    """The lock that a block of the semaphore waits for."""
    return semaphore._block


def redis_of(locks: LockClient) -> Any:
    """The client of redis-py: that of the user, or one that aiolock made from an address."""
    return locks._redis


def listeners_of(call: Call) -> int:
    """The number of listeners to the end of *call*, beside the task that waits for it."""
    return len(call._tell or ())


def hold_of(lease: Lease) -> Hold:
    return lease._hold


def forget_news(lease: Lease) -> None:
    """Let the event loop know nothing of the renewals by the thread of `max_stall`."""
    hold = lease._hold
    assert isinstance(hold, CoveredHold)
    hold._taken, hold.confirmed_at, hold._deadline, hold._expires = None, 0.0, 0.0, 0.0


def reader_of(locks: LockClient) -> asyncio.Task[None]:
    """The task of the client's connection for everything that is not urgent."""
    return task_of(backend_of(locks))


def task_of(backend: Topology) -> asyncio.Task[None]:
    """The task of the connection for everything that is not urgent."""
    [server] = backend.servers()
    reader = server.ordinary.connection._reader
    assert reader is not None
    return reader


def ordinary_of(server: Any) -> Any:
    """redis-py's connection for everything that is not urgent."""
    return server.ordinary.connection.raw


async def let_deadline_pass(lease: Lease | MultiLease) -> None:
    """Let the deadline of *lease* come during its release, which a task has just begun."""
    await asyncio.sleep(0)
    assert lease.given_back
    for hold in {each._hold for each in (lease._leases if isinstance(lease, MultiLease) else [lease])}:
        hold.deadline = hold.expires = monotonic()


def client_id_of(locks: LockClient) -> str | None:
    """The id of the client on the server; ``None`` before its first use."""
    session = locks._sessions.session
    return None if session is None else session.client


def entry_names(locks: LockClient) -> list[str]:
    """The names of all entries and blocks of the client."""
    session = locks._sessions.session
    return [] if session is None else [*session.entries, *session.blocks.opened]


def acquisition_of(lease: Any) -> bytes | None:
    """The acquisition of a lease's hold; ``None`` for an object that is no lease of one hold."""
    hold = getattr(lease, "_hold", None)
    return None if hold is None else hold.claim.id.encode()


def count_of(lease: Any) -> tuple[str, int, int] | None:
    """
    The owner of a lease, the client's hold count, and the number of its last change; ``None`` for an object that is no
    lease of one hold.
    """
    hold = getattr(lease, "_hold", None)
    return None if hold is None else (hold.owner, len(hold.leases), hold.step)
