"""Standard output of the command line, which fails if its reader is gone or its disk is full."""

import os
import sys


class OutputError(Exception):
    """The output cannot be written, and later output is dropped."""


class ReaderGoneError(OutputError):
    """The reader of the output is gone, like `head` when it has read enough."""


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
