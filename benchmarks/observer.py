"""What the server says of the commands and connections of a run; asked over a connection of its own."""

from redis.asyncio import Redis

# Commands that clients send and that no script of any peer calls: the server counts what scripts call, too.
SENT = frozenset({"eval", "evalsha", "fcall", "set", "subscribe", "unsubscribe", "blpop", "lpush", "rpush"})
# What the observer itself sends, and what clients say when they connect.
_OWN = ("info", "hello", "client", "config", "flushall", "command", "script", "select", "auth")


class Observer:
    """Asks the server; every answer is a count since the server was last emptied."""

    def __init__(self, url: str) -> None:
        self._redis = Redis.from_url(url, single_connection_client=True)

    async def prepare(self) -> None:
        """Empty the server and its counters."""
        await self._redis.flushall()
        await self._redis.config_resetstat()

    async def sent(self) -> int:
        """Commands that clients have sent."""
        return sum(calls for name, calls in (await self._calls()).items() if name in SENT)

    async def executed(self) -> int:
        """Commands that were executed for whatever reason, ours left out."""
        return sum(calls for name, calls in (await self._calls()).items() if name.split("|")[0] not in _OWN)

    async def connections(self) -> int:
        """Connections that are open, ours left out."""
        return int((await self._redis.info("clients"))["connected_clients"]) - 1

    async def memory(self) -> int:
        """Bytes that the server uses."""
        return int((await self._redis.info("memory"))["used_memory"])

    async def aclose(self) -> None:
        """Close the connection."""
        await self._redis.aclose()

    async def _calls(self) -> dict[str, int]:
        stats = await self._redis.info("commandstats")
        return {name.removeprefix("cmdstat_"): int(stat["calls"]) for name, stat in stats.items()}
