"""The holders that learn of a loss, and whether they learn in time."""

import asyncio

from aiolock import Lease, LockEvent, Lost

# The most seconds between two readings of the clock.
MOMENT = 0.005


class Told:
    """Collects the names of lost locks from the events; a lease itself would answer by the clock, before any event."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def hear(self, event: LockEvent) -> None:
        if isinstance(event, Lost):
            self.names.add(event.name)

    async def in_time(self, lease: Lease) -> bool:
        """
        Whether a timer just after the deadline finds that the holder has learned of the loss.

        Timers fire in their order, so that a late event loop does not matter.
        """
        loop = asyncio.get_running_loop()
        in_time: asyncio.Future[bool] = loop.create_future()

        def ring() -> None:
            if lease.remaining > 0:
                loop.call_later(lease.remaining + MOMENT, ring)
            else:
                in_time.set_result(lease.name in self.names)

        loop.call_later(lease.remaining + MOMENT, ring)
        return await in_time
