"""The one way from the tests into what is private: whoever moves something in there follows it here."""

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

from aiolock import Lease, LockClient
from aiolock._backend import Argument, Backend, Call, Notifier
from aiolock._core.hold import Hold
from aiolock._core.queue import Queue
from aiolock._core.session import Session
from aiolock._primitives.base import Single
from aiolock._redis.backend import OneServer
from aiolock._redis.cluster import Cluster
from aiolock._redis.primary_watch import PrimaryWatch
from aiolock._redis.quorum import QuorumBackend
from aiolock._redis.quorum_member import Member
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


class Nobody:
    """The client of a backend that keeps no locks."""

    def doubt(self, had: Callable[[str], bool]) -> None:
        pass

    def is_in_use(self) -> bool:
        return False


def session_of(locks: LockClient) -> Session:
    return locks._sessions.here()


def backend_of(locks: LockClient) -> Topology:
    backend = session_of(locks).commands.backend
    assert isinstance(backend, Topology)
    return backend


def members_of(locks: LockClient) -> Sequence[Member]:
    """The servers of a quorum, each of which has an answer to give, also when the majority has given it."""
    backend = session_of(locks).commands.backend
    assert isinstance(backend, QuorumBackend)
    return backend._members


def timers_of_marks(locks: LockClient) -> list[asyncio.TimerHandle]:
    """What is yet to look after a mark."""
    session = locks._sessions.session
    marks = None if session is None else session.report._marks
    return [] if marks is None else [each for each in marks._timers.values() if not each.cancelled()]


def cluster_of(locks: LockClient) -> Cluster:
    topology = backend_of(locks)
    assert isinstance(topology, Cluster)
    return topology


async def slots_are_settled(locks: LockClient) -> bool:
    """Whether nobody is asked for the slots of the cluster now."""
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


def hold_of(lease: Lease) -> Hold:
    return lease._hold


def reader_of(locks: LockClient) -> asyncio.Task[None]:
    """The task of the connection for everything that is not urgent."""
    [server] = backend_of(locks).servers()
    reader = server.ordinary.connection._reader
    assert reader is not None
    return reader


def ordinary_of(server: Any) -> Any:
    """redis-py's connection for everything that is not urgent."""
    return server.ordinary.connection.raw
