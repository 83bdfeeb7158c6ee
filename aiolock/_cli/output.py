"""The two outputs of the command line; standard output fails if its reader is gone or its disk is full."""

import json
import os
import sys
from typing import Any

from aiolock._cli.terminal import printable


class OutputError(Exception):
    """The output cannot be written, and later output is dropped."""


class ReaderGoneError(OutputError):
    """The reader of the output is gone, like `head` when it has read enough."""


def tell(words: str) -> None:
    """Tell the user something, on standard error."""
    print(f"aiolock: {printable(words)}", file=sys.stderr)


def write_json(data: object) -> None:
    """Write *data* as one JSON object; each object in it that has fields says them by its `as_dict`."""
    write(json.dumps(data, default=_fields))


def _fields(each: Any) -> object:
    return each.as_dict()


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
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())  # At exit the interpreter writes the rest, and must not fail again.
    os.close(nowhere)
    kind = ReaderGoneError if isinstance(error, BrokenPipeError) else OutputError
    return kind(error.strerror)
