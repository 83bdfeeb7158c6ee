"""
Builds the wheel and the sdist into ``dist/``, and checks what a package index and its users will read: `make dist`.

The sdist is unpacked elsewhere and built again, by a process with another umask, time zone and hash seed: both builds
must be the same bytes. ``--release TAG`` also refuses what only a maintainer can fill in, and has not.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from zipfile import ZipFile

from packaging.metadata import Metadata

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
NAME, IMPORT_NAME = "aiolock-redis", "aiolock"
PLACEHOLDER = ".example"
# 1980 is the first year of zip files.
_NO_MOMENT = "315532800"
_SKILL = "aiolock/.agents/skills/aiolock/SKILL.md"


class DistError(Exception):
    """What was built must not be published."""


def main() -> None:
    """Build, check, and print what was built."""
    parser = argparse.ArgumentParser(description="Build the wheel and the sdist twice, and check them.")
    parser.add_argument("--release", metavar="TAG", help="refuse what a release with this tag must not have")
    tag = parser.parse_args().release
    try:
        wheel, sdist = built_twice()
        metadata = checked(wheel, sdist)
        if tag is not None:
            check_release(metadata, tag, (ROOT / "CHANGELOG.md").read_text("utf-8"))
    except DistError as error:
        sys.exit(f"{NAME} cannot be published: {error}")
    for path in (wheel, sdist):
        print(f"{digest(path)}  {path.relative_to(ROOT)}")


def built_twice() -> tuple[Path, Path]:
    """The wheel and the sdist, which a second build made from the sdist equals."""
    environment = os.environ | {"SOURCE_DATE_EPOCH": moment()}
    shutil.rmtree(DIST, ignore_errors=True)
    build(ROOT, DIST, environment, umask=0o022)
    [sdist], [wheel] = DIST.glob("*.tar.gz"), DIST.glob("*.whl")
    with tempfile.TemporaryDirectory() as elsewhere, tarfile.open(sdist) as archive:
        archive.extractall(elsewhere, filter="data")
        [unpacked] = Path(elsewhere).iterdir()
        other = environment | {"TZ": "Pacific/Kiritimati", "LC_ALL": "C", "PYTHONHASHSEED": "1"}
        build(unpacked, Path(elsewhere, "again"), other, umask=0o077)
        for path in (wheel, sdist):
            if digest(path) != digest(Path(elsewhere, "again", path.name)):
                raise DistError(f"two builds of {path.name} differ")
    return wheel, sdist


def moment() -> str:
    """The time that all files of a build have: that of the commit, or what the environment says."""
    return os.environ.get("SOURCE_DATE_EPOCH") or git("log", "-1", "--format=%ct") or _NO_MOMENT


def git(*arguments: str) -> str:
    """The output of git about this repository; nothing for a source tree that is none."""
    command = ["git", "-c", "safe.directory=*", "-C", str(ROOT), *arguments]
    try:
        return subprocess.run(command, check=False, capture_output=True, text=True).stdout.strip()
    except FileNotFoundError:
        return ""


def build(source: Path, destination: Path, environment: dict[str, str], umask: int) -> None:
    """Build the wheel and the sdist of *source*, each from the source itself."""
    command = [
        sys.executable,
        "-m",
        "build",
        "--quiet",
        "--sdist",
        "--wheel",
        "--outdir",
        str(destination),
        str(source),
    ]
    subprocess.run(command, env=environment, umask=umask, check=True, stdout=subprocess.DEVNULL)


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def checked(wheel: Path, sdist: Path) -> Metadata:
    """The metadata of the wheel, when it and the other files say what they must."""
    command = [sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist)]
    if subprocess.run(command, check=False).returncode:
        raise DistError("Twine refuses it")
    with ZipFile(wheel) as archive:
        names = archive.namelist()
        folder = f"{wheel.name.rsplit('-', 3)[0]}.dist-info"
        metadata = Metadata.from_email(archive.read(f"{folder}/METADATA"), validate=True)
        bill = json.loads(archive.read(f"{folder}/sboms/{NAME}.cdx.json"))
    check_contents(names, folder)
    if metadata.import_names != [IMPORT_NAME]:
        raise DistError(f"the wheel names the imports {metadata.import_names}")
    component = bill["metadata"]["component"]
    if (component["name"], component["version"]) != (metadata.name, str(metadata.version)):
        raise DistError(f"its list of components is of {component['name']} {component['version']}")
    return metadata


def check_contents(names: list[str], folder: str) -> None:
    """The wheel has every file of the commit's package, and nothing else."""
    listed = git("ls-files", IMPORT_NAME).splitlines()
    ours = {name for name in names if not name.startswith(f"{folder}/")}
    if listed and (different := ours ^ set(listed)):
        raise DistError(f"the wheel and the commit differ in {sorted(different)}")
    for needed in ("aiolock/py.typed", _SKILL, f"{folder}/licenses/LICENSE"):
        if needed not in names:
            raise DistError(f"the wheel lacks {needed}")


def check_release(metadata: Metadata, tag: str, changelog: str) -> None:
    """Refuse a *tag* that is not the version, a *changelog* without it, and texts that nobody has filled in."""
    version = str(metadata.version)
    unfilled = ", ".join(label for label, url in (metadata.project_urls or {}).items() if PLACEHOLDER in url)
    missing = {
        f"the tag is {tag}, and the version {version}": tag != f"v{version}",
        f"[project.urls] in pyproject.toml still has placeholders: {unfilled}": unfilled,
        f"CHANGELOG.md has no section of {version}": f"\n## [{version}]" not in changelog,
        "README.md says that aiolock is not published yet": "not published yet" in (metadata.description or ""),
    }
    if any(missing.values()):
        raise DistError("; ".join(what for what, is_missing in missing.items() if is_missing))


if __name__ == "__main__":
    main()
