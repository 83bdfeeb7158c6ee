"""The decisions that a pipeline leaves to its server and topology."""

from abc import ABC, abstractmethod
from collections.abc import Callable

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ResponseError

from aiolock._backend import Call, Client
from aiolock._redis.traffic import Traffic


class Steering(ABC):
    """The decisions for the pipelines of one server; only `greet` is a coroutine."""

    # See `Backend.apart`.
    apart: bool
    # The user of the backend.
    client: Client
    # Counts what its pipelines send.
    traffic: Traffic
    # Whether calls may be sent: not while it is unknown whether this is still the right server. None: at any time.
    is_settled: Callable[[], bool] | None = None

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
