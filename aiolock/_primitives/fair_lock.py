"""AsyncFairLock: a reentrant lock that is granted in the order in which it was asked for."""

from typing import final

from aiolock._primitives.rlock import OneHolder


@final
class AsyncFairLock(OneHolder):
    """
    A reentrant distributed lock: first come, first served over all clients and tasks; made by `LockClient.fair_lock`.

    The order is that in which the server heard of who waits. A handle without state of its own, with all verbs of
    `AsyncRLock`, whose lock of the same name excludes it and is excluded. A client that gives no sign of life for 0.7
    seconds when it is its turn is passed over, within a second; it goes before all others again when it comes back.
    Redisson's ``RFairLock`` has another line, by the clocks of its clients: do not mix the two on one name.
    """

    __slots__ = ()
