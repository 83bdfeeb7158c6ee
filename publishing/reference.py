"""The text about a public name, from its source: what the site shows of it, as Markdown."""

import re
import textwrap
from collections.abc import Iterator
from functools import cache

import griffe

from publishing.twins import ROOT

# A parameter that only takes what a call refuses, with an error that names the right word.
_REFUSED = re.compile(r",? ?\*\*unknown: Unpack\[NoMore\]")


def describe_public(name: str, hidden: set[str]) -> str:
    """A name such as ``aiolock.Lease``: its docstring and its public members, but those in *hidden*."""
    found = _package()[name.partition(".")[2]]
    target = found.final_target if isinstance(found, griffe.Alias) else found
    lines = [f"### `{_written(target)}`", "", _documented(target)]
    if isinstance(target, griffe.Class):
        lines += ["", *_members(target, hidden)]
    return "\n".join(lines) + "\n"


@cache
def _package() -> griffe.Module:
    loaded = griffe.load("aiolock", search_paths=[ROOT])
    assert isinstance(loaded, griffe.Module)
    return loaded


def _members(owner: griffe.Class, hidden: set[str]) -> Iterator[str]:
    """Each public member that has a docstring, as an item of a list."""
    for name, member in owner.all_members.items():
        if not name.startswith("_") and name not in hidden and member.docstring is not None:
            yield f"- `{_written(member)}`: {textwrap.indent(_documented(member), '  ').lstrip()}"


def _written(found: griffe.Object | griffe.Alias) -> str:
    """A name, with the signature where users call it."""
    if found.is_function:
        return "await " * ("async" in found.labels) + _REFUSED.sub("", found.signature())
    return str(found.signature()) if found.is_class and "dataclass" in found.labels else str(found.name)


def _documented(found: griffe.Object | griffe.Alias) -> str:
    return str(found.docstring.value).strip() if found.docstring else ""
