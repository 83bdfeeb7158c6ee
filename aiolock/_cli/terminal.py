"""The abilities of a terminal, and whether standard output is one."""

import os
import shutil
import sys

_MOST_SHOWN = 256


def printable(text: str) -> str:
    """*text* with replacements for characters that a terminal would not print."""
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)


def short(text: str) -> str:
    """The beginning of *text*, printable. Any client may have written the texts that are read from Redis."""
    return printable(text) if len(text) <= _MOST_SHOWN else printable(text[: _MOST_SHOWN - 1]) + "…"


def width() -> int | None:
    """The number of columns; ``None`` if lines may have any length."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def has_keyboard() -> bool:
    """Whether standard input is a terminal; it may have been closed before the process began."""
    return sys.stdin is not None and sys.stdin.isatty()


def bold(text: str) -> str:
    """*text* in bold, if the terminal can show that and the user wants it."""
    return f"\33[1m{text}\33[0m" if is_colourful() else text


def is_colourful() -> bool:
    """Whether output goes to a terminal that can show colours, and the user wants them."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")
