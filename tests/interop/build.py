"""Builds the Java service with Maven: once for each version of Redisson, at the first request."""

import fcntl
import shutil
import subprocess
from pathlib import Path

_HOME = Path(__file__).parent / "redisson"
_BUILT = Path(__file__).parents[2] / "build/interop"


def missing() -> str | None:
    """The program that the machine lacks, if any."""
    return next((f"no {tool} on the path" for tool in ("java", "mvn") if shutil.which(tool) is None), None)


def build(version: str) -> str:
    """Build the service with that version of Redisson unless it is built already; return its class path."""
    target = _BUILT / version
    _BUILT.mkdir(parents=True, exist_ok=True)
    with (_BUILT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _current(target):
            _run_maven(version, target)
    return f"{target / 'classes'}:{target / 'dependency'}/*"


def _current(target: Path) -> bool:
    # Maven makes the jar last.
    jars = list(target.glob("*.jar"))
    sources = (_HOME / "pom.xml", *(_HOME / "src").rglob("*.java"))
    return bool(jars) and jars[0].stat().st_mtime > max(path.stat().st_mtime for path in sources)


def _run_maven(version: str, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    command = ["mvn", "--batch-mode", "--quiet", "--file", str(_HOME / "pom.xml")]
    command += [f"-Dredisson.version={version}", f"-Ddirectory={target}", "package"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"mvn failed for Redisson {version}:\n{done.stdout}{done.stderr}")
