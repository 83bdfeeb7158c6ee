"""A fault, the way it is planted into a copy of the library, and the simulation's search for it."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import aiolock

PACKAGE = Path(aiolock.__file__).parent
TESTS = Path(__file__).parents[2]
# Real seconds for all seeds of one fault, as some faults make the library work without end.
_LONGEST = 600.0


@dataclass(frozen=True)
class Fault:
    """In *file*, *right* is replaced by *wrong*. The *options* are those of the simulation that looks for it."""

    what: str
    file: str
    right: str
    wrong: str
    options: str = ""
    # The reason why the simulation does not find it, if it does not.
    missed: str = ""

    def plant(self, folder: Path) -> None:
        """Copy the library to *folder*, with the fault, and the tests beside it."""
        shutil.copytree(PACKAGE, folder / "aiolock", ignore=shutil.ignore_patterns("__pycache__"))
        path = folder / "aiolock" / self.file
        path.write_text(path.read_text().replace(self.right, self.wrong))
        (folder / "tests").symlink_to(TESTS)


@dataclass(frozen=True)
class Search:
    """The number of *seeds* that were run, and the kinds of violations in the last one: none if nothing was found."""

    seeds: int
    kinds: tuple[str, ...]
    words: str


def look_for(fault: Fault, seeds: int) -> Search:
    """
    Run at most *seeds* seeds on a copy of the library with the *fault*, until one finds something.

    Raises `RuntimeError` if the same seed finds something without the fault.
    """
    options = fault.options.split()
    with TemporaryDirectory() as folder:
        fault.plant(Path(folder))
        search = _simulate(Path(folder), [*options, "--seeds", str(seeds)])
    if search.kinds:
        sound = _simulate(TESTS.parent, [*options, "--seed", str(search.seeds - 1)])
        if sound.kinds:
            raise RuntimeError(f"this is found without the fault, too: {fault.options} {sound.words}")
    return search


def _simulate(folder: Path, options: list[str]) -> Search:
    # Python looks for modules in the folder that it runs in before it looks anywhere else.
    command = [sys.executable, "-m", "tests.simulation", *options, "--stop", "1", "--no-shrink", "--json"]
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONSAFEPATH")}
    run = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=_LONGEST
    )
    if run.returncode not in (0, 1) or not run.stdout:
        raise RuntimeError(f"the simulation failed:\n{run.stderr[-2000:]}")
    *told, last = run.stdout.splitlines()
    tally = json.loads(last)
    return Search(tally["seeds"], tuple(tally["found"]), told[0] if told else "")
