"""
The locks of aiolock for threads and synchronous code: Celery, Django, Flask, RQ, scripts.

Each class has the methods of its asynchronous counterpart; they wait where the others are awaited. See `LockClient`.
"""

import aiolock._origin  # noqa: F401 - refuses a folder that another package shares
from aiolock._blocking.client import LockClient
from aiolock._blocking.latch import CountDownLatch
from aiolock._blocking.leader import Leader, Term
from aiolock._blocking.lease import Lease, Loss, MultiLease, MultiLoss
from aiolock._blocking.locks import (
    FairLock,
    HeldLock,
    HeldMultiLock,
    MultiLock,
    ReadLock,
    ReadWriteLock,
    RLock,
    WriteLock,
)
from aiolock._blocking.once import Once, Turn
from aiolock._blocking.semaphores import CountingSemaphore, HeldCountingSemaphore, HeldSemaphore, Semaphore

__all__ = [
    "CountDownLatch",
    "CountingSemaphore",
    "FairLock",
    "HeldCountingSemaphore",
    "HeldLock",
    "HeldMultiLock",
    "HeldSemaphore",
    "Leader",
    "Lease",
    "LockClient",
    "Loss",
    "MultiLease",
    "MultiLock",
    "MultiLoss",
    "Once",
    "RLock",
    "ReadLock",
    "ReadWriteLock",
    "Semaphore",
    "Term",
    "Turn",
    "WriteLock",
]

# Users import these names from here: make this their module.
for _name in __all__:
    globals()[_name].__module__ = __name__
