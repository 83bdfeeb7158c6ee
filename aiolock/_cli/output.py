"""Standard output of the command line: its reader may be gone, or its disk full."""

import os
import sys


class OutputError(Exception):
    """Nothing more can be written, which is no longer tried."""


class ReaderGoneError(OutputError):
    """Whoever read the output has gone, as `head` does when it has seen enough."""


def write(text: str) -> None:
    """Write *text* and a line end, at once."""
    try:
        print(text, flush=True)
    except OSError as error:
        raise _given_up(error) from error


def flush() -> None:
    """See that what others have printed is written."""
    try:
        sys.stdout.flush()
    except OSError as error:
        raise _given_up(error) from error


def _given_up(error: OSError) -> OutputError:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())  # The interpreter writes what is left when it ends, and must not fail again.
    os.close(nowhere)
    kind = ReaderGoneError if isinstance(error, BrokenPipeError) else OutputError
    return kind(error.strerror)
