"""Each page of the site has a Markdown twin, which says what the page says; llms.txt lists them."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from publishing.twins import DOCS, first_sentence, twin, write

PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


def described(name: str, hidden: set[str]) -> str:
    return f"### `{name}` without {sorted(hidden)}\n"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    write(folder, described)
    return folder


def links(text: str) -> Iterator[str]:
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)):
        if not re.match(r"#|https?:|mailto:", target):
            yield target.partition("#")[0]


@pytest.mark.parametrize("page", PAGES)
def test_a_twin_has_nothing_that_only_tests_and_programs_read(site: Path, page: str) -> None:
    text = (site / page).read_text("utf-8")
    assert text.startswith("# ")
    assert re.findall(r"^(?::::|<!--|--8<--|---$).*", text, re.MULTILINE) == []


@pytest.mark.parametrize("page", PAGES)
def test_links_between_twins_lead_to_twins_and_files_of_the_site(site: Path, page: str) -> None:
    for target in links((site / page).read_text("utf-8")):
        place = ((site / page).parent / target).resolve().relative_to(site.resolve())
        assert (site / place if place.suffix == ".md" else DOCS / place).exists(), target


def test_the_list_has_every_page_once(site: Path) -> None:
    text = (site / "llms.txt").read_text("utf-8")
    assert sorted(links(text)) == PAGES
    assert text.startswith("# aiolock\n\n> ")
    assert len(re.findall(r"^- .+: \w", text, re.MULTILINE)) > len(PAGES) * 0.8


def test_files_and_names_are_shown_and_hidden_members_are_not() -> None:
    shown = twin('# T\n\n::: aiolock.Lease\n    options:\n      filters: ["!^_", "!^core$"]\n\nAfter.\n', described)
    assert shown == "# T\n\n### `aiolock.Lease` without ['core']\n\nAfter.\n"
    assert "\nlocal " in twin('```lua\n--8<-- "aiolock/_scripts/lock/acquire.lua"\n```\n', described)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("# T\n\n| a | b |\n\nA lock that [others](x.md) may\nwait for. More.\n", ": A lock that others may wait for."),
        ("# T\n\n[How to use it](x.md).\n", ""),
        ("# T\n\n## Section\n\nThis is not what it begins with.\n", ""),
    ],
)
def test_the_list_has_the_first_sentence_of_a_page(text: str, sentence: str) -> None:
    assert first_sentence(text) == sentence
