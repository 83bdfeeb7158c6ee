"""All Redis work goes through public names of redis.asyncio: the tests look at the syntax trees of the package."""

import ast
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
import redis

from tests.support.trees import PACKAGE, trees

# Functions that take the name of an attribute as a string.
BY_NAME = {"getattr", "setattr", "delattr", "hasattr", "attrgetter", "methodcaller"}
# Private names of the standard library that are documented there.
DOCUMENTED = {"_getframe", "_replace"}
# A private name of FastAPI whose presence is checked: without it, `aiolock.fastapi` refuses to be imported.
CHECKED = {"_get_scope_effective_route_context"}
# With these names we would take a transport over, or parse a reply; but `Protocol` is also a name of typing's.
REFUSED = {"set_protocol", "BufferedProtocol", "Protocol", "Reader", "DefaultParser"}
ALLOWED = {("typing", "Protocol")}

Named = tuple[int, str, str]


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def attributes(tree: ast.AST) -> Iterator[ast.Attribute]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Attribute))


def imported(tree: ast.AST) -> Iterator[tuple[ast.ImportFrom | ast.Import, list[str]]]:
    """Every import from outside of the package, as the parts of its path."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name.split(".")) for alias in node.names if not alias.name.startswith("aiolock"))
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and not (node.module or "").startswith("aiolock"):
            yield from ((node, [*(node.module or "").split("."), alias.name]) for alias in node.names)


def asked_by_name(tree: ast.AST) -> Iterator[Named]:
    """The names that `getattr` and similar functions are given, and those of `attrgetter` and similar ones."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in BY_NAME:
            for each in node.args:
                if isinstance(each, ast.Constant) and isinstance(each.value, str):
                    yield from ((node.lineno, part, ast.unparse(node)) for part in each.value.split("."))


def is_of_self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


def defined(tree: ast.AST) -> set[str]:
    """Every name that *tree* defines: functions, classes, variables and attributes."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_of_self(node):
            names.add(node.attr)
    return names


def ours() -> set[str]:
    """Every name that is ours to use."""
    return set().union(*map(defined, trees().values())) | DOCUMENTED


@pytest.fixture(scope="module")
def theirs() -> set[str]:
    """Every attribute that redis-py speaks of."""
    package = Path(redis.__file__).parent
    sources = [*package.glob("asyncio/*.py"), package / "retry.py"]
    return {node.attr for source in sources for node in attributes(ast.parse(source.read_text()))}


def places(found: Callable[[ast.AST], Iterable[Named]], refused: Callable[[str], bool]) -> list[str]:
    """Where a module names what is *refused*."""
    return [
        f"{path.relative_to(PACKAGE)}:{line}: {source}"
        for path, tree in trees().items()
        for line, name, source in found(tree)
        if refused(name)
    ]


def test_no_private_name_is_used_but_our_own(theirs: set[str]) -> None:
    names = ours()
    used = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}: {ast.unparse(node)}"
        for path, tree in trees().items()
        for node in attributes(tree)
        if is_private(node.attr) and (node.attr not in names or (node.attr in theirs and not is_of_self(node)))
    ]
    assert used == []


def test_no_private_name_is_imported() -> None:
    def found(tree: ast.AST) -> Iterator[Named]:
        return ((node.lineno, part, ast.unparse(node)) for node, parts in imported(tree) for part in parts)

    assert places(found, is_private) == []


def test_no_private_name_is_asked_for_as_a_string() -> None:
    assert places(asked_by_name, lambda name: is_private(name) and name not in CHECKED) == []


def test_no_transport_is_taken_over_and_no_reply_is_parsed() -> None:
    def found(tree: ast.AST) -> Iterator[Named]:
        yield from ((node.lineno, node.attr, ast.unparse(node)) for node in attributes(tree))
        yield from asked_by_name(tree)
        for node, parts in imported(tree):
            if tuple(parts) not in ALLOWED:
                yield node.lineno, parts[-1], ast.unparse(node)

    assert places(found, REFUSED.__contains__) == []


def test_of_hiredis_only_the_packing_is_used() -> None:
    used = {
        node.attr
        for tree in trees().values()
        for node in attributes(tree)
        if isinstance(node.value, ast.Name) and node.value.id == "hiredis"
    }
    imported = {
        name.name
        for tree in trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "hiredis"
        for name in node.names
    }
    assert used | imported == {"pack_command"}
