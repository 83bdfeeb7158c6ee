"""
Unlock messages, pushed: one shared pub/sub connection for every name that is waited for.

A message only ever shortens a wait. What may have been missed (before a subscription, around a reconnect) is made
up for by a signal when the subscription is confirmed, and else by the waiter's own probe when the lease is over.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextvars import Context
from time import monotonic
from typing import Any

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import MovedError, ResponseError

from aiolock._log import log
from aiolock._redis.connection import Command, Connection

LINGER = 1.0  # Seconds that a channel is kept after its last watcher left, so that a hot lock does not flap.
PING_INTERVAL = 10.0  # Seconds of silence after which the connection must show that it lives.
_PULSE = 0.25
_DEAF = "unlock messages cannot be received, waiters fall back to the lease"

_MESSAGES = (b"message", b"smessage")
_NEWS = (*_MESSAGES, b"subscribe", b"ssubscribe")  # The subscription stands.


async def _ask_nothing(connection: AbstractConnection) -> None:
    """All that is to be known of a server by itself."""


class _Channel:
    """Something to listen to."""

    __slots__ = ("confirmed", "ordered", "signals", "until")

    def __init__(self) -> None:
        self.ordered = False  # Or will be once there is a connection; no more when the server has it no longer.
        self.confirmed = False  # Messages arrive.
        # Called with True on a message, with False when messages may have been missed; one for each watcher.
        self.signals: list[Callable[[bool], None]] = []
        self.until = 0.0  # When an unwatched channel is left.


class Notifier:
    """
    The notifier of one server: watches channels there.

    *greet* asks on a new connection what is to be known first. Subscribes *sharded* if that says so then; *failed* is
    called when the server cannot be reached, or no longer has a channel; *deaf* is for the log, if it refuses.
    """

    def __init__(
        self,
        connect: Callable[[], AbstractConnection],
        *,
        patience: float,
        greet: Callable[[AbstractConnection], Awaitable[None]] = _ask_nothing,
        sharded: Callable[[], bool] = lambda: False,
        failed: Callable[[], object] = lambda: None,
        deaf: str = _DEAF,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._patience = patience
        self._greet = greet
        self._sharded = sharded
        self._failed = failed
        self._deaf = deaf
        # Invariant: what the connection is or will be subscribed to = `_channels`; `_orders` holds the difference,
        # while there is a connection.
        self._channels: dict[str, _Channel] = {}
        self._orders: list[Command] = []
        self._heard = 0.0  # When the server last sent anything.
        self._asked: float | None = None  # When it was first asked for anything since then, which it will answer.
        self._warned = False
        self.connection: Connection = Connection(self, connect, patience=patience, pulse=_PULSE)

    @property
    def subscriptions(self) -> int:
        return len(self._channels)

    def watched(self) -> list[str]:
        """The channels that have watchers; the others are on their way out."""
        return [name for name, channel in self._channels.items() if channel.signals]

    def watches(self, name: str) -> bool:
        return name in self._channels

    def confirmed(self, name: str) -> bool:
        channel = self._channels.get(name)
        return channel is not None and channel.confirmed

    def watch(self, name: str, signal: Callable[[bool], None]) -> None:
        if not self._channels:
            self._hear()  # Silence counts from now on.
        channel = self._channels.setdefault(name, _Channel())
        channel.signals.append(signal)
        self.listen(name)
        if channel.confirmed:
            self._loop.call_soon(signal, False, context=Context())

    def listen(self, name: str) -> None:
        """Subscribe to channel *name*, unless that stands, or is under way."""
        channel = self._channels[name]
        if not channel.ordered:
            channel.ordered = True
            self._order("SSUBSCRIBE" if self._sharded() else "SUBSCRIBE", name)

    def drop(self, name: str) -> list[Callable[[bool], None]]:
        """Leave channel *name*, which nobody needs here any more; its signals, which another server may need."""
        channel = self._channels.pop(name)
        self._order("SUNSUBSCRIBE" if self._sharded() else "UNSUBSCRIBE", name)
        return channel.signals

    def unwatch(self, name: str, signal: Callable[[bool], None]) -> None:
        channel = self._channels.get(name)
        if channel is not None and signal in channel.signals:  # Not once it is closed, nor where the slot was before.
            channel.signals.remove(signal)
            channel.until = monotonic() + LINGER

    async def aclose(self) -> None:
        """Close the connection."""
        self._channels.clear()
        await self.connection.aclose()

    # What the connection asks for.

    def busy(self) -> bool:
        return bool(self._channels)

    async def greet(self, connection: AbstractConnection) -> None:
        await self._greet(connection)

    def opened(self, took: float) -> None:
        self._hear()
        self._orders.clear()
        for name, channel in self._channels.items():
            channel.ordered = False
            self.listen(name)  # One each: one that is forbidden would forbid a whole command.

    def owed(self) -> bool:
        return False

    def outgoing(self) -> list[Command]:
        orders, self._orders = self._orders, []
        return orders

    def received(self, frame: Any) -> int:
        self._hear()
        if isinstance(frame, MovedError):
            self._ended(channel for channel in self._channels.values() if not channel.confirmed)
        elif isinstance(frame, ResponseError):
            self._warn(frame)
        elif isinstance(frame, list) and (channel := self._channels.get(frame[1].decode())) is not None:
            if frame[0] == b"sunsubscribe" and channel.confirmed:  # Not asked for: the slot has moved.
                self._ended([channel])
            elif frame[0] in _NEWS:
                channel.ordered = channel.confirmed = True
                for signal in tuple(channel.signals):
                    signal(frame[0] in _MESSAGES)
        return 1

    def broken(self, error: Exception, waited: float) -> None:
        for channel in self._channels.values():
            channel.confirmed = False
        self._failed()
        self.tick(monotonic())

    def tick(self, now: float) -> None:
        for name in [name for name, channel in self._channels.items() if not channel.signals]:
            if now >= self._channels[name].until:
                self.drop(name)
        if self.connection.connected:
            self._check_alive(now)

    def _check_alive(self, now: float) -> None:
        """Give a half-open connection up: nothing that is sent on it arrives, and no error tells so."""
        if self._asked is None:
            if now >= self._heard + PING_INTERVAL:
                self._order("PING")
        elif now >= self._asked + self._patience:
            self.connection.fail()

    def _warn(self, error: ResponseError) -> None:
        if not self._warned:
            log.warning("%s (said once): %s", self._deaf, error)
        self._warned = True

    def _hear(self) -> None:
        self._heard = monotonic()
        self._asked = None

    def _ended(self, channels: Iterable[_Channel]) -> None:
        """The server has these channels no longer."""
        for channel in channels:
            channel.ordered = channel.confirmed = False
        self._failed()

    def _order(self, *command: str) -> None:
        if self.connection.connected:  # Else it follows from `_channels` when there is a connection.
            self._orders.append(command)
            if self._asked is None:
                self._asked = monotonic()
        self.connection.wake()
