"""
Unlock messages, pushed: one shared pub/sub connection for every name that is waited for.

A message only ever shortens a wait. What may have been missed (before a subscription, around a reconnect) is made
up for by a signal when the subscription is confirmed, and else by the waiter's own probe when the lease is over.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextvars import Context
from time import monotonic
from typing import Any

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ResponseError

from aiolock._link import Link
from aiolock._wire import Command

logger = logging.getLogger("aiolock")

LINGER = 1.0  # Seconds that a channel is kept after its last watcher left, so that a hot lock does not flap.
PING_INTERVAL = 10.0  # Seconds of silence after which the connection must show that it lives.
_PULSE = 0.25


class _Channel:
    """Something to listen to."""

    __slots__ = ("confirmed", "ordered", "signal", "until")

    def __init__(self) -> None:
        self.ordered = monotonic()
        self.confirmed = False  # Messages arrive.
        # Called with True on a message, with False when messages may have been missed.
        self.signal: Callable[[bool], None] | None = None
        self.until = 0.0  # When an unwatched channel is left.


class Notifier:
    """Watches channels; each has one watcher, a queue of waiters."""

    def __init__(self, connect: Callable[[], AbstractConnection], *, patience: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._patience = patience
        # Invariant: what the connection is or will be subscribed to = `_channels`; `_orders` holds the difference.
        self._channels: dict[str, _Channel] = {}
        self._orders: deque[Command] = deque()
        self._heard = 0.0  # When the server last sent anything.
        self._asked = False  # A ping was sent since.
        self._warned = False
        self.link: Link = Link(self, connect, patience=patience, pulse=_PULSE)

    @property
    def subscriptions(self) -> int:
        """Channels subscribed to, or about to be."""
        return len(self._channels)

    def watches(self, name: str) -> bool:
        """Whether channel *name* is subscribed to, or about to be."""
        return name in self._channels

    def confirmed(self, name: str) -> bool:
        """Whether messages of channel *name* arrive here."""
        channel = self._channels.get(name)
        return channel is not None and channel.confirmed

    def watch(self, name: str, signal: Callable[[bool], None]) -> None:
        """
        Call *signal* with ``True`` for every message of channel *name*.

        It is called with ``False`` whenever messages may have been missed: for the first time as soon as the
        subscription stands, so that who then looks again misses nothing.
        """
        if not self._channels:
            self._hear()  # Silence counts from now on.
        channel = self._channels.get(name)
        if channel is None:
            channel = self._channels[name] = _Channel()
            self._order("SUBSCRIBE", name)
        channel.signal = signal
        if channel.confirmed:
            self._loop.call_soon(signal, False, context=Context())

    def unwatch(self, name: str) -> None:
        """Nobody waits on channel *name* any more."""
        if (channel := self._channels.get(name)) is not None:  # It is not once the notifier is closed.
            channel.signal = None
            channel.until = monotonic() + LINGER

    async def aclose(self) -> None:
        """Close the connection."""
        self._channels.clear()
        await self.link.aclose()

    # What the link asks for.

    def busy(self) -> bool:
        return bool(self._channels)

    def opened(self) -> None:
        self._hear()
        self._orders.clear()
        for channel in self._channels.values():
            channel.ordered = self._heard
        for name in self._channels:
            self._order("SUBSCRIBE", name)  # One each: one that is forbidden would forbid a whole command.

    def waiting(self) -> int:
        return len(self._orders)

    def outgoing(self) -> list[Command]:
        orders = list(self._orders)
        self._orders.clear()
        return orders

    def received(self, frame: Any) -> None:
        self._hear()
        if isinstance(frame, ResponseError):
            self._warn(frame)
        elif isinstance(frame, list) and frame[0] in (b"message", b"subscribe"):
            channel = self._channels.get(frame[1].decode())
            if channel is not None:
                channel.confirmed = True
                if channel.signal is not None:
                    channel.signal(frame[0] == b"message")

    def broken(self, error: Exception) -> None:
        for channel in self._channels.values():
            channel.confirmed = False
        self.tick(monotonic())

    def tick(self, now: float) -> None:
        for name in [name for name, channel in self._channels.items() if channel.signal is None]:
            if now >= self._channels[name].until:
                del self._channels[name]
                self._order("UNSUBSCRIBE", name)
        if self.link.connected:
            self._check_alive(now)

    def _check_alive(self, now: float) -> None:
        """Give a half-open connection up: nothing that is sent on it arrives, and no error tells so."""
        silent = now - self._heard
        # Only what was ordered since the server last said anything: else it was refused.
        overdue = any(
            not channel.confirmed and self._heard <= channel.ordered <= now - self._patience
            for channel in self._channels.values()
        )
        if overdue or silent >= PING_INTERVAL + self._patience:
            self.link.fail()
        elif silent >= PING_INTERVAL and not self._asked:
            self._asked = True
            self._order("PING")

    def _warn(self, error: ResponseError) -> None:
        if not self._warned:
            text = "unlock messages cannot be received, waiters fall back to the lease (said once): %s"
            logger.warning(text, error)
        self._warned = True

    def _hear(self) -> None:
        self._heard = monotonic()
        self._asked = False

    def _order(self, *command: str) -> None:
        self._orders.append(command)
        self.link.wake()
