"""`run`: look again and again, until somebody has seen enough."""

import argparse
import asyncio
import signal
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import datetime
from time import monotonic

from aiolock._cli import options
from aiolock._cli.exit_codes import UNREACHABLE, VerbError
from aiolock._cli.failure import told_in_words
from aiolock._cli.locks.names import checked_pattern
from aiolock._cli.locks.reader import Reader
from aiolock._cli.servers import Servers, connected
from aiolock._cli.top.frame import Frame, ordered
from aiolock._cli.top.screen import choose

_SHARE = 10  # A look may take a tenth of the time: where it takes long, the next one comes later.


def run(parsed: argparse.Namespace) -> int:
    """Watch; the exit code."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell that starts us in the background has it ignored.
    _ = checked_pattern(parsed.pattern)
    try:
        with told_in_words():
            return asyncio.run(_watch(parsed))
    except KeyboardInterrupt:
        return 0  # It is how one leaves.


async def _watch(parsed: argparse.Namespace) -> int:
    shown = 0
    async with aclosing(_frames(parsed)) as frames:
        with choose(parsed) as screen:
            async for frame in frames:
                screen.show(frame)
                shown += 1
                if parsed.count is not None and shown >= parsed.count:
                    return 0 if frame.error is None else UNREACHABLE
                if await screen.left_within(max(parsed.interval, _SHARE * frame.took)):
                    break
    return 0


async def _frames(parsed: argparse.Namespace) -> AsyncGenerator[Frame, None]:
    """One look after the other; a server that is gone is looked for again, once there was one."""
    server = ""
    while True:
        try:
            with told_in_words():
                async with connected(options.url_of(parsed), parsed.primary) as servers:
                    server = ", ".join(servers.primaries)
                    while True:
                        yield await _look(parsed, servers, server)
        except VerbError as error:
            if not server:
                raise
            yield Frame(_now(), server, error=str(error))


async def _look(parsed: argparse.Namespace, servers: Servers, server: str) -> Frame:
    began = monotonic()
    locks = ordered(await Reader(servers).locks(parsed.pattern), parsed.sort)
    return Frame(_now(), server, locks, monotonic() - began)


def _now() -> str:
    return f"{datetime.now().astimezone():%H:%M:%S}"
