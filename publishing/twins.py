"""
Puts a Markdown twin of each page into a built site, and ``llms.txt``, which lists them: part of `make docs`.

The twin of ``how-to/choose/`` is ``how-to/choose.md``. It is the page as it was written, so links between pages lead to
twins; without what only tests read, and with the text of the files and of the public names that it shows.
"""

import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"

_FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n+", re.DOTALL)
_COMMENT = re.compile(r"^<!--.*?-->\n", re.MULTILINE | re.DOTALL)
_SNIPPET = re.compile(r'^--8<-- "(?P<path>[^"]+)"$', re.MULTILINE)
_NAME = re.compile(r"^::: (?P<name>[\w.]+)\n(?P<options>(?: +.*\n)*)", re.MULTILINE)
_HIDDEN = re.compile(r'"!\^(\w+)\$"')
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
# The words "How to use it" say nothing.
_FEWEST_WORDS = 5

Describe = Callable[[str, set[str]], str]
"""The text about a public name; some members of it are hidden."""


class Listed(NamedTuple):
    """A page in the navigation: the titles above it and its own, and its path in the documentation."""

    titles: tuple[str, ...]
    path: str


def write(site: Path, describe: Describe) -> None:
    """Write the twin of each page into *site*, and the list of all."""
    settings = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]
    twins = {each: twin((DOCS / each.path).read_text("utf-8"), describe) for each in listed(settings["nav"])}
    for page, text in twins.items():
        path = site / page.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    (site / "llms.txt").write_text(summary(settings["site_name"], settings["site_description"], twins), "utf-8")


def listed(nav: list[dict[str, Any]], above: tuple[str, ...] = ()) -> Iterator[Listed]:
    """The pages of the navigation, in its order."""
    for title, content in (item for entry in nav for item in entry.items()):
        if isinstance(content, str):
            yield Listed((*above, title), content)
        else:
            yield from listed(content, (*above, title))


def twin(text: str, describe: Describe) -> str:
    """A page for readers without a browser."""
    text = _COMMENT.sub("", _FRONT_MATTER.sub("", text))
    text = _NAME.sub(lambda shown: describe(shown["name"], set(_HIDDEN.findall(shown["options"]))), text)
    text = _SNIPPET.sub(lambda shown: (ROOT / shown["path"]).read_text("utf-8").rstrip(), text)
    return re.sub(r"\n{3,}", "\n\n", text)


def summary(name: str, description: str, twins: dict[Listed, str]) -> str:
    """What is in ``llms.txt``: the pages by section, each with its first sentence."""
    sections: dict[str, list[str]] = {}
    for page, text in twins.items():
        section, title = (page.titles[0], ": ".join(page.titles[1:])) if page.titles[1:] else ("Pages", page.titles[0])
        sections.setdefault(section, []).append(f"- [{title}]({page.path}){first_sentence(text)}")
    head = f"# {name}\n\n> {description}. Install `aiolock-redis`, import `aiolock`.\n"
    return head + "".join(f"\n## {title}\n\n" + "\n".join(lines) + "\n" for title, lines in sections.items())


def first_sentence(text: str) -> str:
    """What a page says before its first section, behind a colon; nothing where that is too short to say anything."""
    opening = _FENCE.sub("", text).partition("\n## ")[0]
    blocks = [block for block in map(str.strip, opening.split("\n\n")) if block and not re.match(r"[#|>!\-<]", block)]
    prose = _LINK.sub(r"\1", " ".join("".join(blocks[:1]).split()))
    sentence = re.split(r"(?<=[.?!])\s", prose, maxsplit=1)[0].rstrip(":.")
    return f": {sentence}." if len(sentence.split()) >= _FEWEST_WORDS else ""


if __name__ == "__main__":
    from publishing.reference import describe_public

    write(Path(sys.argv[1]), describe_public)
