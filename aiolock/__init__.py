"""aiolock: a distributed lock for asyncio, on Redis and Valkey."""

import aiolock._origin  # noqa: F401 - refuses a folder that another package shares
from aiolock._client import LockClient
from aiolock._config import LockConfig
from aiolock._core.lease import Lease, Loss
from aiolock._errors import (
    AioLockError,
    BackendError,
    ClientClosedError,
    LeaseLostError,
    LockTimeoutError,
    LossReason,
    NotALockError,
    NotHeldError,
    OnceFailedError,
    QuorumError,
    ReplicationError,
)
from aiolock._events import (
    Acquired,
    Bypassed,
    HandedOff,
    LockEvent,
    Lost,
    NotAcquired,
    NotAcquiredReason,
    Orphaned,
    Released,
    RenewalLate,
    Renewed,
    RenewedByThread,
    Telemetry,
    WaitStarted,
)
from aiolock._helpers.background import background
from aiolock._helpers.threads import to_thread
from aiolock._primitives.adoption import Adoption
from aiolock._primitives.counting_semaphore import AsyncCountingSemaphore, HeldCountingSemaphore
from aiolock._primitives.fair_lock import AsyncFairLock
from aiolock._primitives.held_block import HeldLock
from aiolock._primitives.latch import AsyncCountDownLatch
from aiolock._primitives.leader import AsyncLeader
from aiolock._primitives.multi.lease import MultiLease, MultiLoss
from aiolock._primitives.multi.lock import AsyncMultiLock, HeldMultiLock
from aiolock._primitives.once import AsyncOnce, Slot, Turn
from aiolock._primitives.read_write import AsyncReadLock, AsyncReadWriteLock, AsyncWriteLock
from aiolock._primitives.rlock import AsyncRLock
from aiolock._primitives.semaphore import AsyncSemaphore, HeldSemaphore
from aiolock._primitives.term import Term
from aiolock._types import (
    ClientStatistics,
    Duration,
    Holder,
    Holding,
    LockActivity,
    LockKind,
    LockStatistics,
    Waiting,
)

__version__ = "0.1.0"

__all__ = [
    "Acquired",
    "Adoption",
    "AioLockError",
    "AsyncCountDownLatch",
    "AsyncCountingSemaphore",
    "AsyncFairLock",
    "AsyncLeader",
    "AsyncMultiLock",
    "AsyncOnce",
    "AsyncRLock",
    "AsyncReadLock",
    "AsyncReadWriteLock",
    "AsyncSemaphore",
    "AsyncWriteLock",
    "BackendError",
    "Bypassed",
    "ClientClosedError",
    "ClientStatistics",
    "Duration",
    "HandedOff",
    "HeldCountingSemaphore",
    "HeldLock",
    "HeldMultiLock",
    "HeldSemaphore",
    "Holder",
    "Holding",
    "Lease",
    "LeaseLostError",
    "LockActivity",
    "LockClient",
    "LockConfig",
    "LockEvent",
    "LockKind",
    "LockStatistics",
    "LockTimeoutError",
    "Loss",
    "LossReason",
    "Lost",
    "MultiLease",
    "MultiLoss",
    "NotALockError",
    "NotAcquired",
    "NotAcquiredReason",
    "NotHeldError",
    "OnceFailedError",
    "Orphaned",
    "QuorumError",
    "Released",
    "RenewalLate",
    "Renewed",
    "RenewedByThread",
    "ReplicationError",
    "Slot",
    "Telemetry",
    "Term",
    "Turn",
    "WaitStarted",
    "Waiting",
    "background",
    "to_thread",
]

# Users import these names from here, and so do pickles: make this their module.
for _name in __all__:
    # An alias such as `Duration` has no `__qualname__`, and keeps its module.
    if hasattr(_public := globals()[_name], "__qualname__"):
        _public.__module__ = __name__
