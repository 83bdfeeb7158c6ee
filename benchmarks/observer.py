"""The server's counts of the commands and connections of a run, asked over a connection of its own."""

from redis.asyncio import Redis

# Commands that clients send. The server counts what scripts call, too: a peer whose scripts call one of these says so.
SENT = frozenset({"eval", "evalsha", "fcall", "set", "subscribe", "unsubscribe", "blpop", "lpush", "rpush"})
# Commands of the observer itself, and of clients on connecting.
_OWN = ("info", "hello", "client", "config", "flushall", "command", "script", "select", "auth")


class Observer:
    """Asks the server; every answer is a count since the server was last emptied."""

    def __init__(self, url: str, called_by_scripts: frozenset[str] = frozenset()) -> None:
        self._redis = Redis.from_url(url, single_connection_client=True)
        self._sent = SENT - called_by_scripts

    async def prepare(self) -> None:
        """Empty the server and its counters."""
        await self._redis.flushall()
        await self._redis.config_resetstat()

    async def sent(self) -> int:
        """Commands that clients have sent."""
        return sum(calls for name, calls in (await self._calls()).items() if name in self._sent)

    async def executed(self) -> int:
        """Commands that were executed, from clients or scripts, without the observer's own."""
        return sum(calls for name, calls in (await self._calls()).items() if name.split("|")[0] not in _OWN)

    async def connections(self) -> int:
        """Connections that are open, without the observer's own."""
        return int((await self._redis.info("clients"))["connected_clients"]) - 1

    async def memory(self) -> int:
        """Bytes that the server uses."""
        return int((await self._redis.info("memory"))["used_memory"])

    async def processor_time(self) -> float:
        """Seconds for which the server has kept processors busy."""
        spent = await self._redis.info("cpu")
        return float(spent["used_cpu_user"] + spent["used_cpu_sys"])

    async def aclose(self) -> None:
        """Close the connection."""
        await self._redis.aclose()

    async def _calls(self) -> dict[str, int]:
        stats = await self._redis.info("commandstats")
        return {name.removeprefix("cmdstat_"): int(stat["calls"]) for name, stat in stats.items()}
