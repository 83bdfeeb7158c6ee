"""The arguments that several verbs have, and the types of arguments."""

import math
import os
import re
from argparse import Action, ArgumentError, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Sequence
from typing import Any

from aiolock._types import LONGEST

DEFAULT_URL = "redis://localhost"
VARIABLE = "REDIS_URL"
# A shorter lease leaves a shell, or a command that is to end, no time.
_LEAST_LEASE = 1.0

ENVIRONMENT = """\
environment:
  REDIS_URL  the server, when no --url is given. A password in --url can be seen in the list of processes; one in
             REDIS_URL cannot
"""


class _One(Action):
    """An option that may be given once: the last of several servers is not a quorum."""

    def __call__(
        self,
        parser: ArgumentParser,
        namespace: Namespace,
        values: str | Sequence[Any] | None,
        option: str | None = None,
    ) -> None:
        if getattr(namespace, self.dest) is not None:
            raise ArgumentError(self, "give one server; locks of a quorum are taken with LockClient.redlock, in Python")
        setattr(namespace, self.dest, values)


def add_server(parser: ArgumentParser, *, as_json: str | None = None) -> None:
    """Add the options for the server, and, if the verb has any output, the one for JSON."""
    what = "a server, a node of a cluster, or a Sentinel: redis://, rediss:// or unix://; by default REDIS_URL, else"
    parser.add_argument("--url", type=not_empty, action=_One, metavar="URL", help=f"{what} {DEFAULT_URL}")
    primary = "which primary, if a Sentinel watches several"
    parser.add_argument("--primary", type=not_empty, metavar="NAME", help=primary)
    if as_json is not None:
        parser.add_argument("--json", action="store_true", help=as_json)


def add_name(parser: ArgumentParser) -> None:
    """Add the argument for the name of a lock."""
    parser.add_argument("name", metavar="NAME", type=not_a_url, help="the name of the lock, its prefix included")


def add_pattern(parser: ArgumentParser, what: str) -> None:
    """Add the argument for the names with which the verb does *what*."""
    pattern = f"which names to {what}: a pattern as KEYS takes it (default: all)"
    parser.add_argument("pattern", metavar="PATTERN", type=not_a_url, nargs="?", default="*", help=pattern)


def add_lease(parser: ArgumentParser, default: float | None, words: str) -> None:
    """Add the option for the time for which a lock stays held."""
    parser.add_argument("--lease", type=seconds(_LEAST_LEASE), default=default, metavar="SECONDS", help=words)


def url_of(parsed: Namespace) -> str:
    """The server that the arguments name, or the usual one."""
    return usual_url() if parsed.url is None else str(parsed.url)


def usual_url() -> str:
    """The server if the arguments name none; an empty variable names none, either."""
    return os.environ.get(VARIABLE) or DEFAULT_URL


NO_URL_HERE = (
    "the URL of a server does not go here: give it in the environment variable REDIS_URL, or as --url URL where the "
    "command has that option"
)


def is_url(text: str) -> bool:
    """Whether *text* is the URL of a server."""
    return re.match("(rediss?|valkeys?|unix)://", text, re.IGNORECASE) is not None


def not_empty(text: str) -> str:
    """The type of an argument that is a text; a shell makes an empty one of a variable that is not set."""
    if not text:
        raise ArgumentTypeError("must not be empty; if it comes from a variable of the shell, set that variable")
    return text


def not_a_url(text: str) -> str:
    """The type of an argument that is a name, a pattern of names, or a ticket."""
    if is_url(text):
        raise ArgumentTypeError(NO_URL_HERE)
    return not_empty(text)


def number(text: str) -> int:
    """The type of an argument that is a whole number, 1 or more."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"needs a whole number, 1 or more, not {text!r}")
    return int(text)


def seconds(least: float, instead: str = "") -> Callable[[str], float]:
    """The type of an argument that is a time in seconds, *least* to `LONGEST`; *instead* ends the text of an error."""

    def checked(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= LONGEST:
            raise ArgumentTypeError(f"needs seconds, {least:g} to {LONGEST:.0e}, not {text!r}{instead}")
        return value

    return checked
