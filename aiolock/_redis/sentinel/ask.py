"""Asks the Sentinels for the primary: all of them at once, so that a dead one costs no time."""

import asyncio
import copy
from collections import Counter
from collections.abc import Sequence
from operator import attrgetter
from time import monotonic
from typing import Any, cast

from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import MasterNotFoundError, Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, ResponseError

from aiolock._process import Lineage
from aiolock._redis.hints import in_words
from aiolock._redis.raw import connect, discard

Address = tuple[str, int]

# Seconds to wait for the next answer, while no majority has named the same server.
_GRACE = 0.2
# In units of the patience: if a question without an answer took longer, this process was paused.
_PAUSED = 1.5
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
        """The user's clients of the Sentinels, whose settings our connections use."""
        return cast("Sequence[Redis]", self._manager.sentinels)

    def each(self, patience: float) -> "list[OneSentinel]":
        """Every Sentinel, with *patience* (seconds) for an answer."""
        return [OneSentinel(self._manager, self._service_name, client, patience) for client in self.clients]

    async def primary(self) -> Address:
        """
        The primary that a majority of the Sentinels names; without a majority, the primary of the latest failover.

        If no Sentinel names a primary, this raises an error of redis-py with the answer of each Sentinel.
        """
        asked = self.each(self.patience)
        tasks = [asyncio.create_task(each.ask_once()) for each in asked]
        try:
            if (address := await self._agreed(asked, set(tasks))) is not None:
                return address
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        kind = ResponseError if all(isinstance(each.error, _FINAL) for each in asked) else MasterNotFoundError
        answers = "; ".join(each.answer for each in asked)
        raise kind(f"no Sentinel names a primary {self._service_name!r} that is up ({answers})")

    async def _agreed(self, asked: "list[OneSentinel]", pending: set[asyncio.Task[None]]) -> Address | None:
        named: list[OneSentinel] = []
        while pending:
            grace = _GRACE if named else None
            done, pending = await asyncio.wait(pending, timeout=grace, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                break
            named = [each for each in asked if each.named is not None]
            most = Counter(each.named for each in named).most_common(1)
            if most and 2 * most[0][1] > len(asked):
                return most[0][0]
        # A Sentinel that is cut off from the others may name the primary of an earlier failover.
        return max(named, key=attrgetter("epoch")).named if named else None


class Guide:
    """
    Tells one connection of redis-py the address of the primary.

    It replaces a `SentinelConnectionPool`, which asks one Sentinel after the other, and a dead one again and again:
    this takes longer than the time limit of a connection.
    """

    def __init__(self, sentinels: Sentinels) -> None:
        self.check_connection: bool = sentinels.check_connection
        self._sentinels = sentinels
        self.told: Address | None = None
        # The time of the question to the Sentinels.
        self.asked: float = 0.0

    @property
    def is_master(self) -> bool:
        """
        An attribute of the pool: while it is true, redis-py's connection asks for the primary.

        It is false once the address is known: otherwise the connection would close itself if the server reports another
        role, and wait for the other side.
        """
        return self.told is None

    async def get_master_address(self) -> Address:
        """The method of the pool that gives redis-py's connection the address."""
        self.asked = monotonic()
        self.told = await self._sentinels.primary()
        return self.told


class OneSentinel:
    """One Sentinel, which is asked without retries; its connection is kept for the next question."""

    def __init__(self, manager: Sentinel, service_name: str, client: Redis, patience: float) -> None:
        # The user's `Sentinel` interprets the answer: a subclass may translate addresses.
        self._manager = copy.copy(manager)
        self._manager.sentinels = [cast("Redis", self)]
        self._service_name = service_name
        self._client = client
        self._patience = patience
        self._forks = Lineage.forks
        self._connection: AbstractConnection | None = None
        self.named: Address | None = None
        # The number of the failover that made the named server the primary.
        self.epoch: int = 0
        # The time of the last question.
        self.asked: float = 0.0
        self.error: Exception | None = None

    async def ask(self) -> None:
        """Ask for the primary; ask again if this process was paused, because then the Sentinel is not to blame."""
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
        """Ask for the primary, and close the connection."""
        try:
            await self.ask()
        finally:
            await self.hang_up()

    async def hang_up(self, *, last: bool = False) -> None:
        """Close the connection, perhaps as the *last* act of the loop."""
        # In a forked child it is the parent's: closing it would remove it from the selector of both.
        if self._connection is not None and Lineage.forks == self._forks:
            connection, self._connection = self._connection, None
            await discard(connection, last=last)

    async def sentinel_masters(self) -> Any:
        """The method of redis-py's client of a Sentinel that `discover_master` calls."""
        self.error = None
        if Lineage.forks != self._forks:
            raise RuntimeError("forked")
        try:
            connection = await self._connected()
            await connection.send_command("SENTINEL MASTERS")
            reply = await connection.read_response(disconnect_on_error=False)
            primaries = cast("dict[str, Any]", self._client.response_callbacks["SENTINEL MASTERS"](reply))
            self.epoch = int(primaries.get(self._service_name, {}).get("config-epoch", 0))
            return primaries
        except BaseException as error:
            if isinstance(error, Exception):
                self.error = error
            # A late answer would count as the answer to the next question.
            await self.hang_up()
            raise

    async def _connected(self) -> AbstractConnection:
        if self._connection is None:
            self._connection = self._client.connection_pool.make_connection()  # type: ignore[no-untyped-call]
            self._connection.retry = Retry(NoBackoff(), 0)
            await connect(self._connection)
        return self._connection

    @property
    def answer(self) -> str:
        """The Sentinel and its answer, as a text for people."""
        settings = self._client.connection_pool.connection_kwargs
        said = "" if self.error is None else in_words(self.error)
        return f"{settings['host']}:{settings['port']}: {said or 'no answer in time'}"
