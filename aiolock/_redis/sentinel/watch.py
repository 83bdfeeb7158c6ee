"""
Learns of a new primary while connected to the old one, which may be demoted only some seconds later.

Every Sentinel is asked twice a second, and all Sentinels are asked as soon as one of them announces a new primary: a
lost announcement costs half a second. The answer of the majority counts.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from time import monotonic

from aiolock._redis.connector import Connector
from aiolock._redis.notifier import Notifier
from aiolock._redis.sentinel.ask import Address, OneSentinel, Sentinels

# Seconds from an answer to the next question.
_INTERVAL = 0.5
# Seconds for which an answer counts.
_CERTAIN = 1.0
# Seconds for an answer: a silent Sentinel is noticed while its last answer still counts.
_PATIENCE = 0.4
_CHANNEL = "+switch-master"
_DEAF = "a Sentinel sends no messages; a new primary is noticed a moment later"


class PrimaryWatch:
    """
    Watches the answers of *sentinels*, from the first `ask` on.

    *tell* is called with the answer of the majority, and the time of the question (monotonic clock).
    """

    def __init__(self, sentinels: Sentinels, tell: Callable[[Address, float], object]) -> None:
        self._tell = tell
        self._due = {each: asyncio.Event() for each in sentinels.each(min(_PATIENCE, sentinels.patience))}
        self._notifiers = [
            Notifier(Connector.of(client, None, sentinels.patience), patience=sentinels.patience, deaf=_DEAF)
            for client in sentinels.clients
        ]
        self._tasks: list[asyncio.Task[None]] = []
        # The time of the majority's oldest question; infinite without a majority, so that calls do not wait for one.
        self._heard = math.inf

    @property
    def certain(self) -> bool:
        """Whether the majority's answer still counts: after a pause of the process, a new answer is needed."""
        return monotonic() < self._heard + _CERTAIN

    def ask(self) -> None:
        """Ask all Sentinels now."""
        for due in self._due.values():
            due.set()
        if not self._tasks:
            loop = asyncio.get_running_loop()
            self._tasks = [loop.create_task(self._keep_asking(*each), context=Context()) for each in self._due.items()]
            for notifier in self._notifiers:
                notifier.watch(_CHANNEL, lambda message: self.ask())

    async def aclose(self) -> None:
        """Close the connections to the Sentinels."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await asyncio.gather(*(notifier.aclose() for notifier in self._notifiers))

    async def _keep_asking(self, sentinel: OneSentinel, due: asyncio.Event) -> None:
        task = asyncio.current_task()
        try:
            # An error on connecting may replace the cancellation of this task.
            while task is not None and not task.cancelling():
                due.clear()
                await sentinel.ask()
                self._count()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_INTERVAL):
                        await due.wait()
        finally:
            # If the loop ends without a close, releases must not wait for this Sentinel.
            sentinel.named = None
            self._count()
            await sentinel.hang_up(last=True)

    def _count(self) -> None:
        """Count the latest answers."""
        named = Counter(each.named for each in self._due if each.named is not None).most_common(1)
        if not named or 2 * named[0][1] <= len(self._due):
            self._heard = math.inf
            return
        address = named[0][0]
        asked = sorted((each.asked for each in self._due if each.named == address), reverse=True)
        # The latest answers that make a majority count.
        self._heard = asked[len(self._due) // 2]
        self._tell(address, self._heard)
