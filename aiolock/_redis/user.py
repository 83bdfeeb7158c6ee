"""The interface that a connection needs of its user: a pipeline, or pub/sub."""

from collections.abc import Sequence
from typing import Any, Protocol

from redis.asyncio.connection import AbstractConnection

Command = tuple[Any, ...]


class User(Protocol):
    """Supplies the commands of a connection, and takes the replies; only `greet` is a coroutine."""

    def busy(self) -> bool:
        """Whether the user needs a connection."""

    def has_work(self) -> bool:
        """Whether a task waits for an answer, or will send a command that must be sent, such as a release."""

    async def greet(self, connection: AbstractConnection) -> None:
        """Ask the first questions on a new *connection*; an error from here makes it useless."""

    def opened(self, took: float) -> None:
        """A new connection is ready, after *took* seconds; only the greeting was written to it."""

    def outgoing(self) -> Sequence[Command]:
        """Take the commands that are to be written now."""

    def received(self, frame: Any) -> int:
        """
        Take *frame* from the server: a reply, a message, or a `ResponseError`; returns how many waiters it may have
        woken.
        """

    def broken(self, error: Exception, waited: float) -> None:
        """The connection failed, or none could be made within the seconds that it *waited*."""

    def tick(self, now: float) -> None:
        """Called every now and then while busy, and when the connection has stopped."""
