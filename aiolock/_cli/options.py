"""What all verbs have in common that talk to a server."""

import argparse
import math
import os

DEFAULT_URL = "redis://localhost"

ENVIRONMENT = """\
environment:
  REDIS_URL  the server, when no --url is given: a password there does not show up in the list of processes

"""


def add_server(parser: argparse.ArgumentParser, *, as_json: str | None = None) -> None:
    """Which server to talk to; and, where there is any output, what its JSON is."""
    what = (
        "the server, any node of a cluster, or a Sentinel: redis://, rediss:// or unix://; by default REDIS_URL, else"
    )
    parser.add_argument("--url", metavar="URL", help=f"{what} {DEFAULT_URL}")
    parser.add_argument("--primary", metavar="NAME", help="which primary, where a Sentinel watches several")
    if as_json is not None:
        parser.add_argument("--json", action="store_true", help=as_json)


def url_of(parsed: argparse.Namespace) -> str:
    """The server that was named."""
    return parsed.url or usual_url()


def usual_url() -> str:
    """The server, when none was named."""
    return os.environ.get("REDIS_URL") or DEFAULT_URL


def number(text: str) -> int:
    """The type of an argument that is a whole number, 1 or more."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"1 or more, not {text!r}")
    return value


def seconds(least: float) -> "_Seconds":
    """The type of an argument that is a number of seconds, *least* or more."""
    return _Seconds(least)


class _Seconds:
    def __init__(self, least: float) -> None:
        self._least = least

    def __call__(self, text: str) -> float:
        value = float(text)
        if not math.isfinite(value) or value < self._least:
            raise argparse.ArgumentTypeError(f"{self._least:g} seconds or more, not {text!r}")
        return value

    def __repr__(self) -> str:
        return "number of seconds"  # What argparse says that a text is none of.
