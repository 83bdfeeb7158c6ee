"""The machine and the versions that the figures were measured with."""

import os
import platform
from importlib import metadata
from pathlib import Path

_DISTRIBUTIONS = ("redis", "hiredis", "anyio", "uvloop")


def describe() -> dict[str, str]:
    """The facts about the machine, without any that identify it."""
    facts = {
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0))),
        "system": f"{platform.system()} {platform.machine()}",
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
    }
    return facts | {name: _version(name) for name in _DISTRIBUTIONS}


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "not installed"
