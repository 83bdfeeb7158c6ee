"""Names of locks, and patterns of names, that a user typed."""

import re
from collections.abc import Callable, Iterable
from contextlib import suppress

from aiolock._cli.failure import refused_as_usage
from aiolock._keys import LockKeys
from aiolock._types import text

_PART = re.compile(
    rb"\\(?P<escaped>.)|\[(?P<negated>\^?)(?P<some>(?:\\.|[^]\\])*)\]?|(?P<wild>[*?])|(?P<plain>.)", re.DOTALL
)
_OF_SOME = re.compile(rb"\\(?P<escaped>.)|(?P<first>.)-(?P<last>.)|(?P<plain>.)", re.DOTALL)


def checked(name: str) -> str:
    """*name*, if it can be the name of a lock."""
    with refused_as_usage():
        LockKeys.of(text(name, "name"), "")
    return name


def checked_pattern(pattern: str) -> str:
    """*pattern*, if Redis accepts it."""
    with refused_as_usage():
        return text(pattern, "pattern")


def keys_of(make: Callable[[str, str], LockKeys], names: Iterable[str]) -> list[LockKeys]:
    """The keys of each of *names* that a lock can have; some keys look like a lock's without having a valid name."""
    every: list[LockKeys] = []
    for name in names:
        with suppress(ValueError):
            every.append(make(name, ""))
    return every


def matching(pattern: str) -> "re.Pattern[bytes]":
    """An expression that matches the same names as *pattern* does in Redis, which compares bytes."""
    return re.compile(b"".join(map(_expression, _PART.finditer(pattern.encode()))), re.DOTALL)


def _expression(part: "re.Match[bytes]") -> bytes:
    if part["wild"]:
        return b".*" if part["wild"] == b"*" else b"."
    if part["some"] is None:
        return re.escape(part["escaped"] or part["plain"])
    among = b"".join(map(_among, _OF_SOME.finditer(part["some"])))
    if not among:
        return b"." if part["negated"] else b"(?!)"
    return b"[" + part["negated"] + among + b"]"


def _among(each: "re.Match[bytes]") -> bytes:
    if each["first"] is None:
        return re.escape(each["escaped"] or each["plain"])
    return b"-".join(map(re.escape, sorted((each["first"], each["last"]))))
