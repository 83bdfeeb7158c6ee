"""Asks the Sentinels which server is the primary: all of them at once, so that one that is dead costs no time."""

import asyncio
import copy
from collections import Counter
from typing import Any, cast

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import MasterNotFoundError, Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, ResponseError

from aiolock._hints import in_words
from aiolock._link import connect, discard

Address = tuple[str, int]

_GRACE = 0.2  # Seconds from one answer to the next, while no majority has named the same server.
_FINAL = (AuthenticationError, ResponseError)


class Sentinels:
    """
    Tells redis-py's connections where the primary is: what most Sentinels say; if most do not answer, what any says.

    It takes the place of *pool*, which asks one Sentinel after the other, and a dead one again and again: that takes
    longer than a connection may. Here each has *patience* (seconds) to answer.
    """

    is_master = True

    def __init__(self, pool: SentinelConnectionPool, patience: float) -> None:
        self.check_connection: bool = pool.check_connection
        self.service_name: str = pool.service_name
        self._manager: Sentinel = pool.sentinel_manager
        self._patience = patience

    async def get_master_address(self) -> Address:
        """Ask; an error of redis-py tells what each of them said if none names a primary."""
        asked = [_Asked(self._manager, sentinel, self._patience) for sentinel in self._manager.sentinels]
        tasks = {asyncio.create_task(each.ask(self.service_name)) for each in asked}
        try:
            if (address := await self._agreed(asked, tasks)) is not None:
                return address
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        kind = ResponseError if all(isinstance(each.error, _FINAL) for each in asked) else MasterNotFoundError
        answers = "; ".join(each.answer for each in asked)
        raise kind(f"no Sentinel names a primary {self.service_name!r} that is up ({answers})")

    async def _agreed(self, asked: "list[_Asked]", pending: set[asyncio.Task[None]]) -> Address | None:
        named: list[tuple[Address, int]] = []  # And by how many; the most first.
        while pending and not (named and 2 * named[0][1] > len(asked)):
            grace = _GRACE if named else None
            done, pending = await asyncio.wait(pending, timeout=grace, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                break
            named = Counter(each.named for each in asked if each.named is not None).most_common()
        return named[0][0] if named else None


class _Asked:
    """One Sentinel, asked once, on a connection of its own and without redis-py's retries."""

    def __init__(self, manager: Sentinel, sentinel: "Redis", patience: float) -> None:
        # What a Sentinel's answer means is for the user's `Sentinel` to say: a subclass may translate addresses.
        self._manager = copy.copy(manager)
        self._manager.sentinels = [cast("Redis", self)]
        self._sentinel = sentinel
        self._patience = patience
        self.named: Address | None = None
        self.error: Exception | None = None

    async def ask(self, service_name: str) -> None:
        try:
            self.named = await self._manager.discover_master(service_name)
        except Exception as error:
            self.error = self.error or error

    async def sentinel_masters(self) -> Any:
        """What `discover_master` asks of redis-py's client of a Sentinel."""
        connection = self._sentinel.connection_pool.make_connection()  # type: ignore[no-untyped-call]
        connection.retry = Retry(NoBackoff(), 0)
        try:
            async with asyncio.timeout(self._patience):
                await connect(connection)
                await connection.send_command("SENTINEL MASTERS")
                return self._sentinel.response_callbacks["SENTINEL MASTERS"](await connection.read_response())
        except Exception as error:
            self.error = error
            raise
        finally:
            await discard(connection)

    @property
    def answer(self) -> str:
        """The Sentinel and what it said, for people."""
        settings = self._sentinel.connection_pool.connection_kwargs
        said = "" if self.error is None else in_words(self.error)
        return f"{settings['host']}:{settings['port']}: {said or 'no answer in time'}"
