"""
Reads README.md, the other pages of the root, docs/, what the examples say about themselves, and the skill for agents.

How an example is run follows from what it looks like:
- a block with ``asyncio.run(`` or ``aiolock.blocking`` is a program: a process of its own, with ``redis://localhost``
  replaced by the server;
- a block with ``def test_`` is a test file: pytest runs it, with the plugin `aiolock.testing`;
- any other block of Python is the body of a coroutine that finds `aiolock`, `asyncio`, `locks` (a LockClient) and
  `redis` (a Redis client) ready, with ``redis://localhost`` replaced by their server.

Hidden comments add what a reader does not need to see:
- ``<!-- given`` code ``-->`` runs before each of the Python blocks that follow it on the page;
- ``<!-- then`` code ``-->`` runs after the block in front of it, and has its names.

Two more, ``<!-- made by`` and ``<!-- made until here -->``, are around what a program writes into a page.

A block of ``output`` is what the Python block in front of it prints.
"""

import re
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[a-z]*)\n(?P<code>.*?)^ *```$", re.MULTILINE | re.DOTALL)
_MADE = re.compile(r"^<!-- made (by `[\w. -]+`|until here) -->$", re.MULTILINE)
_COMMENT = re.compile(r"^<!--(?P<kind> given| then)\n(?P<code>.*?)^-->$", re.MULTILINE | re.DOTALL)


@dataclass
class Code:
    """Lines of code, and where in the page they are."""

    text: str
    line: int


@dataclass
class Block:
    """A fenced block, with the hidden comments that belong to it."""

    page: "Page"
    language: str
    code: Code
    given: tuple[Code, ...] = ()
    then: tuple[Code, ...] = ()
    output: str | None = None

    @property
    def place(self) -> str:
        return f"{self.page.name}:{self.code.line}"

    @property
    def kind(self) -> str:
        if "asyncio.run(" in self.code.text or "aiolock.blocking" in self.code.text:
            return "program"
        return "tests" if re.search(r"^(async )?def test_", self.code.text, re.MULTILINE) else "fragment"


@dataclass
class Page:
    """A Markdown file; *prose* is what is left of it without blocks and comments."""

    path: Path
    text: str = field(repr=False)
    blocks: list[Block] = field(default_factory=list, repr=False)
    prose: str = field(default="", repr=False)

    @property
    def name(self) -> str:
        return self.path.relative_to(ROOT).as_posix()


def read(path: Path) -> Page:
    """Read a page, and pair its blocks with their comments and outputs."""
    text = path.read_text("utf-8")
    page = Page(path, text)
    page.prose = _MADE.sub("", _COMMENT.sub("", _FENCE.sub("", text)))
    given: list[Code] = []
    last: Block | None = None
    for match in sorted((*_FENCE.finditer(text), *_COMMENT.finditer(text)), key=lambda match: match.start()):
        parts = match.groupdict()
        code = Code(textwrap.dedent(parts["code"]), text.count("\n", 0, match.start("code")) + 1)
        if parts.get("kind") == " given":
            given.append(code)
        elif parts.get("kind") == " then":
            assert last is not None, f"{page.name}:{code.line}: `then` without a block in front of it"
            last.then += (code,)
        elif parts["language"] == "output":
            assert last is not None, f"{page.name}:{code.line}: output of what?"
            last.output = code.text
        else:
            block = Block(page, parts["language"], code, tuple(given))
            page.blocks.append(block)
            if block.language == "python":
                last = block
    return page


_PLACES = ("*.md", "docs/**/*.md", "examples/*/README.md", "aiolock/.agents/skills/*/SKILL.md")
PAGES = [read(path) for place in _PLACES for path in sorted(ROOT.glob(place))]
BLOCKS = [block for page in PAGES for block in page.blocks]


def examples(kind: str) -> list[Block]:
    """Every block of Python of that kind."""
    return [block for block in BLOCKS if block.language == "python" and block.kind == kind]
