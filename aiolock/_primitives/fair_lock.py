"""AsyncFairLock: a reentrant lock that is granted in the order of the requests."""

from typing import final

from aiolock._primitives.rlock import AsyncRLock


@final
class AsyncFairLock(AsyncRLock):
    """
    A reentrant distributed lock: first come, first served over all clients and tasks; made by `LockClient.fair_lock`.

    The order is that of the requests' arrival at the server. The handle has no state of its own, and all methods of
    `AsyncRLock`; a fair and a plain lock of one name exclude each other. A client whose turn it is, and that gives no
    sign of life for 0.7 seconds, loses its turn within a second; when it comes back, it goes before all others.
    Redisson's ``RFairLock`` keeps another line, ordered by its clients' clocks: do not use both for one name.
    """

    __slots__ = ()
