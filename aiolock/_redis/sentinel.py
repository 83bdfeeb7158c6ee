"""Asks the Sentinels which server is the primary: all of them at once, so that one that is dead costs no time."""

import asyncio
import copy
from collections import Counter
from collections.abc import Sequence
from time import monotonic
from typing import Any, cast

from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import MasterNotFoundError, Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, ResponseError

from aiolock._redis.connection import connect, discard
from aiolock._redis.hints import in_words

Address = tuple[str, int]

_GRACE = 0.2  # Seconds from one answer to the next, while no majority has named the same server.
_PAUSED = 1.5  # Times its patience: a question that took longer without an answer was not waited for all the time.
_FINAL = (AuthenticationError, ResponseError)


class Sentinels:
    """The Sentinels that *pool* knows, each of which has *patience* (seconds) to answer."""

    def __init__(self, pool: SentinelConnectionPool, patience: float) -> None:
        self.check_connection: bool = pool.check_connection
        self.patience = patience
        self._service_name: str = pool.service_name
        self._manager: Sentinel = pool.sentinel_manager

    @property
    def clients(self) -> Sequence[Redis]:
        """The user's clients of them, to make connections like theirs."""
        return cast("Sequence[Redis]", self._manager.sentinels)

    def each(self, patience: float) -> "list[OneSentinel]":
        """Every Sentinel, to be asked; it has *patience* (seconds) to answer."""
        return [OneSentinel(self._manager, self._service_name, client, patience) for client in self.clients]

    async def primary(self) -> Address:
        """
        What most Sentinels say; if most do not answer, what any says.

        An error of redis-py tells what each of them said if none names a primary.
        """
        asked = self.each(self.patience)
        tasks = {asyncio.create_task(each.ask_once()) for each in asked}
        try:
            if (address := await self._agreed(asked, tasks)) is not None:
                return address
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        kind = ResponseError if all(isinstance(each.error, _FINAL) for each in asked) else MasterNotFoundError
        answers = "; ".join(each.answer for each in asked)
        raise kind(f"no Sentinel names a primary {self._service_name!r} that is up ({answers})")

    async def _agreed(self, asked: "list[OneSentinel]", pending: set[asyncio.Task[None]]) -> Address | None:
        named: list[tuple[Address, int]] = []  # And by how many; the most first.
        while pending and not (named and 2 * named[0][1] > len(asked)):
            grace = _GRACE if named else None
            done, pending = await asyncio.wait(pending, timeout=grace, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                break
            named = Counter(each.named for each in asked if each.named is not None).most_common()
        return named[0][0] if named else None


class Guide:
    """
    Tells one connection of redis-py's where the primary is.

    It takes the place of a `SentinelConnectionPool`, which asks one Sentinel after the other, and a dead one again and
    again: that takes longer than a connection may.
    """

    def __init__(self, sentinels: Sentinels) -> None:
        self.check_connection: bool = sentinels.check_connection
        self._sentinels = sentinels
        self.told: Address | None = None
        self.asked: float = 0.0  # When the Sentinels were asked for that.

    @property
    def is_master(self) -> bool:
        """
        What redis-py's connection asks of its pool: for the primary, until it is told where that is.

        Later it would close itself when the server says that it is none, and wait for the other side to agree.
        """
        return self.told is None

    async def get_master_address(self) -> Address:
        """What redis-py's connection asks of its pool."""
        self.asked = monotonic()
        self.told = await self._sentinels.primary()
        return self.told


class OneSentinel:
    """One Sentinel, asked on a connection of its own, kept from one question to the next, and without retries."""

    def __init__(self, manager: Sentinel, service_name: str, client: Redis, patience: float) -> None:
        # What a Sentinel's answer means is for the user's `Sentinel` to say: a subclass may translate addresses.
        self._manager = copy.copy(manager)
        self._manager.sentinels = [cast("Redis", self)]
        self._service_name = service_name
        self._client = client
        self._patience = patience
        self._connection: AbstractConnection | None = None
        self.named: Address | None = None
        self.asked: float = 0.0  # When it was asked for that.
        self.error: Exception | None = None

    async def ask(self) -> None:
        """Ask which server is the primary; once more if this process was paused, which is no silence of a Sentinel."""
        asked, named = 0.0, None
        for _ in range(2):
            asked = monotonic()
            try:
                async with asyncio.timeout(self._patience):
                    named = await self._manager.discover_master(self._service_name)
            except Exception as error:
                self.error = self.error or error
            if named is not None or monotonic() < asked + _PAUSED * self._patience:
                break
        self.asked, self.named = asked, named

    async def ask_once(self) -> None:
        """The same, and keep no connection."""
        try:
            await self.ask()
        finally:
            await self.hang_up()

    async def hang_up(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await discard(connection)

    async def sentinel_masters(self) -> Any:
        """What `discover_master` asks of redis-py's client of a Sentinel."""
        self.error = None
        try:
            connection = await self._connected()
            await connection.send_command("SENTINEL MASTERS")
            return self._client.response_callbacks["SENTINEL MASTERS"](await connection.read_response())
        except BaseException as error:
            if isinstance(error, Exception):
                self.error = error
            await self.hang_up()  # Whatever still comes would be taken for the next answer.
            raise

    async def _connected(self) -> AbstractConnection:
        if self._connection is None:
            self._connection = self._client.connection_pool.make_connection()  # type: ignore[no-untyped-call]
            self._connection.retry = Retry(NoBackoff(), 0)
            await connect(self._connection)
        return self._connection

    @property
    def answer(self) -> str:
        """The Sentinel and what it said, for people."""
        settings = self._client.connection_pool.connection_kwargs
        said = "" if self.error is None else in_words(self.error)
        return f"{settings['host']}:{settings['port']}: {said or 'no answer in time'}"
