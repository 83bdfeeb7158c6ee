"""The blocks that a page shows define every name that they use: none comes from a hidden comment alone."""

import builtins
import symtable
import textwrap
from collections.abc import Iterator

import pytest

from tests.docs.pages import PAGES, Block, Page, examples

_SHOWN_IN_FULL = (
    *("docs/how-to/aiohttp.md", "docs/how-to/fastapi.md"),
    *(f"docs/how-to/aiohttp/{name}.md" for name in ("application", "names", "streams", "testing", "threads")),
    *(f"docs/how-to/fastapi/{name}.md" for name in ("application", "names", "streams", "testing", "threads")),
)


def tables_below(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    for child in table.get_children():
        yield child
        yield from tables_below(child)


def names(code: str) -> tuple[set[str], set[str]]:
    """The names that *code* defines, and those that it uses and does not define."""
    # The code becomes the body of a coroutine, so that it may use `await`; its own names are those that are not global.
    source = "async def page():\n" + textwrap.indent(code, "    ")
    tables = list(tables_below(symtable.symtable(source, "page", "exec")))
    defined = {symbol.get_name() for symbol in tables[0].get_symbols() if symbol.is_local()}
    used = {symbol.get_name() for table in tables for symbol in table.get_symbols() if symbol.is_global()}
    return defined, used


def undefined(blocks: list[Block]) -> list[tuple[str, str]]:
    """The names that a block uses and that no block defines so far, with the place of the block."""
    known = set(vars(builtins)) | {"__name__", "__file__"}
    missing = []
    for block in blocks:
        defined, used = names(block.code.text)
        known |= defined
        missing += [(block.place, name) for name in sorted(used - known)]
    return missing


def python(page: Page) -> list[Block]:
    return [block for block in page.blocks if block.language == "python"]


@pytest.mark.parametrize("page", [page for page in PAGES if page.name in _SHOWN_IN_FULL], ids=lambda page: page.name)
def test_a_page_about_a_framework_shows_every_name(page: Page) -> None:
    assert undefined(python(page)) == []


@pytest.mark.parametrize("block", examples("program"), ids=lambda block: block.place)
def test_a_program_shows_every_name(block: Block) -> None:
    """A program is a file of its own, and has no names of the blocks before it."""
    assert undefined([block]) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tests_show_every_name(page: Page) -> None:
    found = dict.fromkeys(place for place, _ in undefined(python(page)))
    assert [block.place for block in python(page) if block.kind == "tests" and block.place in found] == []


def test_names_that_are_looked_for_are_found() -> None:
    code = (
        "import a\nfrom b import c as d\ndef e(f: G = h): return [i for i in (j, a, f)]\nasync with k as l: l(d, m)\n"
    )
    assert names(code) == ({"a", "d", "e", "l"}, {"G", "h", "j", "k", "m"})


def test_every_page_that_is_shown_in_full_exists() -> None:
    assert {page.name for page in PAGES} >= set(_SHOWN_IN_FULL)
