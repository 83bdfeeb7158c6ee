"""Links lead somewhere, commands exist, tables are complete."""

import re
import subprocess
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

import aiolock
import aiolock.aiohttp
import aiolock.blocking
import aiolock.fastapi
import aiolock.opentelemetry
import aiolock.testing
from aiolock._keys import OWN_KEYS, QUORUM_KEY
from tests.docs.pages import BLOCKS, PAGES, ROOT, Block, Page, read

_LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(?P<title>.+?)(?: +\{#(?P<anchor>[\w-]+)\})?$", re.MULTILINE)
_HEADER = re.compile(r"^\|(?P<cells>.*)\|\n\|[-:| ]+\|$", re.MULTILINE)
_PROMISE = re.compile(r"^\| \[(?P<promise>P\d+)[^\]]*\]\((?P<target>[^)]+)\) \| (?P<tests>[^|]+) \|$", re.MULTILINE)
_TEST = re.compile(r"`(?P<path>tests/[\w/]+\.py)::(?P<name>\w+)`")
_MODULE = re.compile(r"`(?:aiolock/)?(?P<file>_\w+(?:/\w+)*(?:\.py|\.lua|/))`")
_FOREIGN = re.compile(r"\b(install|add|download)\b[^`\n]*?[\s'\"]aiolock(?![-\w/.:])")
# The columns of a block that a page shows without scrolling.
_WIDTH = 88
_PACKAGE = ROOT / "aiolock"
_GUARANTEES = ROOT / "docs/concepts/guarantees.md"
_PROMISES = [f"P{number}" for number in range(1, 12)]


def slug(title: str) -> str:
    """The anchor of a heading, on the site as on GitHub, which agree on titles of words and single spaces."""
    words = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)).lower()
    assert not re.search(r"  |--| -|- ", words), f"GitHub and the site make different anchors of {title!r}"
    return words.strip().replace(" ", "-")


@cache
def anchors(path: Path) -> set[str]:
    page = read(path)
    found = {heading["anchor"] or slug(heading["title"]) for heading in _HEADING.finditer(page.prose)}
    return found | {name for name in re.findall(r"^::: ([\w.]+)$", page.prose, re.MULTILINE)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Page) -> None:
    for link in _LINK.finditer(page.prose):
        target, _, anchor = link["target"].partition("#")
        if target.startswith(("https://", "mailto:")):
            continue
        path = (page.path.parent / target).resolve() if target else page.path
        assert path.exists(), f"{link[0]}: no such file"
        if (ROOT / "docs") in page.path.parents:
            assert (ROOT / "docs") in path.parents, f"{link[0]}: leaves the site"
        if anchor:
            assert anchor in anchors(path), f"{link[0]}: no such anchor"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_headings_of_a_page_are_distinct(page: Page) -> None:
    counted = Counter(slug(heading["title"]) for heading in _HEADING.finditer(page.prose))
    if page.name != "CHANGELOG.md":
        assert [title for title, times in counted.items() if times > 1] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_traps_come_last(page: Page) -> None:
    sections = re.findall(r"^## (.+)$", page.prose, re.MULTILINE)
    assert "Traps" not in sections[:-1]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_hidden_comment_is_understood(page: Page) -> None:
    assert "<!--" not in page.prose


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_column_of_a_table_has_a_title(page: Page) -> None:
    for header in _HEADER.finditer(page.prose):
        assert all(cell.strip() for cell in header["cells"].split("|")), header[0]


def test_every_page_is_in_the_navigation() -> None:
    settings = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))
    listed = re.findall(r"'([\w/-]+\.md)'", repr(settings["project"]["nav"]))
    there = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert sorted(listed) == sorted(there)


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "sh"], ids=lambda block: block.place)
def test_shell_commands_exist(block: Block) -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    for target in re.findall(r"^make (?:-C \S+ )?([a-z]+)", block.code.text, re.MULTILINE):
        assert target in targets
    for script in re.findall(r"\bbash|\bsh\b", block.code.text):
        pytest.fail(f"{script}: scripts are run by nobody here")
    checked = subprocess.run(["sh", "-n"], input=block.code.text, text=True, capture_output=True, check=False)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize(
    "block", [block for block in BLOCKS if block.language in {"python", "sh"}], ids=lambda block: block.place
)
def test_no_line_is_wider_than_the_page(block: Block) -> None:
    assert [line for line in block.code.text.splitlines() if len(line) > _WIDTH] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_make_targets_named_in_a_page_exist(page: Page) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z]+)", page.text)) <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_nobody_is_told_to_install_the_foreign_package(page: Page) -> None:
    assert not _FOREIGN.search(page.text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tests_named_in_a_page_exist(page: Page) -> None:
    for test in _TEST.finditer(page.prose):
        source = (ROOT / test["path"]).read_text("utf-8")
        assert re.search(rf"^(async )?def {test['name']}\(", source, re.MULTILINE), test[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_modules_and_folders_named_in_a_page_exist(page: Page) -> None:
    assert [each["file"] for each in _MODULE.finditer(page.prose) if not (_PACKAGE / each["file"]).exists()] == []


def test_every_promise_is_in_the_table_of_tests() -> None:
    rows = list(_PROMISE.finditer(_GUARANTEES.read_text("utf-8")))
    assert [row["promise"] for row in rows] == _PROMISES
    for row in rows:
        assert row["target"].startswith("#" + row["promise"].lower() + "-"), row[0]


def test_every_promise_names_tests_that_exist() -> None:
    for row in _PROMISE.finditer(_GUARANTEES.read_text("utf-8")):
        named = [ROOT / place for place in re.findall(r"`(tests/[\w/.]+)`", row["tests"])]
        assert named, f"{row['promise']} names no tests"
        for place in named:
            found = [place] if place.is_file() else [*place.rglob("test_*.py")]
            assert any("def test_" in path.read_text("utf-8") for path in found), f"{row['promise']}: none in {place}"


def test_the_readme_is_one_screen_and_installs_in_its_first_third() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    words = len(text.split())
    assert words <= 700
    assert len(text.partition("pip install")[0].split()) < words / 3


def test_every_promise_has_its_section() -> None:
    titles = [heading["title"] for heading in _HEADING.finditer(read(_GUARANTEES).prose)]
    assert [title.split(":")[0] for title in titles if re.match(r"P\d+: ", title)] == _PROMISES


def test_reference_has_every_public_name() -> None:
    pages = [page for page in PAGES if page.name.startswith("docs/reference/")]
    shown = [name for page in pages for name in re.findall(r"^::: aiolock\.(\w+)$", page.prose, re.MULTILINE)]
    assert sorted(shown) == sorted(aiolock.__all__)


def test_tables_of_the_api_have_every_call() -> None:
    """A verb of a primitive stands in the table of its section; classes that are only data have none."""
    page = read(ROOT / "docs/reference/api.md")
    sections = re.split(r"^## ", page.prose, flags=re.MULTILINE)[1:]
    missing = []
    for section in sections:
        rows = " ".join(re.findall(r"`([^`]+)`", "".join(re.findall(r"^\|.*\|$", section, re.MULTILINE))))
        for name in re.findall(r"^::: aiolock\.(\w+)$", section, re.MULTILINE):
            public = [each for each in dir(getattr(aiolock, name)) if not each.startswith("_")] if rows else []
            missing += [f"{name}.{each}" for each in public if not re.search(rf"\b{each}\b", rows)]
    assert missing == []


def test_reference_has_every_public_name_for_frameworks() -> None:
    for module in (aiolock.aiohttp, aiolock.blocking, aiolock.fastapi, aiolock.opentelemetry, aiolock.testing):
        framework = module.__name__.removeprefix("aiolock.")
        page = read(ROOT / f"docs/reference/{framework}.md")
        shown = re.findall(rf"^::: aiolock\.{framework}\.(\w+)$", page.prose, re.MULTILINE)
        assert sorted(shown) == sorted(module.__all__)


def test_pages_that_name_the_beginnings_of_aiolocks_own_keys_name_all() -> None:
    rows = {
        "keys-and-scripts": r"^\| begins with (.+) \| it is aiolock's own \|$",
        "configuration": r"^\| `prefix` \| .* \| does not begin with ([^;]+);",
    }
    for name, row in rows.items():
        found = re.search(row, read(ROOT / f"docs/reference/{name}.md").prose, re.MULTILINE)
        assert found, f"{name}: no such row"
        assert sorted(re.findall(r"`([^`]+)`", found[1])) == sorted(OWN_KEYS), name
    permissions = (ROOT / "docs/deployments/one-server.md").read_text("utf-8")
    assert [key for key in OWN_KEYS if key != QUORUM_KEY and f"~{key}" not in permissions] == []


def test_every_script_of_locks_is_shown_and_shown_by_inclusion() -> None:
    shown = re.findall(r'--8<-- "([\w/]+\.lua)"', (ROOT / "docs/reference/keys-and-scripts.md").read_text("utf-8"))
    assert sorted(shown) == sorted(
        path.relative_to(ROOT).as_posix() for path in (ROOT / "aiolock/_scripts").rglob("*.lua")
    )
    assert all(block.code.text.startswith("--8<--") for block in BLOCKS if block.language == "lua")


def test_search_finds_no_page_of_scripts() -> None:
    """The comments of the scripts have so many words that every search would find them."""
    pages = [page for page in PAGES if any(block.language == "lua" for block in page.blocks)]
    assert pages
    assert [page.name for page in pages if not page.text.startswith("---\nsearch:\n  exclude: true\n---\n")] == []
