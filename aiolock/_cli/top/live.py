"""The locks in place, on a terminal, by rich."""

import asyncio
import os
import sys
import termios
import tty
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from aiolock._cli.locks.model import Hold, Lock
from aiolock._cli.locks.words import MOST_OF_A_LOCK, duration, how, printable, waiting
from aiolock._cli.top.frame import Frame, Leases
from aiolock._cli.top.screen import Screen

_ENDS = b"qQ\3\4"  # q, Ctrl-C and Ctrl-D.
_BAR = 10  # Characters.
_LATE, _CLOSE = 0.5, 0.65  # Shares of a lease: what is renewed in time has two thirds.
_LONG = 60.0  # Seconds for which a lock is held before it catches the eye.
_AROUND = 5  # Lines above and below the locks.


class LiveScreen(Screen):
    """A table that stays in place, as high as the terminal."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, screen=True)
        self._leases = Leases()
        self._left: asyncio.Event | None = None
        self._before: Any = None  # How the terminal was.

    def __enter__(self) -> Self:
        if sys.stdin.isatty():
            self._before = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin)
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()
        if self._before is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)

    def show(self, frame: Frame) -> None:
        self._leases.see(frame.locks)
        self._live.update(self.picture(frame), refresh=True)

    async def left_within(self, seconds: float) -> bool:
        """Wait until the next look, or for a key that ends it."""
        if self._before is None:
            return await super().left_within(seconds)
        if self._left is None:
            self._left = asyncio.Event()
            asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self._read, self._left)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._left.wait()
        return self._left.is_set()

    def _read(self, left: asyncio.Event) -> None:
        keys = os.read(sys.stdin.fileno(), 64)
        if not keys or any(key in _ENDS for key in keys):
            left.set()

    def picture(self, frame: Frame) -> Group:
        """The locks, as far as there is room for them, and what there is beside."""
        room = max(1, self._console.height - _AROUND)
        shown: list[Lock] = []
        used = 0
        for lock in frame.locks:
            used += min(max(1, len(lock.holds)), MOST_OF_A_LOCK + 1)
            if used > room and shown:
                break
            shown.append(lock)
        more = len(frame.locks) - len(shown)
        below = Text(f"and {more} more" if more else "", style="dim")
        return Group(_head(frame), Rule(style="blue"), self._table(shown), below)

    def _table(self, locks: list[Lock]) -> Table:
        table = Table(box=None, expand=True, pad_edge=False, header_style="bold")
        table.add_column("NAME", max_width=self._console.width * 2 // 5, no_wrap=True)
        table.add_column("KIND", no_wrap=True, style="dim")
        table.add_column("HOLDER", ratio=1, no_wrap=True)
        table.add_column("HELD", no_wrap=True, justify="right")
        table.add_column("LEFT", no_wrap=True, justify="right")
        table.add_column("", no_wrap=True, width=_BAR)
        table.add_column("WAITING", no_wrap=True, justify="right")
        for lock in locks:
            for row in self._rows(lock):
                table.add_row(*row)
        return table

    def _rows(self, lock: Lock) -> list[list[Text]]:
        left = "" if lock.available is None else f", {lock.available} left"
        name = Text(printable(lock.name), style="bold yellow" if lock.waiting else "bold")
        waits = Text(waiting(lock), style="yellow" if lock.waiting else "dim")
        held = [self._of_a_hold(lock, hold) for hold in lock.holds[:MOST_OF_A_LOCK]] or [
            [Text("-", style="dim"), *_NONE]
        ]
        if more := lock.more + len(lock.holds[MOST_OF_A_LOCK:]):
            held.append([Text(f"and {more} more", style="dim"), *_NONE])
        first = [name, Text(f"{lock.kind}{left}")]
        return [[*(first if at == 0 else _TWO), *row, waits if at == 0 else Text()] for at, row in enumerate(held)]

    def _of_a_hold(self, lock: Lock, hold: Hold) -> list[Text]:
        share = self._leases.share(lock, hold)
        style = "red" if share < _LATE else "yellow" if share < _CLOSE else "green"
        full = round(share * _BAR)
        bar = Text.assemble(("━" * full, style), ("━" * (_BAR - full), "grey23"))
        age = Text(duration(hold.age), style="bold" if (hold.age or 0) >= _LONG else "")
        return [Text(how(hold)), age, Text(duration(hold.left), style="red" if share < _LATE else ""), bar]


_TWO = [Text(), Text()]
_NONE = [Text(), Text(), Text()]


def _head(frame: Frame) -> Table:
    head = Table.grid(expand=True)
    head.add_column(ratio=1, no_wrap=True)
    head.add_column(justify="right", no_wrap=True)
    style = "bold" if frame.error is None else "bold red"
    head.add_row(
        Text.assemble(("aiolock top  ", "bold blue"), (frame.server, "dim")), Text(f"{frame.at}  q ends", "dim")
    )
    head.add_row(Text(frame.summary, style=style), Text(f"look took {frame.took * 1000:.0f} ms", style="dim"))
    return head
