"""Redisson, the Java library: a small Java program beside this file, built with Maven and driven in lines of JSON."""

import asyncio
import json
import re
import shutil
import subprocess
from asyncio.subprocess import PIPE
from collections.abc import Sequence
from pathlib import Path

from benchmarks.observer import Observer
from benchmarks.run import Outcome, Run

_HOME = Path(__file__).parent
_TARGET = _HOME / "target"
_PROGRAM = "OwnLocks"
PEERS = ("redisson", "redisson-async")
JIT = 4.0
"""Seconds of warm-up, at least, for the compiler of the JVM."""


def build() -> str | None:
    """Build the program if that is not done; returns the reason why it cannot run, or ``None``."""
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            return f"there is no {tool}"
    if _built():
        return None
    command = ["mvn", "--batch-mode", "--quiet", "--file", str(_HOME / "pom.xml"), "package"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"mvn failed: {(done.stdout or done.stderr).strip().splitlines()[:1]}"


def version() -> dict[str, str]:
    """The versions of the program's parts; empty if it cannot run."""
    if not _built():
        return {}
    found = re.search(r"<redisson.version>(.*?)<", (_HOME / "pom.xml").read_text("utf-8"))
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    text = f"redisson {found[1] if found else '?'} on {java.splitlines()[0] if java else '?'}"
    return dict.fromkeys(PEERS, text)


async def run(run: Run, observer: Observer) -> Outcome:
    """Like `own_locks.run`, with threads, or chains of asynchronous calls, for tasks. The loop does not matter."""
    return await on_servers([run.url], run, observer)


async def read(run: Run, observer: Observer) -> Outcome:
    """Like `readers.run`, with the tasks of `run`."""
    return await on_servers([run.url], run, observer, "reading")


async def pass_around(run: Run, observer: Observer) -> Outcome:
    """Like `pass_around.run` with a fair lock, with the tasks of `run`."""
    return await on_servers([run.url], run, observer, "fair")


async def on_servers(urls: Sequence[str], run: Run, observer: Observer, kind: str = "own") -> Outcome:
    """Like `run`, with locks of this *kind*; on several servers each is a `RedissonRedLock`."""
    classes = f"{_TARGET / 'classes'}:{_TARGET / 'dependency'}/*"
    process = await asyncio.create_subprocess_exec("java", "-cp", classes, _PROGRAM, stdin=PIPE, stdout=PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    warm_up = max(JIT, run.warm_up)
    request = {
        "urls": urls,
        "callers": run.number("tasks"),
        "warm_up": warm_up,
        "seconds": run.seconds,
        "asynchronous": run.peer == "redisson-async",
        "kind": kind,
    }
    process.stdin.write(json.dumps(request).encode() + b"\n")
    await process.stdin.drain()
    await asyncio.sleep(warm_up + run.seconds / 2)
    connections = await observer.connections()
    line = await process.stdout.readline()
    process.stdin.close()
    await process.wait()
    if not line:
        return Outcome(problem=f"the Java program ended with status {process.returncode}")
    return _outcome(json.loads(line), connections)


def _outcome(answer: dict[str, float | str], connections: int) -> Outcome:
    sections, seconds = float(answer["sections"]), float(answer["seconds"])
    problem = str(answer["problem"]) or (
        f"{answer['overlaps']} × two holders at a time" if answer["overlaps"] else None
    )
    if not sections:
        return Outcome(problem=problem or "not one section")
    measures = {"sections_per_second": sections / seconds, "seconds_per_section": seconds / sections}
    return Outcome(measures | {"connections": connections}, problem=problem)


def _built() -> bool:
    program = _TARGET / "classes" / f"{_PROGRAM}.class"
    newest = max(path.stat().st_mtime for path in (_HOME / "pom.xml", *(_HOME / "src").rglob("*.java")))
    return program.exists() and program.stat().st_mtime > newest and (_TARGET / "dependency").is_dir()
