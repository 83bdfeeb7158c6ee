"""A connection to the proxy in our own hands, and a look at the server behind it."""

import asyncio
import contextlib

from redis.asyncio import Redis

from tests.support.resp import Frames

# Seconds without an answer after which none is expected.
SILENCE = 0.05


class Wire:
    """A connection in our own hands: bytes out, frames in."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer, self.frames, self.ready = reader, writer, Frames(), list[bytes]()

    def send(self, *requests: str) -> None:
        self.writer.write(b"".join(encoded(request) for request in requests))

    async def receive(self) -> bytes:
        while not self.ready:
            self.ready += self.frames.feed(await self.reader.readexactly(1))
        return self.ready.pop(0)

    async def ask(self, request: str) -> bytes:
        self.send(request)
        return await self.receive()

    async def is_silent(self) -> bool:
        try:
            await asyncio.wait_for(self.reader.read(1), SILENCE)
        except TimeoutError:
            return True
        return False

    async def close(self) -> None:
        self.writer.transport.abort()
        with contextlib.suppress(ConnectionResetError):
            await self.writer.wait_closed()


def encoded(request: str) -> bytes:
    words = [word.encode() for word in request.split()]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


async def count(redis: Redis, key: str = "n") -> int:
    return int(await redis.get(key) or 0)


async def is_one(redis: Redis) -> bool:
    return await count(redis) == 1
