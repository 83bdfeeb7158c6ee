"""A server's commands and those of its scripts, by its MONITOR, word for word."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

from redis.asyncio import Redis

from aiolock._embedded_server import Server

_LINE = re.compile(rb'\+[\d.]+ \[[^\]]*\] "(?P<command>\w+)" ?(?P<words>.*)\r\n')


class Record:
    """The commands that a server ran during a block; it is complete when the block is left."""

    def __init__(self) -> None:
        self.commands: list[tuple[bytes, bytes]] = []

    def of(self, *names: bytes) -> set[tuple[bytes, bytes]]:
        """The commands of these names, each with its words, quoted as MONITOR does. Names are in small letters."""
        return {(name, words) for name, words in self.commands if name in names}


@asynccontextmanager
async def recorded(server: Server, redis: Redis) -> AsyncIterator[Record]:
    reader, writer = await asyncio.open_connection(server.host, server.port)
    record, end = Record(), uuid4().hex
    try:
        writer.write(b"MONITOR\r\n")
        assert await reader.readline() == b"+OK\r\n"
        yield record
        await redis.echo(end)
        while end.encode() not in (line := await reader.readline()):
            if (found := _LINE.fullmatch(line)) is not None:
                record.commands.append((found["command"].lower(), found["words"]))
    finally:
        writer.close()
        await writer.wait_closed()
