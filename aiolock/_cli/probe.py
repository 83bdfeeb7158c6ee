"""One connection of the command line's own, set up as aiolock does: no retries, RESP2, and a limit for every wait."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Self
from urllib.parse import urlsplit

from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import AuthenticationError, RedisError, ResponseError

from aiolock._cli.advice import REACHING, on_opening, on_refusal
from aiolock._redis.address import place
from aiolock._redis.connector import Connector
from aiolock._redis.hints import underlying

Address = tuple[str, int]

PATIENCE = 3.0


class SilentError(Exception):
    """The server cannot be reached, or stopped answering; *advice* says how to mend it."""

    def __init__(self, found: str, advice: str = REACHING) -> None:
        super().__init__(found)
        self.advice = advice

    @property
    def refused(self) -> bool:
        """Whether the server answered with a refusal."""
        return isinstance(self.__cause__, (AuthenticationError, ResponseError))


class Probe:
    """
    Asks one question after the other, each within `PATIENCE`; a refusal is redis-py's `ResponseError`.

    It begins in database 0, which every server has, whatever database the URL names.
    """

    def __init__(self, redis: "Redis") -> None:
        self._secret: str = redis.connection_pool.connection_kwargs.get("password") or ""
        self._connection: AbstractConnection = Connector.of(redis, None, PATIENCE)()
        self._connection.db = 0

    async def ask(self, *command: str) -> Any:
        """The server's answer to *command*."""
        async with self._bounded():
            await self._connection.send_command(*command)
        return await self.read()

    async def read(self) -> Any:
        """The next reply that the server sends."""
        async with self._bounded():
            return await self._connection.read_response()

    async def accepts(self, *command: str) -> bool:
        """Whether the server has a *command*, and lets us use it."""
        try:
            await self.ask(*command)
        except ResponseError:
            return False
        return True

    async def time(self) -> float:
        """The server's clock, in seconds of the epoch."""
        seconds, microseconds = await self.ask("TIME")
        return int(seconds) + int(microseconds) / 1e6

    async def greet(self) -> None:
        """Check that the server answers PING as Redis does."""
        try:
            greeting = await self.ask("PING")
        except ResponseError as error:
            raise SilentError(f"PING was refused: {error}", on_refusal(error)) from error
        if greeting != b"PONG":
            raise SilentError(f"the server is no Redis: it answered PING with {greeting!r}")

    async def __aenter__(self) -> Self:
        try:
            async with self._bounded(lambda error: on_opening(error, self._connection)):
                await self._connection.connect()  # type: ignore[no-untyped-call]
        except BaseException as error:
            await self.__aexit__()
            if isinstance(error, ResponseError):
                raise SilentError(self._words(error), on_refusal(error)) from error
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        with suppress(RedisError, OSError):
            await self._connection.disconnect(nowait=True)

    @asynccontextmanager
    async def _bounded(self, advice: Callable[[Exception], str] = lambda _: REACHING) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(PATIENCE):
                yield
        except AuthenticationError as error:
            raise SilentError(self._words(error), "Put the right user and password into the URL.") from error
        except ResponseError:
            raise
        except TimeoutError as error:
            raise SilentError(f"no answer within {PATIENCE:g} s", advice(error)) from error
        except (RedisError, OSError) as error:
            raise SilentError(self._words(error), advice(error)) from error

    def _words(self, error: Exception) -> str:
        """The text of *error*, on one line; the password is hidden, which a server that is no Redis may send back."""
        words = " ".join(str(underlying(error)).split()) or type(error).__name__
        return words.replace(self._secret, "***") if self._secret else words


async def hello(probe: Probe) -> dict[str, str]:
    """A few fields of INFO from the server's greeting, which nearly every user is allowed to read."""
    try:
        said = pairs(await probe.ask("HELLO", "2"))
    except ResponseError:
        return {}
    version = f"{said.pop('server', 'redis')}_version"
    names = {"version": version, "mode": "redis_mode", "role": "role"}
    return {names[name]: value for name, value in said.items() if name in names}


def pairs(reply: Sequence[object]) -> dict[str, str]:
    """The names and values of a reply that has them in turn."""
    words = list(map(text_of, reply))
    return dict(zip(words[::2], words[1::2], strict=False))


def text_of(reply: object) -> str:
    """A reply as text."""
    return reply.decode(errors="replace") if isinstance(reply, bytes) else str(reply)


def with_address(url: str, address: Address) -> str:
    """The same *url* for another server."""
    parts = urlsplit(url)
    user, at, _ = parts.netloc.rpartition("@")
    # Only the user of such a URL is of use for another address.
    if parts.scheme == "unix":
        return f"redis://{user}{at}{place(*address)}"
    return parts._replace(netloc=f"{user}{at}{place(*address)}").geturl()


def without_user(url: str) -> str:
    """The same *url* with no user and no password in it."""
    parts = urlsplit(without_settings(url, "username", "password"))
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def without_settings(url: str, *names: str) -> str:
    """The same *url* without the settings of these *names*."""
    front, _, query = url.partition("?")
    kept = "&".join(each for each in query.split("&") if each.split("=")[0] not in names)
    return f"{front}?{kept}" if kept else front
