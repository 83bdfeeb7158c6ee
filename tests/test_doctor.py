"""The doctor, run as a user runs it: on good servers and bad ones, and on programs that are no Redis server."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic

import pytest
from redis.asyncio import Redis

from aiolock._cli.advice import PERMISSIONS
from aiolock._cli.doctor.permissions import of_the_scripts
from aiolock._cli.doctor.report import Report, report_on
from aiolock._cli.doctor.trials import throw_away, try_lock
from aiolock._cli.main import main
from aiolock._cli.probe import Probe
from aiolock._embedded_server import Server
from aiolock._scripts import LOCK
from tests.deployments.test_permissions import LINE, RULES
from tests.docs.pages import PAGES
from tests.support.observe import commandstats, until
from tests.support.proxy import ALWAYS, Proxy, Rule, command, script, withhold_reply

COMMAND = [sys.executable, "-W", "error", "-m", "aiolock", "doctor"]
SOON = 20.0
ALL = {
    *("reachable", "database", "version", "topology", "role", "replicas", "eviction", "persistence", "min-replicas"),
    *("permissions", "scripts", "messages", "sharded-messages", "failover", "round-trip", "clock", "lease", "client"),
}
# A busy machine may be worth a warning.
OF_THE_MACHINE = {"round-trip"}


@dataclass(frozen=True)
class Ended:
    """A doctor that has ended."""

    code: int
    output: str
    errors: str

    @property
    def checks(self) -> dict[str, dict[str, str]]:
        return {check["name"]: check for check in json.loads(self.output)["checks"]}

    @property
    def statuses(self) -> dict[str, str]:
        return {name: check["status"] for name, check in self.checks.items()}

    def named(self, status: str) -> list[str]:
        return [name for name, each in self.statuses.items() if each == status]


def named(report: Report, status: str) -> dict[str, str]:
    """The findings of the checks with that *status*."""
    return {check.name: check.found for check in report.checks if check.status == status}


async def run(*arguments: str, **extra: str) -> Ended:
    # asyncio's debug mode tells on stderr how slow a machine is.
    left_out = {"REDIS_URL", "PYTHONASYNCIODEBUG"}
    environment = {name: value for name, value in os.environ.items() if name not in left_out} | extra
    ended = await asyncio.to_thread(
        subprocess.run,
        [*COMMAND, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def with_timeout(url: str) -> str:
    """The URL with a timeout: before redis-py 8 a client has none by itself, which would be worth a note."""
    return url if "?" in url else f"{url}?socket_timeout=5"


async def command_on(url: str, *arguments: str) -> Ended:
    """Run the command, which prints nothing but its report."""
    ended = await run(with_timeout(url), "--json", *arguments)
    assert ended.errors == ""
    return ended


async def examine(url: str, primary: str | None = None) -> Ended:
    """Examine a server without a process of its own, whose start takes longer than most checks."""
    report = await report_on(with_timeout(url), 30, "", primary)
    return Ended(0 if report.fit else 1, report.json(), "")


@pytest.fixture(autouse=True)
def hardly_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process the round trip is measured for a moment, not for a second: its value does not matter."""
    monkeypatch.setattr("aiolock._cli.doctor.timing._DURATION", 0.05)


async def examine_the_unreachable(url: str) -> dict[str, str]:
    """Expect an error in words, soon, and nothing else; returns the check."""
    began = monotonic()
    ended = await examine(url)
    assert monotonic() - began < SOON
    assert (ended.code, list(ended.checks)) == (1, ["reachable"])
    check = ended.checks["reachable"]
    assert check["status"] == "error"
    assert check["found"]
    assert check["advice"]
    return check


@pytest.fixture
async def admin(own: Server) -> AsyncIterator[Redis]:
    async with Redis.from_url(own.url) as client:
        yield client


async def limit(admin: Redis, server: Server, *rules: str) -> str:
    """The address for a user who may do everything but what the *rules* take away."""
    rights = ("on", ">secret", "~*", "&*", "+@all", *rules)
    await admin.execute_command("ACL", "SETUSER", "limited", *rights)  # type: ignore[no-untyped-call]
    return server.url.replace("redis://", "redis://limited:secret@")


async def test_a_good_server_passes_every_check_and_keeps_no_key(own: Server, admin: Redis) -> None:
    await admin.config_set("appendonly", "yes")
    await admin.set("mine", "untouched")
    ended = await run(REDIS_URL=with_timeout(own.url))
    assert (ended.code, ended.errors) == (0, ""), ended.output
    assert len(ALL) == 18
    assert set(re.findall(r"^ok +([a-z-]+)", ended.output, re.MULTILINE)) >= ALL - OF_THE_MACHINE, ended.output
    assert re.search(r"^Fit to keep locks: errors 0, warnings \d, notes 0, not known 0\.$", ended.output, re.MULTILINE)
    assert max(map(len, ended.output.splitlines())) <= 120
    assert await admin.keys("*") == [b"mine"]


async def test_json_has_every_check(own: Server, admin: Redis) -> None:
    ended = await command_on(own.url, "--lease", "2")
    report = json.loads(ended.output)
    assert (report["fit"], report["lease"], report["server"]) == (True, 2.0, f"{own.url}/0")
    assert set(ended.statuses) == ALL
    for check in ended.checks.values():
        assert set(check) == {"name", "status", "found", "advice"}
        assert check["found"]
        assert bool(check["advice"]) == (check["status"] != "ok")
    assert set(ended.named("warning")) - OF_THE_MACHINE == {"persistence"}
    assert ended.named("note") == ["lease"]
    assert own.version.rpartition(" ")[2] in ended.checks["version"]["found"]
    assert await admin.keys("*") == []


async def test_the_page_about_it_has_every_check(own: Server) -> None:
    [page] = [page for page in PAGES if page.name == "docs/how-to/check-a-server.md"]
    listed = re.findall(r"^\| `([a-z-]+)` \|", page.prose.partition("## Several servers")[0], re.MULTILINE)
    assert listed == list((await examine(own.url)).checks)
    assert "`answering`" in page.prose


async def test_a_unix_socket_will_do(own: Server) -> None:
    ended = await examine(own.unix_url)
    assert ended.code == 0
    assert json.loads(ended.output)["server"] == f"{own.unix_url}?db=0"


async def test_another_database_is_where_the_lock_is_tried(own: Server, admin: Redis) -> None:
    ended = await examine(f"{own.url}/3")
    assert (ended.code, ended.checks["database"]["found"]) == (0, "3")
    async with Redis.from_url(f"{own.url}/3") as third:
        assert await third.keys("*") == await admin.keys("*") == []


async def test_a_database_that_does_not_exist_is_reported(own: Server) -> None:
    ended = await examine(f"{own.url}/99")
    assert (ended.code, list(ended.checks), ended.named("error")) == (1, ["reachable", "database"], ["database"])
    assert "out of range" in ended.checks["database"]["found"]
    assert "setting databases" in ended.checks["database"]["advice"]


async def test_a_database_that_the_user_may_not_use_is_reported(own: Server, admin: Redis) -> None:
    ended = await examine(f"{await limit(admin, own, '-select')}/3")
    assert (ended.code, ended.named("error")) == (1, ["database"])
    assert ended.checks["database"]["advice"] == PERMISSIONS


@pytest.mark.parametrize(
    ("watched", "primary", "said", "advice"),
    [
        (["one"], None, "it says that the primary 'one' is 127.0.0.1:1, with 0 replicas", ""),
        (["one", "two"], "two", "it says that the primary 'two' is 127.0.0.1:1, with 0 replicas", ""),
        (["one", "two"], None, "it watches one at 127.0.0.1:1, two at 127.0.0.1:1", "--primary NAME"),
        (["one"], "two", "it watches one at 127.0.0.1:1, and no two", "--primary NAME"),
        ([], None, "it watches nothing", "sentinel.master_for(name)"),
    ],
    ids=["one", "chosen", "several", "another", "none"],
)
async def test_the_report_names_a_sentinel_and_the_primaries_that_it_watches(
    server: Server, watched: list[str], primary: str | None, said: str, advice: str
) -> None:
    config = "".join(f"sentinel monitor {name} 127.0.0.1 1 1\n" for name in watched)
    with Server(server._executable, options=("--sentinel",), config=config) as sentinel:
        ended = await examine(f"{sentinel.url}/3", primary)
    known = "says" in said
    assert (ended.code, ended.named("error")) == (1, ["answering" if known else "topology"])
    assert said in ended.checks["topology"]["found"]
    assert advice in ended.checks["topology"]["advice"]


async def test_the_report_names_a_sentinel_that_lists_no_primaries(server: Server) -> None:
    config = "user limited on >secret ~* &* +@all -sentinel\nsentinel monitor primary 127.0.0.1 1 1\n"
    with Server(server._executable, options=("--sentinel",), config=config) as sentinel:
        ended = await examine(sentinel.url.replace("redis://", "redis://limited:secret@"))
    assert (ended.code, ended.named("error")) == (1, ["topology"])
    assert "does not list its primaries" in ended.checks["topology"]["found"]


@pytest.mark.parametrize("user", ["", "locker"])
async def test_the_user_of_the_url_is_the_primarys_where_the_sentinel_has_none(
    own: Server, admin: Redis, user: str
) -> None:
    await admin.execute_command("ACL", "SETUSER", user or "default", "on", ">secret", "~*", "&*", "+@all")  # type: ignore[no-untyped-call]
    config = f"sentinel monitor primary {own.host} {own.port} 1\n"
    with Server(own._executable, options=("--sentinel",), config=config) as sentinel:
        ended = await examine(sentinel.url.replace("redis://", f"redis://{user}:secret@"))
        assert (ended.code, ended.named("error")) == (0, []), ended.checks
        wrong = await examine(sentinel.url.replace("redis://", f"redis://{user}:guessed@"))
    assert wrong.named("error") == ["answering"]
    assert "password" in wrong.checks["answering"]["advice"]


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
async def test_a_server_that_evicts_locks_is_unfit(policy: str, own: Server, admin: Redis) -> None:
    await admin.config_set("maxmemory", "100mb")
    await admin.config_set("maxmemory-policy", policy)
    ended = await examine(own.url)
    assert (ended.code, ended.named("error")) == (1, ["eviction"])
    assert "noeviction" in ended.checks["eviction"]["advice"]
    text = await run(own.url)
    assert text.code == 1
    assert "NOT FIT" in text.output


@pytest.mark.slow
async def test_a_replica_is_unfit_and_its_primary_is_not(own: Server, server: Server) -> None:
    options = ("--replicaof", f"{own.host} {own.port}")
    with Server(server._executable, options=options) as replica:
        async with Redis.from_url(own.url) as admin, Redis.from_url(replica.url) as behind:

            async def follows() -> bool:
                """Whether both say so: the primary has sent all data before the replica has taken it in."""
                primary, info = await admin.info("replication"), await behind.info("replication")
                there = primary["connected_slaves"] == 1 and primary["slave0"]["state"] == "online"
                return bool(there and info["master_link_status"] == "up")

            await until(follows, within=20)
            ended = await examine(replica.url)
            assert (ended.code, ended.named("error")) == (1, ["role", "scripts"])
            assert "read only" in ended.checks["scripts"]["found"]
            assert "its link to the primary is up" in ended.checks["role"]["found"]
            advice = [ended.checks[name]["advice"] for name in ("role", "scripts")]
            assert advice == ["Use the address of its primary."] * 2
            ended = await examine(own.url)
            assert (ended.code, ended.named("note")) == (0, ["min-replicas", "replicas"])


@pytest.mark.slow
async def test_a_server_that_wants_more_replicas_than_it_has_takes_no_locks(own: Server, admin: Redis) -> None:
    await admin.config_set("min-replicas-to-write", 1)
    ended = await examine(own.url)
    assert (ended.code, ended.named("error")) == (1, ["scripts"])
    assert "enough good replicas" in ended.checks["scripts"]["found"].lower()
    assert ended.checks["scripts"]["advice"] == "See what the server says."


@pytest.mark.slow
async def test_a_cluster_without_slots_is_unfit(server: Server) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        bus = str(free.getsockname()[1])
    with Server(server._executable, options=("--cluster-enabled", "yes", "--cluster-port", bus)) as node:
        ended = await examine(node.url)
    assert (ended.code, ended.named("error")) == (1, ["slots"])
    assert "0 of 16384" in ended.checks["slots"]["found"]


@pytest.mark.parametrize(
    ("rules", "errors"),
    [
        (["-@scripting"], ["permissions", "scripts"]),
        (["-subscribe"], ["permissions", "messages"]),
        (["-publish"], ["permissions", "scripts", "messages"]),
        (["resetchannels"], ["permissions", "scripts", "messages"]),
    ],
    ids=" ".join,
)
async def test_a_permission_that_is_missing_is_found_by_trying(
    own: Server, admin: Redis, rules: list[str], errors: list[str]
) -> None:
    ended = await examine(await limit(admin, own, *rules))
    assert (ended.code, ended.named("error")) == (1, errors), ended.checks
    for name in errors:
        assert PERMISSIONS in ended.checks[name]["advice"]
    assert await admin.keys("*") == []


async def test_facts_that_the_server_refuses_are_not_known_and_no_failure(own: Server, admin: Redis) -> None:
    ended = await examine(await limit(admin, own, "-info", "-config", "-time", "-spublish"))
    # The server refuses TIME to the scripts as well, and is unfit for that reason.
    assert ended.named("error") == ["permissions", "scripts"]
    unknown = ["eviction", "persistence", "min-replicas", "replicas", "failover", "clock"]
    assert ended.named("unknown") == unknown
    assert "the server refuses INFO and CONFIG" in ended.checks["eviction"]["found"]
    assert ended.named("note") == ["sharded-messages"]
    assert own.version.rpartition(" ")[2] in ended.checks["version"]["found"]
    assert (ended.statuses["topology"], ended.statuses["role"]) == ("ok", "ok")


async def keys_end(admin: Redis) -> None:
    """Expect that every key expires by itself, soon."""
    for key in await admin.keys("*"):
        assert 0 < await admin.pttl(key) <= 90_000


async def test_keys_that_the_doctor_may_not_delete_end_by_themselves(own: Server, admin: Redis) -> None:
    ended = await examine(await limit(admin, own, "-del"))
    assert (ended.code, ended.named("error")) == (1, ["permissions", "scripts"]), ended.checks
    await keys_end(admin)


async def test_a_server_that_refuses_even_a_ping_is_reported(own: Server, admin: Redis) -> None:
    check = await examine_the_unreachable(await limit(admin, own, "-ping"))
    assert "PING was refused" in check["found"]
    assert check["advice"] == PERMISSIONS


async def judged(url: str, admin: Redis, user: str, *taken: str) -> Report:
    """The doctor's report to a user who has the documented permissions without those that are *taken*."""
    await admin.execute_command("ACL", "SETUSER", user, *RULES[3:], *taken)  # type: ignore[no-untyped-call]
    return await report_on(url.replace("redis://", f"redis://{user}:secret@"), 30, "shop:")


async def test_the_permissions_that_are_documented_are_enough(own: Server, admin: Redis) -> None:
    report = await judged(own.url, admin, "locker")
    assert named(report, "error") == {}, report.text()
    assert list(named(report, "note")) == ["permissions", "sharded-messages"], "neither permission is needed"
    assert await admin.keys("*") == []
    ended = await examine(own.url.replace("redis://", "redis://locker:secret@"))
    assert ended.named("error") == ["permissions", "scripts", "messages"], "the prefix makes no difference"
    assert "the key aiolock-doctor:" in ended.checks["permissions"]["found"]


async def test_each_documented_permission_is_missed_when_it_is_not_there(own: Server, admin: Redis) -> None:
    commands = re.findall(r" \+([\w|]+)", LINE)
    assert {"evalsha", "type", "hlen", "unsubscribe"} <= set(commands), "the line is not read as it is written"
    for_a_setting = {"client|setname"}
    reports = await asyncio.gather(*(judged(own.url, admin, f"without-{each}", f"-{each}") for each in commands))
    for each, report in zip(commands, reports, strict=True):
        assert report.fit == (each in for_a_setting), report.text()
        found = " ".join(named(report, "note" if each in for_a_setting else "error").values())
        assert re.search(rf"\b{each.replace('|', ' ')}\b", found, re.IGNORECASE), report.text()
    await keys_end(admin)


async def test_a_connection_without_any_permission_is_reported(own: Server, admin: Redis) -> None:
    report = await judged(own.url, admin, "mute", "-@connection")
    assert "PING was refused" in named(report, "error")["reachable"]


# The throw-away lock has no brace in its name, and needs none of the patterns for names with one.
@pytest.mark.parametrize("pattern", [each for each in re.findall(r" ([~&]\S+)", LINE) if ":shop:" not in each])
async def test_each_documented_pattern_is_missed_when_it_is_not_there(own: Server, admin: Redis, pattern: str) -> None:
    others = [rule for rule in RULES if rule[0] in "~&" and rule != pattern]
    report = await judged(own.url, admin, "locker", "resetkeys", "resetchannels", *others)
    prefix = pattern[1:].rstrip("*")
    assert f"the key {prefix}" in named(report, "error")["permissions"] or pattern[0] == "&", report.text()
    assert "scripts" in named(report, "error")


async def test_a_user_without_commands_for_a_key_is_told_the_commands(own: Server, admin: Redis) -> None:
    """Each command with the key is refused, but not because of the key."""
    report = await judged(own.url, admin, "locker", "-@all", "+hello", "+ping", "+eval", "+evalsha", "+info")
    found = named(report, "error")["permissions"]
    assert "the key" not in found
    assert {"HSET", "TIME", "ZADD"} <= set(re.split(r"[ ,:]+", found)), report.text()


async def test_every_path_of_the_scripts_is_walked(own: Server, admin: Redis) -> None:
    """A command on a path that the doctor does not go would be missed on servers that tell no permissions."""
    await admin.config_resetstat()
    async with Probe(admin) as probe:
        check = await try_lock(admin, probe, throw_away("shop:"), "shop:")
    assert check.status == "ok", check
    called = {name.upper() for name in await commandstats(admin)}
    assert called >= set(of_the_scripts()) | {"EVAL", "EVALSHA", "PUBLISH"}
    assert await admin.keys("*") == []


async def test_a_config_that_is_renamed_away_is_no_failure(server: Server) -> None:
    with Server(server._executable, options=("--rename-command", "CONFIG", "")) as managed:
        ended = await examine(managed.url)
    assert (ended.code, ended.named("unknown")) == (0, ["persistence", "min-replicas"])
    assert "the server refuses CONFIG" in ended.checks["persistence"]["found"]


async def test_a_server_that_is_not_there_is_reported() -> None:
    check = await examine_the_unreachable("redis://127.0.0.1:1")
    assert "127.0.0.1" in check["found"]
    assert "no such file" in (await examine_the_unreachable("unix:///no/such/socket"))["found"].lower()


async def test_a_paused_server_is_no_hang(own: Server) -> None:
    own.pause()
    check = await examine_the_unreachable(own.url)
    own.resume()
    assert "no answer within" in check["found"]


@pytest.mark.parametrize("scheme", ["redis", "rediss"])
async def test_a_black_hole_is_no_hang(proxy: Proxy, scheme: str) -> None:
    proxy.black_hole()
    check = await examine_the_unreachable(f"{scheme}://127.0.0.1:{proxy.port}?socket_timeout=600")
    assert "no answer within" in check["found"]


async def test_tls_to_a_server_without_it_is_reported(own: Server) -> None:
    await examine_the_unreachable(own.url.replace("redis:", "rediss:"))


async def test_a_wrong_password_is_reported_and_not_printed(own: Server, admin: Redis) -> None:
    await admin.config_set("requirepass", "secret")
    for password in ("", ":guessed@", "somebody:guessed@"):
        check = await examine_the_unreachable(own.url.replace("redis://", f"redis://{password}"))
        assert "password" in check["advice"]
        assert "guessed" not in str(check)
    text = await run(own.url.replace("redis://", "redis://:guessed@"))
    assert text.code == 1
    assert "guessed" not in text.output + text.errors


Answer = Callable[[bytes], bytes]


@asynccontextmanager
async def stranger(answer: Answer) -> AsyncIterator[str]:
    """The address of something that is no Redis, for a client with a password."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(65536):
            writer.write(answer(chunk))
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1") as listener:
        yield f"redis://:secret@127.0.0.1:{listener.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize(
    "answer",
    [
        lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n",
        lambda chunk: b"+OK\r\n" * chunk.count(b"*"),
        lambda chunk: b"-ERR what is " + chunk.replace(b"\r\n", b" ") + b"\r\n",
        lambda _: b"",
    ],
    ids=["http", "ok to everything", "echo", "silent"],
)
async def test_servers_other_than_redis_are_told_apart(answer: Answer) -> None:
    async with stranger(answer) as url:
        assert "secret" not in str(await examine_the_unreachable(url))


async def test_an_answer_to_tls_in_plain_text_is_reported() -> None:
    async with stranger(lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n") as url:
        check = await examine_the_unreachable(url.replace("redis:", "rediss:"))
    assert check["advice"] == "See that the port speaks TLS."


async def test_a_server_that_loads_its_data_is_not_said_to_be_elsewhere() -> None:
    async with stranger(lambda _: b"-LOADING Redis is loading the dataset in memory\r\n") as url:
        check = await examine_the_unreachable(url)
    assert check["advice"] == "It answers when it has all of its data."


@pytest.mark.parametrize("name", [b"INFO", b"TIME"])
async def test_a_server_that_falls_silent_in_the_middle_is_no_hang(proxy: Proxy, name: bytes) -> None:
    proxy.install(Rule(command(name), withhold_reply(), ALWAYS))
    began = monotonic()
    ended = await command_on(proxy.url)
    assert monotonic() - began < SOON
    assert (ended.code, ended.named("error")) == (1, ["answering"])
    assert ended.statuses["reachable"] == "ok"


async def test_a_primary_is_for_sentinels(server: Server) -> None:
    ended = await examine(server.url, "orders")
    assert (ended.code, ended.named("error")) == (1, ["topology"])
    assert "no Sentinel" in ended.checks["topology"]["found"]


@pytest.mark.slow
async def test_messages_that_do_not_arrive_are_missed(proxy: Proxy) -> None:
    proxy.swallow_messages()
    ended = await examine(proxy.url)
    assert (ended.code, ended.named("error"), ended.statuses["sharded-messages"]) == (1, ["messages"], "note")
    assert "did not arrive" in ended.checks["messages"]["found"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["http://:secret@localhost"],
        ["redis://:secret/s@localhost:6379"],
        ["redis://:secret@localhost?no_such_setting=1"],
        ["redis://:secret@localhost", "--lease", "0"],
        ["redis://:secret@localhost", "--lease", "soon"],
        ["redis://:secret@localhost", "--prefix", "aiolock_token:"],
        ["redis://:secret@localhost", "--no-such-option"],
        ["redis://:secret@127.0.0.1:1", "redis://:secret@127.0.0.1:2", "--primary", "orders"],
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_with_2_and_prints_no_password(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code: object = main(["doctor", *arguments])
    except SystemExit as ended:
        code = ended.code
    printed = capsys.readouterr()
    assert (code, printed.out) == (2, "")
    assert "aiolock" in printed.err
    assert "cret" not in printed.err


@pytest.mark.slow
async def test_interrupted_the_doctor_takes_its_lock_away(proxy: Proxy, redis: Redis) -> None:
    """The doctor does so also if SIGINT was ignored at its start, as in the background, and if cleaning up fails."""
    renewal = proxy.install(Rule(script(LOCK.renew), withhold_reply(), ALWAYS))
    proxy.install(Rule(command(b"DEL"), withhold_reply(), ALWAYS))
    words = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *COMMAND, proxy.url]
    doctor = await asyncio.create_subprocess_exec(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    await renewal.caught(within=SOON)
    assert len(await redis.keys("aiolock-doctor:*")) == 1
    doctor.send_signal(signal.SIGINT)
    output, errors = await asyncio.wait_for(doctor.communicate(), SOON)
    assert doctor.returncode == 130, (output, errors)
    assert errors.decode().strip() == "aiolock: interrupted"
    assert await redis.keys("*") == []
