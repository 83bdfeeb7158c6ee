"""Locks as text for people: short, aligned, and without control characters for the terminal."""

import unicodedata
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from math import isinf

from aiolock._cli import output
from aiolock._cli.locks.hashes import REDISSON
from aiolock._cli.locks.model import Hold, Lock
from aiolock._cli.output import short

# Each unit of a long duration, with the next smaller one, and the seconds of both.
_UNITS = (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1))
_FRACTION_BELOW = 10
_SHORT_ID = 8
_GAP = 2
MOST_OF_A_LOCK = 5

HEADINGS = ("NAME", "KIND", "HOLDER", "HELD", "LEFT", "WAITING")
# The columns of names and of holders.
_MAY_SHRINK = (0, 2)
_LEAST = 8


def duration(seconds: float | None) -> str:
    """A duration in at most two units; a dash if it is not known."""
    if seconds is None:
        return "-"
    if isinf(seconds):
        return "for ever"
    if seconds < _FRACTION_BELOW:
        return f"{max(0.0, seconds):.1f} s"
    whole = round(seconds)
    for unit, size, smaller, size_of_smaller in _UNITS:
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // size_of_smaller:02} {smaller}"
    return f"{whole} s"


def who(hold: Hold) -> str:
    """The holder: its host and process, and its owner within the client."""
    if hold.library == REDISSON:
        return short(f"Redisson {hold.client[:_SHORT_ID]} thread {hold.owner}") if hold.client else "Redisson"
    owner = "kept after its release" if hold.kept else hold.owner if hold.named else f"task {hold.owner}"
    owner = f"detached by {owner}" if hold.detached else owner
    identity = hold.identity
    if identity.host is None:
        return short(f"client {hold.client[:_SHORT_ID]}, {owner}")
    called = f" ({short(identity.client_name)})" if identity.client_name else ""
    return f"{short(identity.host)} pid {identity.pid}{called}, {short(owner)}"


def how(hold: Hold) -> str:
    """The holder, with its mode and its number of holds."""
    mode = {"read": "reads: ", "write": "writes: "}.get(hold.mode or "", "")
    return f"{mode}{who(hold)}{f' x{hold.holds}' if hold.holds > 1 else ''}"


def waiting(lock: Lock) -> str:
    """The number of waiters, as far as it is known."""
    if lock.line:
        return f"{lock.waiting} in line"
    if not lock.waiting:
        return "-"
    return f"{lock.waiting} client{'s' if lock.waiting > 1 else ''}"


def rows(lock: Lock) -> list[tuple[str, ...]]:
    """A lock in a list: a row for each of its holders, up to a limit."""
    shown = lock.holds[:MOST_OF_A_LOCK]
    more = lock.more + len(lock.holds) - len(shown)
    lines = [(how(hold), duration(hold.age), duration(hold.left)) for hold in shown] or [("-", "-", "-")]
    if more:
        lines.append((f"and {more} more", "", ""))
    left = "" if lock.available is None else f", {lock.available} left"
    first = (short(lock.name), f"{lock.kind}{left}")
    return [
        (*(first if at == 0 else ("", "")), *line, waiting(lock) if at == 0 else "") for at, line in enumerate(lines)
    ]


def list_of(locks: Sequence[Lock]) -> str:
    """The *locks* as a table."""
    return table([HEADINGS, *(row for lock in locks for row in rows(lock))])


def table(cells: Sequence[Sequence[str]], may_shrink: Sequence[int] = _MAY_SHRINK) -> str:
    """The rows of *cells* as text for standard output, the first of them, the headings, in bold."""
    heading, *lines = aligned(cells, output.width(), may_shrink)
    return "\n".join([output.bold(heading), *lines])


def widths(
    table: Sequence[Sequence[str]], width: int | None, may_shrink: Sequence[int], least: int = _LEAST
) -> list[int]:
    """
    The width of each column, so that a row has *width* columns of the terminal at most.

    Only the columns in *may_shrink* get narrower, down to *least*: a row may still be wider than *width*.
    """
    each = [max(map(columns_of, column)) for column in zip(*table, strict=True)]
    too_much = 0 if width is None else row_width(each) - width
    while too_much > 0:
        widest = max(may_shrink, key=lambda column: each[column])
        if each[widest] <= least:
            break
        each[widest] -= 1
        too_much -= 1
    return each


def row_width(widths: Sequence[int]) -> int:
    """The width of a row whose columns have these *widths*."""
    return sum(widths) + _GAP * (len(widths) - 1)


def aligned(table: Sequence[Sequence[str]], width: int | None, may_shrink: Sequence[int] = _MAY_SHRINK) -> list[str]:
    """The rows of *table* as lines."""
    columns = widths(table, width, may_shrink)
    gap = " " * _GAP
    return [
        gap.join(_padded(cut(cell, column), column) for cell, column in zip(row, columns, strict=True)).rstrip()
        for row in table
    ]


def cut(text: str, width: int) -> str:
    """*text*, cut to *width* columns of a terminal."""
    if columns_of(text) <= width:
        return text
    ends = [*accumulate(map(_columns_of_one, text))]
    return f"{text[: bisect_right(ends, width - 1)]}…"


def columns_of(text: str) -> int:
    """The number of columns that *text* takes on a terminal."""
    return len(text) if text.isascii() else sum(map(_columns_of_one, text))


def _columns_of_one(each: str) -> int:
    if unicodedata.combining(each):
        return 0
    return 2 if unicodedata.east_asian_width(each) in {"W", "F"} else 1


def _padded(text: str, width: int) -> str:
    return text + " " * (width - columns_of(text))
