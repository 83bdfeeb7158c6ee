"""The page of versions and the modules call the same names public."""

import importlib
import re
from collections import defaultdict

from tests.docs.pages import ROOT, read
from tests.support.trees import PACKAGE


def promised() -> dict[str, list[str]]:
    """The names of each module that stands in the table."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    prose = read(ROOT / "docs/reference/versions.md").prose
    for module, names in re.findall(r"^\| `(aiolock[\w.]*)`[^|]* \| ([^|]+) \|$", prose, re.MULTILINE):
        found[module] += re.findall(r"`(\w+)`", names)
    return found


def test_every_public_module_is_promised() -> None:
    modules = {path.stem for path in PACKAGE.glob("*.py") if not path.stem.startswith("_")}
    assert promised().keys() == {"aiolock", *(f"aiolock.{name}" for name in modules)}


def test_the_names_that_are_promised_are_those_of_all() -> None:
    public = {module: sorted(importlib.import_module(module).__all__) for module in promised()}
    assert {module: sorted(names) for module, names in promised().items()} == public
