"""
Learns of a new primary while connected to the old one, which may take some seconds to be demoted.

Every Sentinel is asked twice a second, and all of them as soon as one of them announces a new primary. A message that
is lost so costs no more than that. What counts is what most of them say.
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
from aiolock._redis.sentinel import Address, OneSentinel, Sentinels

_INTERVAL = 0.5  # Seconds from an answer to the next question.
_CERTAIN = 1.0  # Seconds for which an answer counts.
_PATIENCE = 0.4  # Seconds for an answer: who is silent is known to be before the last one counts no more.
_CHANNEL = "+switch-master"
_DEAF = "a Sentinel announces no new primary to us, which is found out a moment later"


class PrimaryWatch:
    """
    Watches over what *sentinels* say, from the first `ask` on.

    *tell* is called with what most of them say, and with when they were asked (monotonic clock).
    """

    def __init__(self, sentinels: Sentinels, tell: Callable[[Address, float], object]) -> None:
        self._tell = tell
        self._due = {each: asyncio.Event() for each in sentinels.each(min(_PATIENCE, sentinels.patience))}
        self._notifiers = [
            Notifier(Connector.of(client, None, sentinels.patience), patience=sentinels.patience, deaf=_DEAF)
            for client in sentinels.clients
        ]
        self._tasks: list[asyncio.Task[None]] = []
        # When the last one of a majority was asked; for ever while there is none: then nothing is gained by waiting.
        self._heard = math.inf

    @property
    def certain(self) -> bool:
        """Whether what most Sentinels said counts still; not after a pause of the process, before they said more."""
        return monotonic() < self._heard + _CERTAIN

    def ask(self) -> None:
        """Ask now."""
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
        for notifier in self._notifiers:
            await notifier.aclose()

    async def _keep_asking(self, sentinel: OneSentinel, due: asyncio.Event) -> None:
        task = asyncio.current_task()
        try:
            while task is not None and not task.cancelling():  # A failure to connect can take its cancellation's place.
                due.clear()
                await sentinel.ask()
                self._count()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_INTERVAL):
                        await due.wait()
        finally:
            sentinel.named = None  # Where a loop ends without a close, releases must not wait for what nobody asks.
            self._count()
            await sentinel.hang_up()

    def _count(self) -> None:
        """Count the latest answers."""
        named = Counter(each.named for each in self._due if each.named is not None).most_common(1)
        if not named or 2 * named[0][1] <= len(self._due):
            self._heard = math.inf
            return
        address = named[0][0]
        asked = sorted((each.asked for each in self._due if each.named == address), reverse=True)
        self._heard = asked[len(self._due) // 2]  # Older answers are none that the majority needs.
        self._tell(address, self._heard)
