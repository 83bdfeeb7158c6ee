"""The scripts of aiolock called by hand, for the baselines; the only module that knows their keys and arguments.

The headers of aiolock/_scripts/*.lua are the reference. Nothing else of aiolock is used.
"""

import uuid
from itertools import count
from typing import Any

from redis.asyncio import Redis

from aiolock._scripts import ACQUIRE, RELEASE

GRANTED = 1
LEASE = 30_000  # Milliseconds, these three: the defaults of LockConfig.
_RETENTION = 3_600_000
_MEMORY = 60_000

Arguments = tuple[Any, ...]


async def load(redis: "Redis") -> None:
    """Make the server know both scripts, so that EVALSHA is enough."""
    for script in (ACQUIRE, RELEASE):
        await redis.script_load(script.source)


def channel(name: str) -> str:
    """Where the release is told."""
    return f"redisson_lock__channel:{{{name}}}"


class ByHand:
    """The two calls of a critical section, as the arguments of `Redis.evalsha`."""

    def __init__(self, name: str) -> None:
        self._lock = name
        self._tokens = f"aiolock_token:{{{name}}}"
        self._channel = channel(name)
        self._client = str(uuid.uuid4())
        self._owner = f"{self._client}:1"
        self._ids = count(1)
        self._id = self._forgettable = ""

    def acquire(self) -> Arguments:
        """The first hold of a new acquisition; call it again for a second try of the same with `again`."""
        self._forgettable, self._id = self._id, f"{self._client}:{next(self._ids)}"
        return self.again()

    def again(self) -> Arguments:
        """The acquisition that `acquire` began, once more."""
        arguments = (self._owner, self._id, 1, 1, LEASE, _RETENTION, _MEMORY)
        return (ACQUIRE.sha, 2, self._lock, self._tokens, *arguments)

    def release(self) -> Arguments:
        """The release of that hold, with the message to waiters."""
        how = (_RETENTION, _MEMORY, self._forgettable, self._channel, "PUBLISH")
        arguments = (self._owner, self._id, 2, 0, *how)
        return (RELEASE.sha, 2, self._lock, self._tokens, *arguments)


def check(reply: object, what: str) -> None:
    """The server granted what was asked for, as no other is after that name."""
    if not isinstance(reply, list) or reply[0] != GRANTED:
        raise RuntimeError(f"{what}: the server answered {reply!r}")
