"""requirements.lock has what the tools of a developer need, each with its hashes, and names no place to get it from."""

import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.docs.pages import ROOT

LOCK = (ROOT / "requirements.lock").read_text("utf-8")
PINS = re.compile(r"^(?P<name>[\w.-]+)==(?P<version>[\w.+!]+)(?P<rest>(?:[^\n]*\\\n)*[^\n]*)$", re.MULTILINE)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def wanted(group: list[Any]) -> Iterator[Requirement]:
    for each in group:
        if isinstance(each, str):
            yield Requirement(each)
        else:
            yield from wanted(PROJECT["dependency-groups"][each["include-group"]])


def test_every_requirement_is_pinned_to_versions_that_it_accepts() -> None:
    pinned = defaultdict(set)
    for pin in PINS.finditer(LOCK):
        pinned[canonicalize_name(pin["name"])].add(pin["version"])
    extras = PROJECT["project"]["optional-dependencies"].values()
    groups = [PROJECT["project"]["dependencies"], *extras, PROJECT["dependency-groups"]["dev"]]
    needed = [requirement for group in groups for requirement in wanted(group)]
    assert needed
    missing = [
        str(each)
        for each in needed
        if not (found := pinned[canonicalize_name(each.name)]) or not all(map(each.specifier.contains, found))
    ]
    assert missing == [], "run `make lock`"


def test_every_pin_has_hashes() -> None:
    assert [pin["name"] for pin in PINS.finditer(LOCK) if "--hash=sha256:" not in pin["rest"]] == []


def test_no_place_is_named() -> None:
    assert re.findall(r".*(?:://|--index|--find-links).*", LOCK) == []
