"""An unrelated package called aiolock, installed into the same folder, is refused with a sentence."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.trees import PACKAGE

PUBLIC = sorted(f"aiolock.{path.stem}" for path in PACKAGE.glob("[a-z]*.py"))
IMPORT_EACH = """
import importlib, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ImportError as error:
        print(name, error)
"""


@pytest.mark.slow
@pytest.mark.parametrize("installed_last", ["ours", "theirs"])
def test_each_public_module_names_the_package_that_shares_its_folder(tmp_path: Path, installed_last: str) -> None:
    package = tmp_path / "aiolock"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "redis.py").write_text("class Lock: ...\n")
    if installed_last == "theirs":
        (package / "__init__.py").write_text("")
    modules = [*PUBLIC, "aiolock.__main__"]
    command = [sys.executable, "-c", IMPORT_EACH, *modules]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    said = dict(line.split(" ", 1) for line in ran.stdout.splitlines())
    assert set(said) == set(modules)
    for sentence in said.values():
        assert sentence.startswith(f"{package} has files of two packages")
        assert sentence.endswith("Uninstall both of them, then install aiolock-redis again.")


def test_no_module_of_ours_has_the_name_by_which_the_other_package_is_known() -> None:
    assert not (PACKAGE / "redis.py").exists()
