"""`acquire`, `renew`, `adopt` and `release`: a lock in a shell, by tickets."""

import argparse
import asyncio
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from redis.asyncio import Redis

from aiolock import Lease, LockClient, LockConfig
from aiolock._cli.failure import told_in_words
from aiolock._cli.main import main
from aiolock._cli.tickets import VARIABLE, Act, answered, read_ticket
from aiolock._cli.verb import LOST, NOT_GRANTED, UNREACHABLE, USAGE, VerbError
from aiolock._cli.verbs.acquire import acquire
from aiolock._cli.verbs.adopt import adopt
from aiolock._cli.verbs.release import release
from aiolock._cli.verbs.renew import renew
from aiolock._core.ticket import Part, Ticket
from aiolock._embedded_server import Server
from aiolock._keys import OWN_KEYS
from tests.support.cli import parsed
from tests.support.observe import until

ACTS: dict[str, Act] = {"acquire": acquire, "adopt": adopt, "renew": renew, "release": release}


@pytest.fixture(autouse=True)
def no_ticket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


@pytest.fixture(autouse=True)
def interrupts_as_before() -> Iterator[None]:
    """Restore the handling of Ctrl-C: a process that has printed a ticket ignores it, and the tests go on."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


async def run(redis: Redis, *arguments: str) -> int:
    """The exit code of the verb with these arguments, in this process."""
    asked: argparse.Namespace = parsed(*arguments)
    read_ticket(asked)
    with told_in_words():
        return await answered(asked, redis, ACTS[arguments[0]])


class Shell:
    """What the verbs print, read as a shell does."""

    def __init__(self, redis: Redis, capsys: pytest.CaptureFixture[str]) -> None:
        self.redis = redis
        self._capsys = capsys

    async def __call__(self, *arguments: str) -> str:
        assert await run(self.redis, *arguments) == 0
        return self._capsys.readouterr().out.strip()

    async def fails(self, code: int, *arguments: str) -> str:
        with pytest.raises(VerbError) as failed:
            await run(self.redis, *arguments)
        assert failed.value.code == code
        return str(failed.value)


@pytest.fixture
def shell(redis: Redis, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(redis, capsys)


async def test_a_lock_is_taken_renewed_handed_over_and_released(shell: Shell, locks: LockClient) -> None:
    lock = locks.lock("deploy")
    ticket = await shell("acquire", "deploy", "--lease", "20")
    assert "\n" not in ticket
    assert not await lock.try_lock()
    holder = await lock.holder()
    assert holder is not None
    assert (holder.owner, holder.detached) == ("shell", True)
    assert 15 < holder.remaining <= 20
    assert await shell("renew", ticket, "--lease", "600") == ""
    assert 590 < (await lock.remaining() or 0) <= 600
    new = await shell("adopt", ticket, "--lease", "30")
    assert 25 < (await lock.remaining() or 0) <= 30
    assert "no use any more" in await shell.fails(LOST, "release", ticket)
    assert await shell("release", new) == ""
    assert await lock.try_lock()


async def test_a_renewal_and_an_adoption_last_as_long_as_the_ticket_was_made_for(
    shell: Shell, locks: LockClient
) -> None:
    ticket = await (await locks.lock("deploy").acquire()).detach(500)
    new = await shell("adopt", ticket)
    assert 490 < (await locks.lock("deploy").remaining() or 0) <= 500
    await locks.lock("deploy").force_release()
    ticket = await shell("acquire", "deploy", "--lease", "300")
    said = json.loads(await shell("renew", ticket, "--json"))
    assert said["locks"] == ["deploy"]
    assert 290 < said["left"] <= 300
    assert "by force" in await shell.fails(LOST, "renew", new)


async def test_the_ticket_comes_from_an_argument_standard_input_or_the_environment(
    shell: Shell, locks: LockClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticket = await shell("acquire", "deploy")
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{ticket}\n"))
    await shell("renew", "-")
    monkeypatch.setenv(VARIABLE, ticket)
    await shell("release")
    assert not await locks.lock("deploy").locked()
    monkeypatch.delenv(VARIABLE)
    assert VARIABLE in await shell.fails(USAGE, "release")


@pytest.mark.parametrize("verb", ["renew", "adopt", "release"])
async def test_an_empty_ticket_is_not_that_of_the_environment(
    verb: str, shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ticket = await shell("acquire", "deploy")
    monkeypatch.setenv(VARIABLE, ticket)
    with pytest.raises(SystemExit) as ended:
        await run(shell.redis, verb, "")
    assert ended.value.code == USAGE
    assert "argument TICKET: must not be empty" in capsys.readouterr().err
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert "not a ticket" in await shell.fails(USAGE, verb, "-")
    await shell("release", ticket)


async def test_an_empty_variable_has_no_ticket(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "")
    assert "give a ticket" in await shell.fails(USAGE, "release")


async def test_the_verbs_of_a_ticket_print_json(shell: Shell, locks: LockClient) -> None:
    said: dict[str, Any] = json.loads(await shell("acquire", "deploy", "--lease", "20", "--json"))
    holder = await locks.lock("deploy").holder()
    assert holder is not None
    assert said["lease"] == 20
    new = json.loads(await shell("adopt", said["ticket"], "--json"))
    assert new["tokens"]["deploy"] > said["tokens"]["deploy"]
    assert json.loads(await shell("release", new["ticket"], "--json")) == {"locks": ["deploy"]}


@pytest.mark.parametrize("kind", ["fair", "semaphore"])
async def test_a_fair_lock_and_permits_have_tickets_too(shell: Shell, kind: str) -> None:
    how = ("deploy", "--kind", kind, *(("--permits", "1") if kind == "semaphore" else ()))
    ticket = await shell("acquire", *how)
    assert "not granted" in await shell.fails(NOT_GRANTED, "acquire", *how, "--wait", "0")
    await shell("renew", ticket)
    await shell("release", await shell("adopt", ticket))
    await shell("acquire", *how, "--wait", "0")


async def test_the_number_of_permits_counts_only_if_redis_has_none(shell: Shell) -> None:
    """The help says so, and the page."""
    how = ("acquire", "api", "--kind", "semaphore", "--wait", "0")
    await shell(*how, "--permits", "1")
    assert "not granted" in await shell.fails(NOT_GRANTED, *how, "--permits", "9")


async def test_a_ticket_of_a_service_with_a_prefix_and_of_several_locks(shell: Shell, redis: Redis) -> None:
    async with LockClient(redis, config=LockConfig(prefix="shop:")) as client:
        ticket = await (await client.multi("a", "b").acquire()).detach(60)
        new = json.loads(await shell("adopt", ticket, "--json"))
        assert sorted(new["tokens"]) == ["a", "b"]
        await shell("renew", new["ticket"])
        await shell("release", new["ticket"])
        assert not await client.multi("a", "b").locked()


@pytest.mark.parametrize("verb", ["renew", "adopt", "release"])
async def test_a_text_that_is_no_ticket_is_wrong_usage(shell: Shell, verb: str) -> None:
    words = await shell.fails(USAGE, verb, "aiolock1.sesame")
    assert "not a ticket" in words
    assert "sesame" not in words


async def test_a_ticket_that_cannot_be_printed_keeps_nothing_locked(
    redis: Redis, locks: LockClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError("no space")

        def fileno(self) -> int:
            return 99

    monkeypatch.setattr("aiolock._cli.output._given_up", lambda error: VerbError("no space", USAGE))
    monkeypatch.setattr(sys, "stdout", Full())
    with pytest.raises(VerbError):
        await run(redis, "acquire", "deploy", "--lease", "600")
    monkeypatch.undo()
    assert not await locks.lock("deploy").locked()


def ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def ask(server: Server, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """The exit code of the whole command line, and its output."""
    code = main([*arguments, "--url", server.url])
    return code, capsys.readouterr().out.strip()


@pytest.fixture
def arguments(
    request: pytest.FixtureRequest, server: Server, redis: Redis, capsys: pytest.CaptureFixture[str]
) -> list[str]:
    """The arguments of a verb, for the lock "deploy" or its ticket; SIGINT is ignored, as in a shell's background."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if request.param == "acquire":
        return ["acquire", "deploy"]
    code, ticket = ask(server, capsys, "acquire", "deploy")
    assert code == 0
    return [request.param, ticket]


each_that_prints_a_ticket = pytest.mark.parametrize("arguments", ["acquire", "adopt"], indirect=True)


@each_that_prints_a_ticket
def test_ctrl_c_after_the_ticket_was_printed_changes_nothing(
    arguments: list[str], server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def printed(text: str) -> None:
        print(text)
        ctrl_c()

    with monkeypatch.context() as patched:
        patched.setattr("aiolock._cli.tickets.write", printed)
        code, ticket = ask(server, capsys, *arguments)
    assert code == 0
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN, "Ctrl-C could end the process as the interpreter ends"
    assert ask(server, capsys, "release", ticket) == (0, "")


@each_that_prints_a_ticket
def test_ctrl_c_before_the_ticket_was_printed_keeps_nothing_locked(
    arguments: list[str], server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    detach = Lease.detach

    async def detached(lease: Lease, keep: float) -> str:
        ticket = await detach(lease, keep)
        ctrl_c()
        return ticket

    with monkeypatch.context() as patched:
        patched.setattr(Lease, "detach", detached)
        assert ask(server, capsys, *arguments) == (130, "")
    code, _ = ask(server, capsys, "acquire", "deploy", "--wait", "0")
    assert code == 0


@pytest.mark.parametrize("arguments", ["acquire", "adopt", "release"], indirect=True)
def test_a_lock_that_is_lost_while_the_verb_ends_has_the_exit_code_of_a_loss(
    arguments: list[str], server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    verb = {"release": "release"}.get(arguments[0], "detach")
    ends = getattr(Lease, verb)

    async def freed_before(lease: Lease, *keep: float) -> object:
        async with Redis.from_url(server.url) as redis, LockClient(redis) as client:
            await client.lock("deploy").force_release()
        return await ends(lease, *keep)

    monkeypatch.setattr(Lease, verb, freed_before)
    assert ask(server, capsys, *arguments) == (LOST, "")


@pytest.mark.parametrize("verb", ["renew", "adopt", "release"])
@pytest.mark.parametrize(("prefix", "name"), [("", ""), (OWN_KEYS[0], "deploy")], ids=["name", "prefix"])
def test_a_ticket_of_a_name_or_prefix_that_cannot_be_used_is_wrong_usage(
    verb: str, prefix: str, name: str, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    ticket = Ticket("lock", [Part("lock", prefix, name, 1, "client:1", 60.0, (), "s" * 22)]).text()
    assert ask(server, capsys, verb, ticket) == (USAGE, "")


@pytest.mark.parametrize("given", [None, io.TextIOWrapper(io.BytesIO(b"\xff"), "utf-8")], ids=["closed", "no text"])
async def test_standard_input_without_text_is_wrong_usage(
    given: io.TextIOWrapper | None, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", given)
    assert "standard input" in await shell.fails(USAGE, "release", "-")


async def test_the_error_about_a_ticket_of_another_database_names_the_cause(
    shell: Shell, redis: Redis, server: Server
) -> None:
    ticket = await shell("acquire", "deploy")
    async with Redis.from_url(f"{server.url}/3") as other:
        shell.redis = other
        assert "in another database" in await shell.fails(LOST, "release", ticket)


async def test_the_error_about_a_released_ticket_names_the_cause_though_nobody_holds_the_lock(shell: Shell) -> None:
    ticket = await shell("acquire", "deploy")
    await shell("release", ticket)
    assert "adopted or released before" in await shell.fails(LOST, "release", ticket)


async def test_a_waiter_in_a_shell_gets_it_when_the_ticket_is_released(shell: Shell, redis: Redis) -> None:
    ticket = await shell("acquire", "deploy", "--lease", "600")
    waiting = asyncio.create_task(run(redis, "acquire", "deploy", "--lease", "600"))

    async def waits() -> bool:
        return bool(await redis.pubsub_channels("*deploy*"))

    await until(waits)
    await run(redis, "release", ticket)
    assert await asyncio.wait_for(waiting, 15) == 0


def test_a_server_that_refuses_is_not_called_unreachable(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["acquire", "deploy", "--url", f"{server.url}/99"]) == UNREACHABLE
    assert capsys.readouterr().err.startswith("aiolock: acquire of 'deploy' failed: DB index is out of range")


def test_errors_as_json_and_their_codes(capsys: pytest.CaptureFixture[str]) -> None:
    nowhere = ("--json", "--url", "redis://127.0.0.1:1")
    for arguments, code, words in (
        (("acquire", "deploy"), UNREACHABLE, "cannot be reached"),
        (("release", "sesame"), USAGE, "not a ticket"),
        (("release",), USAGE, "give a ticket"),
    ):
        assert main([*arguments, *nowhere]) == code
        said = json.loads(capsys.readouterr().err)
        assert said["event"] == "failed"
        assert words in said["words"]
    with pytest.raises(SystemExit) as ended:
        main(["acquire", "x", "--kind", "semaphore"])
    assert ended.value.code == USAGE


@pytest.mark.slow
def test_processes_of_a_shell(server: Server) -> None:
    script = f"""
    export REDIS_URL={server.url}
    aiolock() {{ "{sys.executable}" -m aiolock "$@"; }}
    AIOLOCK_TICKET=$(aiolock acquire "processes of a shell" --lease 600) || exit 1
    export AIOLOCK_TICKET
    aiolock acquire "processes of a shell" --wait 0; [ $? = 75 ] || exit 2
    old=$AIOLOCK_TICKET
    AIOLOCK_TICKET=$(aiolock adopt) || exit 3
    aiolock renew "$old"; [ $? = 76 ] || exit 4
    aiolock renew && aiolock release || exit 5
    aiolock acquire "processes of a shell" > /dev/full; [ $? = 2 ] || exit 6
    aiolock inspect "processes of a shell" > /dev/null; [ $? = 1 ] || exit 7
    """
    ended = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
