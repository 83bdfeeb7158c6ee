"""`aiolock top`: looks at the locks again and again, until the user ends it."""

import asyncio
from argparse import ArgumentParser, Namespace
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from time import monotonic

from aiolock._cli import options, output
from aiolock._cli.failure import told_in_words
from aiolock._cli.locks.model import Lock
from aiolock._cli.locks.names import checked_pattern
from aiolock._cli.locks.reader import Reader
from aiolock._cli.screen.plain import ORDERS, Frame, JSONLines, Screen, now, ordered
from aiolock._cli.servers import Servers, connected, finished
from aiolock._cli.verb import UNREACHABLE, VerbError, common

SUMMARY = "watch the locks: who waits, who holds, and for how long"

DESCRIPTION = """\
Shows the locks that are held, again and again, those with the most waiting clients first. Press q or Ctrl-C to end
it.

The bar shows how much of a lease is left. A lease that is renewed in time stays above two thirds; below half the bar
is red. It prints plain lines if the output is no terminal, or the extra "cli" is not installed. It asks with SCAN,
page by page, and asks less often if the server has many keys.
"""

EPILOG = f"""\
examples:
  aiolock top
  aiolock top 'shop:*' --sort held
  aiolock top --count 1 --plain

{options.ENVIRONMENT}\
  NO_COLOR   plain lines, as --plain
"""

EXIT_CODES = common("2", "69", "141") | {"0": "success, also on q and Ctrl-C"}

_SILENT = 1.0
# Seconds between two reports of the silence, and the longest delay of a key during a look.
_TICK = 0.25
_AGAIN = 1.0


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of the verb to *parser*."""
    options.add_pattern(parser, "show")
    parser.add_argument("--sort", choices=ORDERS, default="waiting", help="which locks come first (default: waiting)")
    interval = "time from one look to the next (default: 2)"
    parser.add_argument("--interval", type=options.seconds(0.1), default=2.0, metavar="SECONDS", help=interval)
    parser.add_argument("--count", type=options.number, metavar="N", help="end after N looks")
    parser.add_argument("--plain", action="store_true", help="plain lines, also on a terminal")
    options.add_server(parser, as_json="one JSON object a line for each look")


def run(parsed: Namespace) -> int:
    """Run the verb; returns the exit code."""
    _ = checked_pattern(parsed.pattern)
    try:
        return finished(watch(parsed))
    except KeyboardInterrupt:
        return 0


async def watch(parsed: Namespace) -> int:
    """Show one look after another; returns the exit code."""
    shown, answers = 0, Answers()
    async with aclosing(_frames(parsed, answers)) as frames:
        with _screen(parsed) as screen:
            while (frame := await _next(frames, screen, answers)) is not None:
                screen.show(frame)
                shown += 1
                if parsed.count is not None and shown >= parsed.count:
                    return 0 if frame.error is None else UNREACHABLE
                if await screen.left_within(_pause(frame, parsed.interval)):
                    break
    return 0


def _pause(frame: Frame, interval: float) -> float:
    """The pause after *frame*: for at least half of the time no question is asked."""
    return max(interval, frame.took) if frame.error is None else min(interval, _AGAIN)


@dataclass(slots=True)
class Answers:
    """The time of the server's last answer, while a question is open."""

    last: float = field(default_factory=monotonic)
    longest: float = 0.0
    """The longest silence of this look, if there was one."""

    def heard(self) -> None:
        """Note an answer, or that the first question of a look is about to be asked."""
        if (silence := self.silence()) >= _SILENT:
            self.longest = max(self.longest, silence)
        self.last = monotonic()

    def silence(self) -> float:
        """The seconds since the last answer."""
        return monotonic() - self.last


async def _next(frames: AsyncGenerator[Frame, None], screen: Screen, answers: Answers) -> Frame | None:
    """The next frame, ``None`` if the user leaves before; *screen* shows a silence of the server meanwhile."""
    look = asyncio.ensure_future(anext(frames))
    try:
        while not look.done():
            _ = await asyncio.wait([look], timeout=_TICK)
            if screen.left:
                return None
            if not look.done() and answers.silence() >= _SILENT:
                screen.show_silence(answers.silence())
        return look.result()
    finally:
        look.cancel()
        await asyncio.gather(look, return_exceptions=True)


async def _frames(parsed: Namespace, answers: Answers) -> AsyncGenerator[Frame, None]:
    """One look after another; after the first success, a server that is gone is tried again and again."""
    server, locks = "", list[Lock]()
    while True:
        try:
            with told_in_words():
                async with connected(options.url_of(parsed), parsed.primary) as servers:
                    while True:
                        frame = await _look(parsed, servers, answers)
                        server, locks = frame.server, [*frame.locks]
                        yield frame
        except VerbError as error:
            if not server:
                raise
            yield Frame(now(), server, locks, error=str(error))


async def _look(parsed: Namespace, servers: Servers, answers: Answers) -> Frame:
    began = monotonic()
    answers.heard()
    answers.longest = 0.0
    found = await Reader(servers, answered=answers.heard).locks(parsed.pattern)
    took = monotonic() - began
    return Frame(now(), ", ".join(servers.primaries), ordered(found, parsed.sort), took - answers.longest)


def _screen(parsed: Namespace) -> Screen:
    """The screen that the user asked for, or the plain one if the output cannot show it."""
    if parsed.json:
        return JSONLines()
    if parsed.plain or not output.is_colourful():
        return Screen()
    try:
        from aiolock._cli.screen.live import LiveScreen
    except ImportError:
        return Screen()
    return LiveScreen()
