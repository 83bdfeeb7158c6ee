"""aiolock: a distributed lock for asyncio, on Redis and Valkey."""

from aiolock._client import LockClient
from aiolock._config import LockConfig
from aiolock._core.background import background
from aiolock._core.lease import Lease, Loss
from aiolock._core.threads import to_thread
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
    HandedOff,
    LockEvent,
    Lost,
    NotAcquired,
    NotAcquiredReason,
    Orphaned,
    Released,
    RenewalLate,
    Renewed,
    Telemetry,
    WaitStarted,
)
from aiolock._primitives.base import HeldLock
from aiolock._primitives.fair_lock import AsyncFairLock
from aiolock._primitives.latch import AsyncCountDownLatch
from aiolock._primitives.leader import AsyncLeader, Term
from aiolock._primitives.multi import AsyncMultiLock, HeldMultiLock
from aiolock._primitives.multi_lease import MultiLease, MultiLoss
from aiolock._primitives.once import AsyncOnce, Slot, Turn
from aiolock._primitives.permits import AsyncPermitExpirableSemaphore, HeldPermits
from aiolock._primitives.read_write import AsyncReadLock, AsyncReadWriteLock, AsyncWriteLock
from aiolock._primitives.rlock import AsyncRLock
from aiolock._primitives.semaphore import AsyncSemaphore, HeldSemaphore
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
    "AioLockError",
    "AsyncCountDownLatch",
    "AsyncFairLock",
    "AsyncLeader",
    "AsyncMultiLock",
    "AsyncOnce",
    "AsyncPermitExpirableSemaphore",
    "AsyncRLock",
    "AsyncReadLock",
    "AsyncReadWriteLock",
    "AsyncSemaphore",
    "AsyncWriteLock",
    "BackendError",
    "ClientClosedError",
    "ClientStatistics",
    "Duration",
    "HandedOff",
    "HeldLock",
    "HeldMultiLock",
    "HeldPermits",
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

for _name in __all__:  # Users import them from here, so that is where they say they are from; pickles, too.
    if hasattr(_public := globals()[_name], "__qualname__"):  # Aliases, as `Duration`, are none of ours.
        _public.__module__ = __name__
