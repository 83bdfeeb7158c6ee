"""The state and settings that the server reports, as far as it allows questions."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from aiolock._cli.probe import Probe, hello, pairs, text_of

_SETTINGS = (
    *("maxmemory", "maxmemory-policy", "save", "appendonly", "appendfsync", "min-replicas-to-write"),
    "cluster-require-full-coverage",
)


@dataclass(slots=True)
class Facts:
    """Fields of INFO, settings of CONFIG, and which of the two the server refuses; managed servers often do."""

    info: dict[str, str] = field(default_factory=dict)
    config: dict[str, str] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)

    @property
    def not_known(self) -> str:
        """The reason why something is not known."""
        if not self.refused:
            return "not known: the server does not say"
        return f"not known: the server refuses {' and '.join(self.refused)}"

    def first(self, *names: str) -> str | None:
        """The first of these fields of INFO that is present."""
        return next((self.info[name] for name in names if name in self.info), None)

    @property
    def policy(self) -> str | None:
        """The eviction policy: the server's behaviour when it is out of memory."""
        return self.info.get("maxmemory_policy", self.config.get("maxmemory-policy"))

    @property
    def append_only(self) -> str | None:
        """``yes`` or ``no``: whether writes are kept on disk."""
        return {"1": "yes", "0": "no"}.get(self.info.get("aof_enabled", ""), self.config.get("appendonly"))

    @property
    def mode(self) -> str | None:
        """``standalone``, ``cluster``, ``sentinel``, or the word of another product."""
        return self.first("redis_mode", "server_mode")

    def number(self, name: str) -> int | None:
        """The field *name* of INFO, or else the setting of that name, if it is a number."""
        value = self.info.get(name, self.config.get(name, ""))
        return int(value) if value.isdecimal() else None


@dataclass(frozen=True, slots=True)
class Answering:
    """A server that answers at *url*, with a client for it, a connection for questions, and its report."""

    url: str
    redis: Redis
    probe: Probe
    facts: Facts


@asynccontextmanager
async def answering(url: str) -> AsyncIterator[Answering]:
    """The server at *url*; `SilentError` if it does not answer."""
    async with Redis.from_url(url) as redis, Probe(redis) as probe:
        await probe.greet()
        yield Answering(url, redis, probe, await gather(probe))


async def gather(probe: Probe) -> Facts:
    """Ask for everything that a check needs."""
    facts = Facts()
    try:
        facts.info = fields(await probe.ask("INFO"))
    except ResponseError:
        facts.refused.append("INFO")
        facts.info = await hello(probe)
    try:
        for setting in _SETTINGS:
            facts.config |= pairs(await probe.ask("CONFIG", "GET", setting))
    except ResponseError:
        facts.refused.append("CONFIG")
    return facts


def fields(reply: object) -> dict[str, str]:
    """The lines of INFO, or of a text of the same form."""
    return dict(line.split(":", 1) for line in text_of(reply).splitlines() if ":" in line)
