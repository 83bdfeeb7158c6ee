"""The syntax trees of the package."""

import ast
from functools import cache
from pathlib import Path

import aiolock
from tests.support.uncollected import uncollected

PACKAGE = Path(aiolock.__file__).parent


@cache
def trees() -> dict[Path, ast.Module]:
    """
    The tree of each module, parsed when a test first needs it, which most processes that import the tests never do.

    CPython 3.11 sometimes fails to parse if garbage is collected meanwhile.
    """
    with uncollected():
        return {path: ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}
