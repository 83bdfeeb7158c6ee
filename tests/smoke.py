"""The features that must work with only the wheel and its `server` extra. Run from outside the source tree."""

import asyncio
import importlib.metadata
import importlib.resources
import json
import re
import subprocess
import sys
from pathlib import Path

import aiolock
from aiolock._embedded_server import Server


def check_files() -> None:
    root = importlib.resources.files("aiolock")
    assert root.joinpath("py.typed").is_file(), "py.typed is missing"
    assert Path(sys.prefix) in Path(aiolock.__file__).parents, f"not the installed package: {aiolock.__file__}"
    scripts = sorted(entry.name for entry in root.joinpath("_scripts", "lock").iterdir())
    assert {"acquire.lua", "release.lua", "renew.lua"} <= set(scripts), f"scripts missing: {scripts}"
    skill = root.joinpath(".agents", "skills", "aiolock", "SKILL.md")
    assert skill.read_text("utf-8").startswith("---\nname: aiolock\n"), "the skill for coding agents is missing"
    assert importlib.metadata.version("aiolock-redis") == aiolock.__version__


def check_description() -> None:
    description = importlib.metadata.metadata("aiolock-redis")["Description"]
    assert "A distributed lock for asyncio" in description, "the wheel does not say what it is"
    relative = re.findall(r"\]\((?!https?:)[^)]+\)", description)
    assert not relative, f"links that lead nowhere on a package index: {relative}"


def check_components() -> None:
    files = importlib.metadata.files("aiolock-redis") or []
    [path] = [path for path in files if path.match("*.dist-info/sboms/*.cdx.json")]
    bill = json.loads(path.read_text("utf-8"))
    assert bill["metadata"]["component"]["version"] == aiolock.__version__
    assert {"anyio", "hiredis", "redis"} <= {each["name"] for each in bill["components"]}


def check_commands(url: str) -> None:
    script = str(Path(sys.executable).with_name("aiolock"))
    for command in ([sys.executable, "-m", "aiolock"], [script]):
        subprocess.run([*command, "--help"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([*command, "doctor", url], check=True, stdout=subprocess.DEVNULL)


async def check_lock(url: str) -> None:
    async with aiolock.LockClient.from_url(url) as locks:
        lock = locks.lock("smoke")
        async with lock as lease:
            assert await lock.held()
            assert lease.token > 0
        assert not await lock.locked()


def main() -> None:
    check_files()
    check_description()
    check_components()
    with Server() as server:
        check_commands(server.url)
        asyncio.run(check_lock(server.url))
    print(f"aiolock {aiolock.__version__} works from {Path(aiolock.__file__).parent}")


if __name__ == "__main__":
    main()
