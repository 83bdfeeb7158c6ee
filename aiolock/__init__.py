"""aiolock: a distributed lock for asyncio, on Redis and Valkey."""

from aiolock._background import background
from aiolock._client import LockClient
from aiolock._config import LockConfig
from aiolock._errors import (
    AioLockError,
    BackendError,
    ClientClosedError,
    LeaseLostError,
    LockTimeoutError,
    LossReason,
    NotALockError,
    NotHeldError,
    QuorumError,
    ReplicationError,
)
from aiolock._events import Acquired, HandedOff, LockEvent, Lost, Orphaned, Released, RenewalLate, Renewed
from aiolock._lease import Lease, Loss
from aiolock._rlock import AsyncRLock, HeldLock
from aiolock._threads import to_thread
from aiolock._types import ClientStatistics, Duration, Holder, LockStatistics

__version__ = "0.1.0"

__all__ = [
    "Acquired",
    "AioLockError",
    "AsyncRLock",
    "BackendError",
    "ClientClosedError",
    "ClientStatistics",
    "Duration",
    "HandedOff",
    "HeldLock",
    "Holder",
    "Lease",
    "LeaseLostError",
    "LockClient",
    "LockConfig",
    "LockEvent",
    "LockStatistics",
    "LockTimeoutError",
    "Loss",
    "LossReason",
    "Lost",
    "NotALockError",
    "NotHeldError",
    "Orphaned",
    "QuorumError",
    "Released",
    "RenewalLate",
    "Renewed",
    "ReplicationError",
    "background",
    "to_thread",
]

for _name in __all__:  # Users import them from here, so that is where they say they are from; pickles, too.
    if isinstance(_class := globals()[_name], type):
        _class.__module__ = __name__
