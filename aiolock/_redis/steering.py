"""The decisions that a pipeline leaves to its server and topology."""

from abc import ABC, abstractmethod
from collections.abc import Callable

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ResponseError

from aiolock._backend import Call, Client


class Steering(ABC):
    """The decisions for the pipelines of one server; only `greet` is a coroutine."""

    # See `Backend.apart`.
    apart: bool
    # The user of the backend.
    client: Client
    # Whether calls may be sent; false while it is not known whether this is still the right server.
    settled: Callable[[], bool] | None = None

    @abstractmethod
    async def greet(self, connection: AbstractConnection) -> None:
        """Ask the first questions on a new *connection*; an error from here makes it useless."""

    @property
    @abstractmethod
    def publish(self) -> str:
        """The command that publishes unlock messages on this server."""

    def redirected(self, call: Call, error: ResponseError) -> bool:
        """Send *call* to another server if *error* redirects it there; returns whether it was sent."""
        return False

    @abstractmethod
    def broken(self, error: Exception, *, was_open: bool) -> None:
        """Note that an open connection has failed (*was_open*), or that no connection could be made, with *error*."""
