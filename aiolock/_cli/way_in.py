"""The way in: a connection to the server at a URL, and the kind of server that answers there."""

from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from aiolock._cli.probe import PATIENCE, Probe, SilentError, hello, without_user
from aiolock._cli.verb import USAGE, VerbError
from aiolock._redis.connector import Connector
from aiolock._types import checked_url


@dataclass(frozen=True, slots=True)
class WayIn:
    """A server that has let us in at *url*, and answers the *probe*; *mode* is the server's word for its kind."""

    url: str
    probe: Probe
    mode: str


def client_of(url: str, **settings: Any) -> Redis:
    """A client for *url*, which does no I/O yet; `VerbError` if redis-py does not accept the URL."""
    try:
        redis = Redis.from_url(checked_url(url), **settings)
        Connector.of(redis, None, PATIENCE)
    except (TypeError, ValueError, RedisError) as error:
        # The text of the error may contain the password.
        raise VerbError(
            "redis-py cannot use this URL. A URL has to begin with redis://, rediss:// or unix://, and to have only "
            "settings that redis-py knows; percent-encode the special characters of a password",
            USAGE,
        ) from error
    return redis


async def entered(stack: AsyncExitStack, url: str, redis: Redis) -> WayIn:
    """The way in with *redis*, made from *url*; a Sentinel that refuses the user of the URL is entered without one."""
    try:
        return await _way_in(stack, url, redis)
    except SilentError as refusal:
        nobody = without_user(url)
        if not refusal.refused or nobody == url:
            raise
        try:
            way = await _way_in(stack, nobody, await stack.enter_async_context(Redis.from_url(nobody)))
        except SilentError:
            raise refusal from None
        if way.mode != "sentinel":
            raise
        return way


async def _way_in(stack: AsyncExitStack, url: str, redis: Redis) -> WayIn:
    probe = await stack.enter_async_context(Probe(redis))
    await probe.greet()
    # A proxy, which stands for one server, may refuse it.
    said = await hello(probe)
    return WayIn(url, probe, said.get("redis_mode", "standalone"))
