"""The locks in a table that stays in place on a terminal, drawn by rich."""

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import Sequence
from contextlib import suppress
from itertools import zip_longest
from math import isinf
from typing import Any, Self

from rich.console import Console, Group, JustifyMethod
from rich.live import Live
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from aiolock._cli.locks.model import Hold, Lock
from aiolock._cli.locks.words import HEADINGS, MOST_OF_A_LOCK, row_width, rows, widths
from aiolock._cli.output import has_keyboard, printable
from aiolock._cli.screen.plain import Frame, Screen, silent

# The keys q, Ctrl-C and Ctrl-D.
_ENDS = b"qQ\3\4"
# Signals that end or stop the process; the terminal is given back before.
_TAKE_US_AWAY = (signal.SIGTERM, signal.SIGTSTP)
_BAR = 10
# Shares of a lease: with renewals in time, two thirds are always left.
_LATE, _CLOSE = 0.5, 0.65
_LONG = 60.0
_AROUND = 5
# The bar has no heading.
_HEADINGS = (*HEADINGS[:-1], "", HEADINGS[-1])
_KIND, _HOLDER, _HELD, _WAITING = 1, 2, 3, 6
_TO_THE_RIGHT = (3, 4, 6)
# The order in which a narrow terminal drops columns.
_DISPENSABLE = (5, 1, 3, 4)
# Names and holders keep the first width while columns can be dropped, and then the second.
_COMFORTABLE, _LEAST = 16, 7
_NARROW = 60


class LiveScreen(Screen):
    """A table that stays in place, as high as the terminal."""

    def __init__(self, console: Console | None = None) -> None:
        super().__init__()
        self._console = console or Console(highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, screen=True)
        self._leases = Leases()
        self._key = asyncio.Event()
        self._before: Any = None
        self._drawn = self._last

    def __enter__(self) -> Self:
        self._take_terminal()
        return self

    def __exit__(self, *_: object) -> None:
        self._give_terminal_back()

    def _take_terminal(self) -> None:
        loop = asyncio.get_running_loop()
        # The size of the terminal has changed.
        loop.add_signal_handler(signal.SIGWINCH, lambda: self.draw(self._drawn))
        for number in _TAKE_US_AWAY:
            loop.add_signal_handler(number, self._go, number)
        if has_keyboard():
            self._before = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin)
            loop.add_reader(sys.stdin.fileno(), self._read)
        self._live.start()
        self.draw(self._drawn)

    def _give_terminal_back(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGWINCH, *_TAKE_US_AWAY):
            loop.remove_signal_handler(number)
        self._live.stop()
        if self._before is not None:
            loop.remove_reader(sys.stdin.fileno())
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)

    def show(self, frame: Frame) -> None:
        self._leases.see(frame.locks)
        super().show(frame)

    def show_silence(self, seconds: float) -> None:
        self.draw(silent(self._last, seconds))

    def draw(self, frame: Frame) -> None:
        self._drawn = frame
        self._live.update(self.picture(frame), refresh=True)

    def _go(self, number: int) -> None:
        """Do what the signal does by default, with the terminal as it was before; go on after a stop."""
        self._give_terminal_back()
        os.kill(os.getpid(), number)
        self._take_terminal()

    async def left_within(self, seconds: float) -> bool:
        """Wait until the next look, or until the user presses a key that ends it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._key.wait()
        return self.left

    def _read(self) -> None:
        keys = os.read(sys.stdin.fileno(), 64)
        if not keys or any(key in _ENDS for key in keys):
            self.left = True
            self._key.set()

    def picture(self, frame: Frame) -> Group:
        """The locks that there is room for, and the lines around them."""
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
        head = _head(frame, narrow=self._console.width < _NARROW)
        return Group(head, Rule(style="blue"), self._table(shown), below)

    def _table(self, locks: list[Lock]) -> Table:
        every = [row for lock in locks for row in self._rows(lock)]
        table = Table(box=None, pad_edge=False, header_style="bold")
        columns = _columns([_HEADINGS, *([cell.plain for cell in row] for row in every)], self._console.width)
        for at, width in columns.items():
            justify: JustifyMethod = "right" if at in _TO_THE_RIGHT else "left"
            table.add_column(
                _HEADINGS[at], no_wrap=True, width=width, justify=justify, style="dim" if at == _KIND else ""
            )
        for row in every:
            table.add_row(*(row[at] for at in columns))
        return table

    def _rows(self, lock: Lock) -> list[list[Text]]:
        """The rows of a list, in colours, with a bar for each hold."""
        return [self._coloured(lock, *each) for each in zip_longest(rows(lock), lock.holds[:MOST_OF_A_LOCK])]

    def _coloured(self, lock: Lock, row: Sequence[str], hold: Hold | None) -> list[Text]:
        name, kind, holder, held, left, waits = row
        cells = [
            Text(name, style="bold yellow" if lock.waiting else "bold"),
            Text(kind),
            Text(holder, style="dim" if hold is None else ""),
            *(Text(), Text(), Text()),
            Text(waits, style="yellow" if lock.waiting else "dim"),
        ]
        if hold is not None:
            share = self._leases.share(lock, hold)
            age = Text(held, style="bold" if (hold.age or 0) >= _LONG else "")
            cells[_HELD:_WAITING] = age, Text(left, style="red" if share < _LATE else ""), _bar(share)
        return cells


def _bar(share: float) -> Text:
    full = round(share * _BAR)
    style = "red" if share < _LATE else "yellow" if share < _CLOSE else "green"
    return Text.assemble(("━" * full, style), ("━" * (_BAR - full), "grey23"))


def _columns(cells: Sequence[Sequence[str]], width: int) -> dict[int, int]:
    """The columns of *cells* that are shown on a terminal of that *width*, with the width of each."""
    shown, each = _fitted(cells, width, _DISPENSABLE, _LEAST)
    for some in range(len(_DISPENSABLE) + 1):
        fitted = _fitted(cells, width, _DISPENSABLE[:some], _COMFORTABLE)
        if row_width(fitted[1]) <= width:
            shown, each = fitted
            break
    columns = dict(zip(shown, each, strict=True))
    columns[_HOLDER] += max(0, width - row_width(each))
    return columns


def _fitted(
    cells: Sequence[Sequence[str]], width: int, without: Sequence[int], least: int
) -> tuple[list[int], list[int]]:
    shown = [at for at in range(len(_HEADINGS)) if at not in without]
    return shown, widths([[row[at] for at in shown] for row in cells], width, (0, shown.index(_HOLDER)), least)


def _head(frame: Frame, *, narrow: bool) -> Group:
    title = Text.assemble(("aiolock top  ", "bold blue"), (frame.server, "dim"))
    style, took = ("bold", f"look took {frame.took * 1000:.0f} ms") if frame.error is None else ("bold red", "")
    summary = Text(printable(frame.summary), style=style)
    if narrow:
        return Group(_line(title, frame.at), _line(summary, ""))
    return Group(_line(title, f"{frame.at}  q ends"), _line(summary, took))


def _line(text: Text, beside: str) -> Table:
    line = Table.grid(expand=True)
    line.add_column(ratio=1, no_wrap=True)
    line.add_column(justify="right", no_wrap=True)
    line.add_row(text, Text(beside, style="dim"))
    return line


class Leases:
    """The length of each hold's lease, as far as it was seen: the most time that it ever had left."""

    def __init__(self) -> None:
        self._most: dict[tuple[str, str, int | None], float] = {}

    def see(self, locks: Sequence[Lock]) -> None:
        """Update the leases of these locks, and forget all others."""
        seen = [(_key(lock, hold), hold.left) for lock in locks for hold in lock.holds]
        self._most = {key: max(left, self._most.get(key, 0.0)) for key, left in seen}

    def share(self, lock: Lock, hold: Hold) -> float:
        """The share of the lease that is left."""
        most = self._most.get(_key(lock, hold), 0.0)
        if isinf(hold.left):
            return 1.0
        return hold.left / most if most > 0 else 0.0


def _key(lock: Lock, hold: Hold) -> tuple[str, str, int | None]:
    return lock.name, hold.owner_id, hold.token
