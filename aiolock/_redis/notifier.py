"""
Unlock messages: one shared pub/sub connection for all names that have waiters.

A message only shortens a wait. Messages may be missed, before a subscription or around a reconnect: then the watchers
get a signal when the subscription is confirmed. In any case, the waiter's own probe comes at the end of the lease.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextvars import Context
from time import monotonic
from typing import Any

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import MovedError, ResponseError

from aiolock._log import log
from aiolock._redis.connection import Connection
from aiolock._redis.hints import in_words
from aiolock._redis.user import Command

# Seconds for which a channel is kept after its last watcher has left, so that a busy lock does not subscribe each time.
LINGER = 1.0
# Seconds of silence after which the server has to answer a PING.
PING_INTERVAL = 10.0
# Seconds after which a refused subscription is made again: the server may have been busy, or forbidden it by mistake.
AGAIN = 10.0
# Seconds from one tick to the next.
_PULSE = 0.25
# Time without an answer after which the silence is logged, in units of `patience`.
_SILENT = 3
DEAF = "unlock messages cannot be received: waiters ask again only when the holder's lease ends"

_MESSAGES = (b"message", b"smessage")
# Frames after which the subscription is confirmed.
_NEWS = (*_MESSAGES, b"subscribe", b"ssubscribe")


async def _ask_nothing(connection: AbstractConnection) -> None:
    """Greet a single server: ask it nothing."""


class _Channel:
    """A channel with its watchers."""

    __slots__ = ("confirmed", "ordered", "signals", "until")

    def __init__(self) -> None:
        # Whether SUBSCRIBE was sent, or will be on the next connection; false after the server has dropped the channel.
        self.ordered = False
        # Whether messages arrive.
        self.confirmed = False
        # One function per watcher, called with True for a message, and with False if messages may have been missed.
        self.signals: list[Callable[[bool], None]] = []
        # The time at which a channel without watchers is left.
        self.until = 0.0


class Notifier:
    """
    The notifier of one server.

    *greet* asks the first questions on a new connection; then *sharded* tells which kind of subscription to use.
    *failed* is called when the server cannot be reached, or has dropped a channel. *deaf* is the log text for a refused
    subscription, and for a time of three times *patience* (seconds) without any subscription.
    """

    # Invariant: `_channels` are the channels that the connection is or will be subscribed to; `_orders` holds the
    # difference, while there is a connection.

    # The time of the server's last message.
    _heard = 0.0
    # The time of the first question since then, which the server must answer.
    _asked: float | None = None
    # Whether a refusal was logged.
    _warned = False
    # The time of the first refusal since subscriptions were made again.
    _refused: float | None = None
    # The time of the first failure since the last answer.
    _silent_since: float | None = None
    _silent_told = False
    # The error of the last failure.
    _error: Exception | None = None

    def __init__(
        self,
        connect: Callable[[], AbstractConnection],
        *,
        patience: float,
        greet: Callable[[AbstractConnection], Awaitable[None]] = _ask_nothing,
        sharded: Callable[[], bool] = lambda: False,
        failed: Callable[[], object] = lambda: None,
        deaf: str = DEAF,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._patience = patience
        self._greet = greet
        self._sharded = sharded
        self._failed = failed
        self._deaf = deaf
        self._channels: dict[str, _Channel] = {}
        self._orders: list[Command] = []
        self.connection: Connection = Connection(self, connect, patience=patience, pulse=_PULSE)

    @property
    def subscriptions(self) -> int:
        return len(self._channels)

    def watched(self) -> list[str]:
        """The channels that have watchers; the others will be left soon."""
        return [name for name, channel in self._channels.items() if channel.signals]

    def watches(self, name: str) -> bool:
        return name in self._channels

    def confirmed(self, name: str) -> bool:
        channel = self._channels.get(name)
        return channel is not None and channel.confirmed

    def watch(self, name: str, signal: Callable[[bool], None]) -> None:
        if not self._channels:
            # The silence counts from now on.
            self._hear()
            self._silent_since = None
        channel = self._channels.setdefault(name, _Channel())
        channel.signals.append(signal)
        self.listen(name)
        if channel.confirmed:
            self._loop.call_soon(signal, False, context=Context())

    def listen(self, name: str) -> None:
        """Subscribe to channel *name*, unless the subscription exists or is under way."""
        channel = self._channels[name]
        if not channel.ordered:
            channel.ordered = True
            self._order("SSUBSCRIBE" if self._sharded() else "SUBSCRIBE", name)

    def drop(self, name: str) -> list[Callable[[bool], None]]:
        """Unsubscribe from channel *name*; returns its signals, which another server's notifier may need."""
        channel = self._channels.pop(name)
        self._order("SUNSUBSCRIBE" if self._sharded() else "UNSUBSCRIBE", name)
        return channel.signals

    def unwatch(self, name: str, signal: Callable[[bool], None]) -> None:
        channel = self._channels.get(name)
        # The channel is unknown after a close, and on the slot's former server.
        if channel is not None and signal in channel.signals:
            channel.signals.remove(signal)
            channel.until = monotonic() + LINGER

    async def aclose(self) -> None:
        """Close the connection."""
        self._channels.clear()
        await self.connection.aclose()

    # The methods of a connection's `User`.

    def busy(self) -> bool:
        return bool(self._channels)

    async def greet(self, connection: AbstractConnection) -> None:
        await self._greet(connection)

    def opened(self, took: float) -> None:
        self._hear()
        self._orders.clear()
        for name, channel in self._channels.items():
            channel.ordered = False
            # Each has a command of its own: one that is forbidden would forbid a whole command.
            self.listen(name)

    def has_work(self) -> bool:
        return False

    def outgoing(self) -> list[Command]:
        orders, self._orders = self._orders, []
        return orders

    def received(self, frame: Any) -> int:
        self._hear()
        # A connection alone proves nothing: a proxy may close each at the first command of pub/sub.
        self._silent_since, self._silent_told = None, False
        if isinstance(frame, MovedError):
            self._ended(channel for channel in self._channels.values() if not channel.confirmed)
        elif isinstance(frame, ResponseError):
            self._note_refusal(frame)
        elif isinstance(frame, list) and (channel := self._channels.get(frame[1].decode())) is not None:
            # The server says so without a request: the slot has moved.
            if frame[0] == b"sunsubscribe" and channel.confirmed:
                self._ended([channel])
            elif frame[0] in _NEWS:
                channel.ordered = channel.confirmed = True
                for signal in tuple(channel.signals):
                    signal(frame[0] in _MESSAGES)
        return 1

    def broken(self, error: Exception, waited: float) -> None:
        for channel in self._channels.values():
            channel.confirmed = False
        self._error = error
        if self._silent_since is None:
            self._silent_since = monotonic()
        self._failed()
        self.tick(monotonic())

    def tick(self, now: float) -> None:
        for name in [name for name, channel in self._channels.items() if not channel.signals]:
            if now >= self._channels[name].until:
                self.drop(name)
        if self._refused is not None and now >= self._refused + AGAIN:
            self._refused = None
            self._subscribe_again()
        if self.connection.connected:
            self._check_alive(now)
        elif self._silent_since is not None and now >= self._silent_since + _SILENT * self._patience:
            self._warn_of_silence()

    def _check_alive(self, now: float) -> None:
        """Give a half-open connection up: data do not arrive any more, but no error says so."""
        if self._asked is None:
            if now >= self._heard + PING_INTERVAL:
                self._order("PING")
        elif now >= self._asked + self._patience:
            self.connection.fail()

    def _warn_of_silence(self) -> None:
        """Log that the server is silent, once until a connection answers again."""
        if not self._silent_told and self._error is not None and self.watched():
            self._silent_told = True
            log.warning(
                "%s: no subscription can be made (%s)", self._deaf, in_words(self._error) or "no answer in time"
            )

    def _note_refusal(self, error: ResponseError) -> None:
        if not self._warned:
            log.warning("%s (logged once): %s", self._deaf, error)
        self._warned = True
        if self._refused is None:
            self._refused = monotonic()

    def _subscribe_again(self) -> None:
        for name, channel in self._channels.items():
            if not channel.confirmed:
                channel.ordered = False
                self.listen(name)

    def _hear(self) -> None:
        self._heard = monotonic()
        self._asked = None

    def _ended(self, channels: Iterable[_Channel]) -> None:
        """Note that the server has dropped these channels."""
        for channel in channels:
            channel.ordered = channel.confirmed = False
        self._failed()

    def _order(self, *command: str) -> None:
        # Otherwise `_channels` has it for the next connection.
        if self.connection.connected:
            self._orders.append(command)
            if self._asked is None:
                self._asked = monotonic()
        self.connection.wake()
