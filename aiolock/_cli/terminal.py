"""What standard output is, if it is a terminal."""

import os
import shutil
import sys


def width() -> int | None:
    """How many columns there are; ``None`` where lines may be of any length."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def bold(text: str) -> str:
    """*text* in bold, where that can be shown and is wanted."""
    return f"\33[1m{text}\33[0m" if is_colourful() else text


def is_colourful() -> bool:
    """Whether output goes to a terminal that can do more than lines, and the user wants that."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")
