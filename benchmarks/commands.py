"""The commands of a critical section of several libraries, as they leave for the server: no library runs here.

The commands of Redisson are written in our own words in `redisson/lua/`, with the same keys and arguments as its own.
"""

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from redis.asyncio import Redis

from benchmarks.by_hand import LEASE, TodayByHand, load

Command = tuple[Any, ...]

_LUA = Path(__file__).parent / "redisson" / "lua"
_OWNER = "71b96ce8-0000-4000-8000-000000000001:1"
# Milliseconds for which Redisson remembers a release; and, below, for which its fair lock remembers a waiter.
_LATCH = 18_000
_WAIT = 300_000


class Section(ABC):
    """The commands that enter and leave a section under one name, made for each time."""

    def __init__(self, name: str) -> None:
        self.name = name

    @classmethod
    async def load(cls, redis: Redis) -> None:
        """Make the server know the scripts."""
        return

    def prepare(self) -> Sequence[Command]:
        """The commands before the first section."""
        return ()

    @abstractmethod
    def enter(self) -> Sequence[Command]:
        """The commands to enter."""

    @abstractmethod
    def leave(self) -> Sequence[Command]:
        """The commands to leave."""


class OurLock(Section):
    """The scripts of aiolock's lock."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._calls = TodayByHand(name)

    @classmethod
    async def load(cls, redis: Redis) -> None:
        await load(redis)

    def enter(self) -> Sequence[Command]:
        return (("EVALSHA", *self._calls.acquire()),)

    def leave(self) -> Sequence[Command]:
        return (("EVALSHA", *self._calls.release()),)


class _Scripts(Section):
    """A section with a script for each half, and the commands that go with it."""

    sources: ClassVar[tuple[str, str]]
    _shas: ClassVar[tuple[str, str]] = ("", "")

    @classmethod
    async def load(cls, redis: Redis) -> None:
        first, second = [str(await redis.script_load(source)) for source in cls.sources]
        cls._shas = (first, second)

    def _first(self, keys: Sequence[str], *arguments: object) -> Command:
        return ("EVALSHA", self._shas[0], len(keys), *keys, *arguments)

    def _second(self, keys: Sequence[str], *arguments: object) -> Command:
        return ("EVALSHA", self._shas[1], len(keys), *keys, *arguments)


class Empty(_Scripts):
    """Two scripts that do nothing."""

    sources = ("return 1", "return 1")

    def enter(self) -> Sequence[Command]:
        return (self._first((self.name,)),)

    def leave(self) -> Sequence[Command]:
        return (self._second((self.name,)),)


class RedisPyLock(_Scripts):
    """`redis.lock.Lock`: a key that is set if it is not there, and a script that deletes it."""

    sources = (
        "return 1",
        """local token = redis.call('get', KEYS[1])
        if not token or token ~= ARGV[1] then return 0 end
        redis.call('del', KEYS[1])
        return 1""",
    )

    def enter(self) -> Sequence[Command]:
        return (("SET", self.name, _OWNER, "PX", LEASE, "NX"),)

    def leave(self) -> Sequence[Command]:
        return (self._second((self.name,), _OWNER),)


def _lua(*names: str) -> tuple[str, str]:
    first, second = ((_LUA / f"{name}.lua").read_text("utf-8") for name in names)
    return first, second


class RedissonLock(_Scripts):
    """`RLock`."""

    sources = _lua("lock_acquire", "lock_release")

    def enter(self) -> Sequence[Command]:
        return (self._first((self.name,), LEASE, _OWNER),)

    def leave(self) -> Sequence[Command]:
        latch = self._latch()
        keys = (self.name, f"redisson_lock__channel:{{{self.name}}}", latch)
        return (self._second(keys, "0", LEASE, _OWNER, "PUBLISH", _LATCH), ("DEL", latch))

    def _latch(self) -> str:
        """The key by which a repeated release is known; the client deletes it when it has the answer."""
        return f"redisson_unlock_latch:{{{self.name}}}:{uuid.uuid4().hex}"


class RedissonFair(RedissonLock):
    """`getFairLock`."""

    sources = _lua("fair_acquire", "fair_release")

    def enter(self) -> Sequence[Command]:
        return (self._first(self._keys(), LEASE, _OWNER, _WAIT, _now()),)

    def leave(self) -> Sequence[Command]:
        latch = self._latch()
        keys = (*self._keys(), f"redisson_lock__channel:{{{self.name}}}", latch)
        return (self._second(keys, "0", LEASE, _OWNER, _now(), "PUBLISH", _LATCH), ("DEL", latch))

    def _keys(self) -> tuple[str, ...]:
        return (self.name, f"redisson_lock_queue:{{{self.name}}}", f"redisson_lock_timeout:{{{self.name}}}")


class RedissonRead(RedissonLock):
    """`RReadWriteLock.readLock`."""

    sources = _lua("read_acquire", "read_release")

    def enter(self) -> Sequence[Command]:
        return (self._first((self.name, self._holds()), LEASE, _OWNER, f"{_OWNER}:write"),)

    def leave(self) -> Sequence[Command]:
        latch = self._latch()
        keys = (self.name, f"redisson_rwlock:{{{self.name}}}", self._holds(), f"{{{self.name}}}", latch)
        return (self._second(keys, "0", _OWNER, "PUBLISH", _LATCH), ("DEL", latch))

    def _holds(self) -> str:
        return f"{{{self.name}}}:{_OWNER}:rwlock_timeout"


class RedissonWrite(RedissonLock):
    """`RReadWriteLock.writeLock`."""

    sources = _lua("write_acquire", "write_release")

    def enter(self) -> Sequence[Command]:
        return (self._first((self.name,), LEASE, f"{_OWNER}:write"),)

    def leave(self) -> Sequence[Command]:
        latch = self._latch()
        keys = (self.name, f"redisson_rwlock:{{{self.name}}}", latch)
        return (self._second(keys, "1", LEASE, f"{_OWNER}:write", "PUBLISH", _LATCH), ("DEL", latch))


class RedissonSemaphore(_Scripts):
    """`RSemaphore` of one permit."""

    sources = _lua("semaphore_acquire", "semaphore_release")

    def prepare(self) -> Sequence[Command]:
        return (("SET", self.name, 1),)

    def enter(self) -> Sequence[Command]:
        return (self._first((self.name,), 1),)

    def leave(self) -> Sequence[Command]:
        return (self._second((self.name, f"redisson_sc:{{{self.name}}}"), 1, "PUBLISH"),)


class RedissonPermit(RedissonSemaphore):
    """`RPermitExpirableSemaphore` of one permit."""

    sources = _lua("permit_acquire", "permit_release")
    _id = b""

    def enter(self) -> Sequence[Command]:
        self._id, now = uuid.uuid4().bytes, _now()
        keys = (self.name, f"{{{self.name}}}:timeout", f"redisson_sc:{{{self.name}}}")
        return (self._first(keys, 1, now + LEASE, now, "922337203685477", "PUBLISH", self._id),)

    def leave(self) -> Sequence[Command]:
        keys = (self.name, f"redisson_sc:{{{self.name}}}", f"{{{self.name}}}:timeout")
        return (self._second(keys, self._id, 1, _now(), "PUBLISH"),)


class RedissonLatch(_Scripts):
    """`RCountDownLatch`: a count of one is set, and counted down."""

    sources = _lua("latch_set", "latch_count_down")

    def enter(self) -> Sequence[Command]:
        return (self._first(self._keys(), "1", 1, "PUBLISH"),)

    def leave(self) -> Sequence[Command]:
        return (self._second(self._keys(), "0", "PUBLISH"),)

    def _keys(self) -> tuple[str, ...]:
        return (self.name, f"redisson_countdownlatch__channel__{{{self.name}}}")


async def send(redis: Redis, commands: Sequence[Command]) -> list[Any]:
    """Send the commands together; returns the replies."""
    pipeline = redis.pipeline(transaction=False)
    for command in commands:
        _ = pipeline.execute_command(*command)
    return list(await pipeline.execute())


def _now() -> int:
    return int(time.time() * 1000)


SECTIONS: Mapping[str, type[Section]] = {
    "lock-commands": OurLock,
    "empty-scripts": Empty,
    "redis-py-commands": RedisPyLock,
    "redisson-lock": RedissonLock,
    "redisson-fair": RedissonFair,
    "redisson-read": RedissonRead,
    "redisson-write": RedissonWrite,
    "redisson-semaphore": RedissonSemaphore,
    "redisson-permit": RedissonPermit,
    "redisson-latch": RedissonLatch,
}
