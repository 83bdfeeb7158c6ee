"""The scripts of aiolock's lock called by hand; the only module that knows their keys and arguments.

The baselines send scripts of an earlier aiolock, which the tests keep and which do not change, so that figures of
different days can be compared. Only B16 sends today's scripts; the headers of aiolock/_scripts/*.lua are the reference
for these.
"""

import hashlib
import time
import uuid
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from redis.asyncio import Redis

from aiolock import _scripts
from aiolock._scripts import ACQUIRE

GRANTED = 1
# These three are the defaults of LockConfig, in milliseconds.
LEASE = 30_000
_RETENTION = 3_600_000
_MEMORY = 60_000

# An earlier aiolock has one release, which remembers ids.
_IS_CLEAN = hasattr(_scripts, "RELEASE_CLEAN")
_RELEASE = _scripts.RELEASE_CLEAN if _IS_CLEAN else _scripts.RELEASE

Arguments = tuple[Any, ...]


class Script(Protocol):
    """A script that a server can be sent, and its name there."""

    @property
    def source(self) -> str: ...
    @property
    def sha(self) -> str: ...


class Kept:
    """A script of an earlier aiolock."""

    def __init__(self, name: str) -> None:
        kept = Path(__file__).parents[1] / "tests" / "lua" / "older" / "one"
        self.source: str = (kept / f"{name}.lua").read_text("utf-8")
        self.sha: str = hashlib.sha1(self.source.encode()).hexdigest()


_KEPT_ACQUIRE, _KEPT_RELEASE = Kept("acquire"), Kept("release")


async def load(redis: "Redis") -> None:
    """Make the server know all these scripts, so that EVALSHA is enough."""
    scripts: tuple[Script, ...] = (_KEPT_ACQUIRE, _KEPT_RELEASE, ACQUIRE, _RELEASE)
    for script in scripts:
        await redis.script_load(script.source)


def channel(name: str) -> str:
    """The channel of the release's message."""
    return f"redisson_lock__channel:{{{name}}}"


class ByHand:
    """The two calls of a critical section by the kept scripts, as the arguments of `Redis.evalsha`."""

    _acquire: Script = _KEPT_ACQUIRE
    _release: Script = _KEPT_RELEASE

    def __init__(self, name: str) -> None:
        self._lock = name
        self._tokens = f"aiolock_token:{{{name}}}"
        self._channel = channel(name)
        self._client = str(uuid.uuid4())
        self._owner = f"{self._client}:1"
        self._ids = count(1)
        self._id = self._forgettable = ""

    def acquire(self) -> Arguments:
        """The first hold of a new acquisition; `again` gives a second try of the same acquisition."""
        self._forgettable, self._id = self._id, f"{self._client}:{next(self._ids)}"
        return self.again()

    def again(self) -> Arguments:
        """The acquisition that `acquire` began, once more."""
        arguments = (self._owner, self._id, 1, 1, LEASE, _RETENTION, _MEMORY)
        return (self._acquire.sha, 2, self._lock, self._tokens, *arguments)

    def release(self) -> Arguments:
        """The release of that hold, with the message to waiters."""
        how = (_RETENTION, _MEMORY, self._forgettable, self._channel, "PUBLISH")
        arguments = (self._owner, self._id, 2, 0, *how)
        return (self._release.sha, 2, self._lock, self._tokens, *arguments)


class TodayByHand(ByHand):
    """The two calls by today's scripts."""

    _acquire = ACQUIRE
    _release = _RELEASE

    def __init__(self, name: str) -> None:
        super().__init__(name)
        # The number of the next release, in the range of such numbers; no two are equal.
        self._freed = count(time.time_ns() // 64_000_000_000 << 24)

    def release(self) -> Arguments:
        if not _IS_CLEAN:
            return super().release()
        mine = (self._id, next(self._freed), f"freed {self._client}")
        how = (_RETENTION, _MEMORY, self._channel, "PUBLISH")
        return (self._release.sha, 2, self._lock, self._tokens, *mine, *how)


def check(reply: object, what: str) -> None:
    """Raise an error, with the name *what* of the call, unless the server granted it."""
    if not isinstance(reply, list) or reply[0] != GRANTED:
        raise RuntimeError(f"{what}: the server answered {reply!r}")
