"""One primary: many questions go to it in one write, and each costs it almost nothing."""

import re
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, TypeVar

from redis.asyncio import Redis
from redis.exceptions import AskError, MovedError

Question = tuple[str | int | float, ...]

T = TypeVar("T")

_WHOLE = re.compile(rb"-?\d{1,18}")
_GREATEST = 10**18
_GREATEST_TOKEN = 2**53
LONGEST_NUMBER = len(str(-(2**63)))
# The keys of one SCAN, which takes about a millisecond of the server.
_PAGE = 1000


class Node:
    """The primary at *address*; *answered* is called at each of its answers."""

    def __init__(self, address: str, redis: "Redis", *, sharded: bool, answered: Callable[[], None]) -> None:
        self._answered = answered
        self.address = address
        self._redis = redis
        self.publish: str = "SPUBLISH" if sharded else "PUBLISH"
        self._subscribers = "PUBSUB SHARDNUMSUB" if sharded else "PUBSUB NUMSUB"

    async def ask(self, questions: Sequence[Question]) -> list[Any]:
        """The answers, in order; ``None`` for a key that has another type now, or is on another server."""
        if not questions:
            return []
        async with self._redis.pipeline(transaction=False) as pipe:
            for question in questions:
                pipe.execute_command(*question)
            answers = await pipe.execute(raise_on_error=False)
        self._answered()
        for answer in answers:
            if isinstance(answer, Exception) and not _is_of_its_key(answer):
                raise answer
        return [None if isinstance(answer, Exception) else answer for answer in answers]

    async def ask_of(self, each: Iterable[T], about: Callable[[T], Sequence[Question]]) -> list[tuple[T, list[Any]]]:
        """Each one, with the answers to the questions *about* it; all are sent in one write."""
        groups = [(one, about(one)) for one in each]
        answers = iter(await self.ask([question for _, group in groups for question in group]))
        return [(one, [next(answers) for _ in group]) for one, group in groups]

    async def listening(self, channels: Sequence[str]) -> dict[str, int]:
        """The number of clients that listen on each of *channels*."""
        if not channels:
            return {}
        [answer] = await self.ask([(self._subscribers, *channels)])
        return dict(zip(channels, _numbers(answer), strict=True))

    async def now(self) -> float:
        """The server's clock, in seconds of the epoch."""
        seconds, microseconds = await self._command("TIME")
        return int(seconds) + int(microseconds) / 1e6

    async def run(self, source: str, keys: Sequence[str], arguments: Sequence[str | bytes | int]) -> Any:
        """The answer of a script that may be sent twice."""
        return await self._redis.eval(source, len(keys), *keys, *arguments)

    async def size(self) -> int:
        """The number of keys."""
        return int(await self._command("DBSIZE"))

    async def pages(self, pattern: str, kind: str) -> AsyncIterator[tuple[int, list[str]]]:
        """The keys of that *kind* that match *pattern*, in pages, each with the number of keys that were looked at."""
        cursor, again = 0, True
        while again:
            cursor, keys = await self._command("SCAN", cursor, "MATCH", pattern, "COUNT", _PAGE, "TYPE", kind)
            yield _PAGE, [text for key in keys if (text := decoded(key)) is not None]
            again = bool(cursor)

    async def _command(self, *words: str | int) -> Any:
        answer = await self._redis.execute_command(*words)  # type: ignore[no-untyped-call]
        self._answered()
        return answer


def _is_of_its_key(error: Exception) -> bool:
    """Whether *error* is about one key, which changed its type or moved to another server since it was looked at."""
    return isinstance(error, (MovedError, AskError)) or str(error).startswith("WRONGTYPE")


def decoded(value: bytes) -> str | None:
    """The text; ``None`` for bytes that no client of ours wrote."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def whole(answer: Any) -> int | None:
    """The number in the answer, which is a text or a score; ``None`` for any other value."""
    if isinstance(answer, float):
        return int(answer) if abs(answer) <= _GREATEST else None
    return int(answer) if answer is not None and _WHOLE.fullmatch(answer) else None


def token_of(answer: Any) -> int | None:
    """The fencing token in the answer, read as in `whole`; ``None`` if it is too great to be exact as a score."""
    token = whole(answer)
    return token if token is not None and abs(token) <= _GREATEST_TOKEN else None


def _numbers(answer: Any) -> list[int]:
    """The numbers of listeners; redis-py makes pairs of the answer of one of the two commands."""
    pairs = answer and isinstance(answer[0], (tuple, list))
    return [int(number) for _, number in answer] if pairs else [int(number) for number in answer[1::2]]
