"""Makes the `LockClient` of a web service from a URL or a client of redis.asyncio."""

from collections.abc import Callable
from functools import partial
from typing import Any

from aiolock import LockClient, LockConfig


def maker_of(redis: Any, config: LockConfig | None, example: str) -> Callable[[], LockClient]:
    """The function that makes the client; `TypeError`, with the *example*, if *redis* is or makes a `LockClient`."""
    if callable(redis) or isinstance(redis, LockClient):
        raise TypeError(f"{example} makes the LockClient itself: give it a URL, or a client of redis.asyncio")
    if isinstance(redis, str):
        return partial(LockClient.from_url, redis, config=config)
    return partial(LockClient, redis, config=config)
