"""
Unlock messages of a quorum: whichever server says it first.

A release is announced by each server that had the lock. The first message of it wakes, and what the others send of the
same release is no news.
"""

from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic

from aiolock._backend import Notifier

_SAME = 1.0  # Seconds: what others say later than that after the first, is news.


class _Ears:
    """What one watcher hears of one channel, from all servers."""

    def __init__(self, signal: Callable[[bool], None], servers: int) -> None:
        self._signal = signal
        self._majority = servers // 2 + 1
        self._heard = [0] * servers  # Messages of each server; what several say is counted as the same.
        self._listening: set[int] = set()
        self._last = 0.0  # When something was news last.
        self.each = [partial(self._hear, server) for server in range(servers)]

    def _hear(self, server: int, message: bool) -> None:
        if message:
            self._count(server)
        elif server in self._listening:  # Messages may have been missed.
            self._heard[server] = max(self._heard)
            self._signal(False)
        else:
            self._listening.add(server)
            self._heard[server] = max(self._heard)
            if len(self._listening) == self._majority:  # Now a majority that frees it cannot do so unheard.
                self._signal(False)

    def _count(self, server: int) -> None:
        most, now = max(self._heard), monotonic()
        self._heard[server] += 1
        if self._heard[server] <= most:
            if now < self._last + _SAME:
                return
            self._heard = [most] * len(self._heard)  # It is behind: what it has not said by now it never will.
        self._last = now
        self._signal(True)


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
        for notifier, hear in zip(self._notifiers, ears.each, strict=True):
            notifier.unwatch(name, hear)
