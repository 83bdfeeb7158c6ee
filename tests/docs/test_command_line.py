"""The page about the command line has every verb, option and exit code that exists, and no other."""

import re
import shlex
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from aiolock import LockClient
from aiolock._cli.main import VERBS
from aiolock._cli.verbs.clients import clients
from aiolock._cli.verbs.completion import SHELLS
from aiolock._cli.verbs.inspect import inspect
from aiolock._cli.verbs.ls import ls
from aiolock._embedded_server import Server
from tests.docs.pages import ROOT
from tests.support.cli import run
from tests.test_cli_completion import actions_of

TEXT_OF_PAGE = (ROOT / "docs/reference/command-line.md").read_text("utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", TEXT_OF_PAGE, re.MULTILINE | re.DOTALL))
[LINE] = re.findall(r"^ACL SETUSER .*$", TEXT_OF_PAGE, re.MULTILINE)


def test_every_verb_is_there_in_the_words_of_the_parser() -> None:
    listed = dict(re.findall(r"^\| \[`([a-z]+)`\]\(#[a-z]+\) \| (.*) \|$", TEXT_OF_PAGE, re.MULTILINE))
    assert listed == {name: verb.SUMMARY for name, verb in VERBS.items()}


@pytest.mark.parametrize("name", VERBS)
def test_the_options_of_a_verb_are_those_of_its_parser(name: str) -> None:
    cells = re.findall(r"^\| (`--.*?) \|", SECTIONS[name], re.MULTILINE)
    shown = {option for cell in cells for option in re.findall(r"`(--[^`]+)`", cell)}
    options = [action for action in actions_of(VERBS[name]) if action.option_strings[-1:] not in ([], ["--help"])]
    assert {each.split()[0] for each in shown} == {action.option_strings[-1] for action in options}
    assert {each.split()[0] for each in shown if " " in each} == {
        action.option_strings[-1] for action in options if action.nargs != 0
    }
    section = SECTIONS[name]
    assert [choice for action in options for choice in action.choices or () if f"`{choice}`" not in section] == []


def test_the_shells_and_the_exit_codes_are_all_there() -> None:
    assert all(f"`{shell}`" in SECTIONS["completion"] for shell in SHELLS)
    shown = re.findall(r"^\| (\d+) \|", SECTIONS["Exit codes"], re.MULTILINE)
    told = {code.split()[0] for verb in VERBS.values() for code in verb.EXIT_CODES} - {"other"}
    assert sorted(shown, key=int) == sorted(told, key=int)


@pytest.fixture
async def watcher(own: Server) -> AsyncIterator[str]:
    async with Redis.from_url(own.url) as admin:
        await admin.execute_command(*shlex.split(LINE))  # type: ignore[no-untyped-call]
        await admin.acl_log_reset()
        yield own.url.replace("//", "//watcher:secret@")
        refused = {entry["object"] for entry in await admin.acl_log()}
        assert not refused


async def test_a_user_with_the_permissions_of_the_page_can_look(own: Server, watcher: str) -> None:
    async with LockClient.from_url(own.url) as locks:
        await locks.lock("orders").acquire()
        await locks.read_write_lock("prices").read.acquire()
        await locks.semaphore("api", 3).acquire()
        await locks.counting_semaphore("seats", 3).acquire()
        for verb, arguments in {ls: ("ls",), inspect: ("inspect", "orders"), clients: ("clients",)}.items():
            assert await run(watcher, verb, *arguments) == 0
        async with locks.once("report", keep=60):
            assert await run(watcher, ls, "ls") == 0
        for name in ("report", "free"):
            assert await run(watcher, inspect, "inspect", name) == 1
