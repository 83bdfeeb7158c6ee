"""The code of a page of docs/how-to, unchanged, for processes that run it."""

from tests.docs.pages import ROOT, read


def recipe(page: str, containing: str, url: str) -> str:
    """The one block of *page* that has *containing*, with *url* for its server."""
    blocks = [block.code.text for block in read(ROOT / "docs/how-to" / page).blocks if block.language == "python"]
    (found,) = [text for text in blocks if containing in text]
    return found.replace("redis://localhost", url)
