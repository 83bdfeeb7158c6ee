"""One primary, asked many questions in one write; each costs it next to nothing."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import AskError, MovedError

Question = tuple[str | int | float, ...]

_PAGE = 1000  # Keys that one SCAN looks at: about a millisecond of the server.


class Node:
    """The primary at *address*."""

    def __init__(self, address: str, redis: "Redis", *, sharded: bool) -> None:
        self.address = address
        self._redis = redis
        self.publish: str = "SPUBLISH" if sharded else "PUBLISH"
        self._subscribers = "PUBSUB SHARDNUMSUB" if sharded else "PUBSUB NUMSUB"

    async def ask(self, questions: Sequence[Question]) -> list[Any]:
        """The answers, in order; ``None`` of a key that became something else, or went elsewhere, in the meantime."""
        if not questions:
            return []
        async with self._redis.pipeline(transaction=False) as pipe:
            for question in questions:
                pipe.execute_command(*question)
            answers = await pipe.execute(raise_on_error=False)
        for answer in answers:
            if isinstance(answer, Exception) and not _is_of_its_key(answer):
                raise answer
        return [None if isinstance(answer, Exception) else answer for answer in answers]

    def subscribers(self, channel: str) -> Question:
        """Ask how many clients listen on *channel*; see `number_of`."""
        return (self._subscribers, channel)

    async def now(self) -> float:
        """The server's clock, in seconds of the epoch."""
        seconds, microseconds = await self._command("TIME")
        return int(seconds) + int(microseconds) / 1e6

    async def run(self, source: str, keys: Sequence[str], arguments: Sequence[str | bytes | int]) -> Any:
        """What a script answers, which may be sent twice."""
        return await self._redis.eval(source, len(keys), *keys, *arguments)

    async def size(self) -> int:
        """How many keys there are."""
        return int(await self._command("DBSIZE"))

    async def pages(self, pattern: str, kind: str) -> AsyncIterator[tuple[int, list[str]]]:
        """Keys of that *kind* that match *pattern*, page by page, each with how many keys were looked at."""
        cursor, again = 0, True
        while again:
            cursor, keys = await self._command("SCAN", cursor, "MATCH", pattern, "COUNT", _PAGE, "TYPE", kind)
            yield _PAGE, [text for key in keys if (text := decoded(key)) is not None]
            again = bool(cursor)

    async def _command(self, *words: str | int) -> Any:
        return await self._redis.execute_command(*words)  # type: ignore[no-untyped-call]


def _is_of_its_key(error: Exception) -> bool:
    """It became something else, or its slot another server's, since it was looked at."""
    return isinstance(error, (MovedError, AskError)) or str(error).startswith("WRONGTYPE")


def decoded(value: bytes) -> str | None:
    """The text; ``None`` for what no client of ours wrote."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def number_of(answer: Any) -> int:
    """How many listen, by the answer to `Node.subscribers`."""
    if not answer:
        return 0
    last = answer[-1]
    return int(last[-1] if isinstance(last, (tuple, list)) else last)
