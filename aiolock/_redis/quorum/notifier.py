"""
Unlock messages of a quorum: the first server's message counts.

Each server that had the lock publishes its release. The first message about a release wakes waiters. The other servers'
messages cause one more try, a moment later: at the first message, a majority may still have had the lock, and a message
that seems to be about the same release may be about another one.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextvars import Context
from functools import partial

from aiolock._backend import Notifier

# Seconds from a message that seems to be about a release that woke the watcher to one more try.
_AGAIN = 0.05


class _Ears:
    """The messages of one channel from all servers, for one watcher."""

    def __init__(self, signal: Callable[[bool], None], servers: int) -> None:
        self._signal = signal
        self._majority = servers // 2 + 1
        # The number of messages of each server; messages with the same number are about the same release.
        self._heard = [0] * servers
        self._listening: set[int] = set()
        self._again: asyncio.TimerHandle | None = None
        self.each = [partial(self._hear, server) for server in range(servers)]

    def _hear(self, server: int, message: bool) -> None:
        if message:
            self._count(server)
        elif server in self._listening:
            # Messages may have been missed.
            self._heard[server] = max(self._heard)
            self._signal(False)
        else:
            self._listening.add(server)
            self._heard[server] = max(self._heard)
            # From now on a majority is subscribed, so no release can be missed.
            if len(self._listening) == self._majority:
                self._signal(False)

    def _count(self, server: int) -> None:
        most = max(self._heard)
        self._heard[server] += 1
        if self._heard[server] > most:
            self._signal(True)
        elif self._again is None:
            self._again = asyncio.get_running_loop().call_later(_AGAIN, self._try_again, context=Context())

    def _try_again(self) -> None:
        self._again = None
        # A server with fewer messages than others will not send the missing ones: the count begins again.
        self._heard = [max(self._heard)] * len(self._heard)
        self._signal(False)

    def close(self) -> None:
        """Signal nothing any more."""
        if self._again is not None:
            self._again.cancel()


class QuorumNotifier:
    """The notifiers of all servers as one."""

    def __init__(self, notifiers: Sequence[Notifier]) -> None:
        self._notifiers = notifiers
        self._ears: dict[tuple[str, Callable[[bool], None]], _Ears] = {}

    @property
    def subscriptions(self) -> int:
        return max(notifier.subscriptions for notifier in self._notifiers)

    def watches(self, name: str) -> bool:
        return any(notifier.watches(name) for notifier in self._notifiers)

    def confirmed(self, name: str) -> bool:
        return sum(notifier.confirmed(name) for notifier in self._notifiers) > len(self._notifiers) // 2

    def watch(self, name: str, signal: Callable[[bool], None]) -> None:
        ears = self._ears[name, signal] = _Ears(signal, len(self._notifiers))
        for notifier, hear in zip(self._notifiers, ears.each, strict=True):
            notifier.watch(name, hear)

    def unwatch(self, name: str, signal: Callable[[bool], None]) -> None:
        ears = self._ears.pop((name, signal))
        ears.close()
        for notifier, hear in zip(self._notifiers, ears.each, strict=True):
            notifier.unwatch(name, hear)
