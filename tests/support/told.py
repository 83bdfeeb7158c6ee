"""Who is told of a loss, and whether in time."""

import asyncio

from aiolock import Lease, LockEvent, Lost

MOMENT = 0.005  # Seconds: what there may be between two readings of the clock.


class Told:
    """Whose holders have been told of a loss; a lease that is asked itself goes by the clock."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def hear(self, event: LockEvent) -> None:
        if isinstance(event, Lost):
            self.names.add(event.name)

    async def in_time(self, lease: Lease) -> bool:
        """
        Whether a timer that is set for a moment after the deadline finds that the holder has been told.

        Timers ring in their order, so that it does not matter how late the event loop is.
        """
        loop = asyncio.get_running_loop()
        in_time: asyncio.Future[bool] = loop.create_future()

        def ring() -> None:
            if lease.remaining > 0:  # It was renewed meanwhile.
                loop.call_later(lease.remaining + MOMENT, ring)
            else:
                in_time.set_result(lease.name in self.names)

        loop.call_later(lease.remaining + MOMENT, ring)
        return await in_time
