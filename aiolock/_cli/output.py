"""The output for the user: two streams, of which the first may fail, and the abilities of a terminal."""

import json
import os
import shutil
import sys
from operator import methodcaller
from typing import TextIO

_MOST_SHOWN = 256


class OutputError(Exception):
    """The output cannot be written, and later output is dropped."""


class ReaderGoneError(OutputError):
    """The reader of the output is gone, like `head` when it has read enough."""


def tell(words: str) -> None:
    """Tell the user something, on standard error."""
    write_error(f"aiolock: {printable(words)}")


def write_error(text: str) -> None:
    """Write *text* and a line end on standard error; if nobody can read it, the exit code still says what happened."""
    try:
        print(text, file=sys.stderr)
    except OSError:
        _drop(sys.stderr)


def write_question(text: str) -> None:
    """Write *text* on standard error, at once and without a line end; a question that nobody can read is an error."""
    try:
        print(text, end="", file=sys.stderr, flush=True)
    except OSError as error:
        _drop(sys.stderr)
        raise OutputError(error.strerror) from error


def write_json(data: object) -> None:
    """Write *data* as one JSON object; each object in it has an `as_dict`."""
    write(json.dumps(data, default=methodcaller("as_dict")))


def write(text: str) -> None:
    """Write *text* and a line end, at once."""
    try:
        print(text, flush=True)
    except OSError as error:
        raise _given_up(error) from error


def flush() -> None:
    """Write out the text that others have printed."""
    try:
        sys.stdout.flush()
    except OSError as error:
        raise _given_up(error) from error


def _given_up(error: OSError) -> OutputError:
    _drop(sys.stdout)
    kind = ReaderGoneError if isinstance(error, BrokenPipeError) else OutputError
    return kind(error.strerror)


def _drop(stream: TextIO) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    # At exit the interpreter writes the rest, and must not fail again.
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


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
