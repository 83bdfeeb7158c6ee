"""The verbs that look at locks, and `run`, on a cluster and behind Sentinels."""

import asyncio
import json
import shlex
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from redis import Redis
from redis.asyncio import RedisCluster
from redis.crc import key_slot

from aiolock import LeaseLostError, LockClient
from aiolock._cli.verb import VerbError
from aiolock._cli.verbs.break_ import break_
from aiolock._cli.verbs.clients import clients
from aiolock._cli.verbs.inspect import inspect
from aiolock._cli.verbs.ls import ls
from aiolock._embedded_server import Server
from tests.docs.test_command_line import LINE
from tests.support.cli import run
from tests.support.observe import answered, until
from tests.support.ports import reserved_port
from tests.support.topologies import NAME, ClusterOf, Replicated, ask, wait_until
from tests.test_cli_run import ended, pid_in, program, running

NAMES = [f"orders:{number}" for number in range(12)]


async def test_locks_of_every_primary_are_listed_with_their_holders(
    calm: ClusterOf, ours: LockClient, theirs: LockClient, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len({key_slot(name.encode()) * 3 // 16384 for name in NAMES}) == 3
    for name in NAMES:
        await ours.lock(name).acquire()
    await theirs.semaphore("api", 5).acquire(2)
    await answered(ours)
    await answered(theirs)
    assert await run(calm.primaries[0].url, ls, "ls", "--json") == 0
    locks = json.loads(capsys.readouterr().out)["locks"]
    assert sorted(lock["name"] for lock in locks) == sorted([*NAMES, "api"])
    assert len({lock["server"] for lock in locks}) == 3
    assert all(hold["host"] for lock in locks for hold in lock["holds"])
    assert await run(calm.primaries[2].url, clients, "clients", "--json") == 0
    assert [each["held"] for each in json.loads(capsys.readouterr().out)["clients"]] == [12, 1]


async def test_a_once_is_found_on_every_primary(
    calm: ClusterOf, ours: LockClient, capsys: pytest.CaptureFixture[str]
) -> None:
    async with AsyncExitStack() as stack:
        for name in NAMES:
            await stack.enter_async_context(ours.once(name, keep=60))
        assert await run(calm.primaries[0].url, ls, "ls", "--json") == 0
        locks = json.loads(capsys.readouterr().out)["locks"]
        assert sorted((lock["kind"], lock["name"]) for lock in locks) == sorted(("once", name) for name in NAMES)
        assert len({lock["server"] for lock in locks}) == 3
    for name in NAMES:
        assert await run(calm.primaries[1].url, inspect, "inspect", name, "--json") == 1
        told = json.loads(capsys.readouterr().out)
        assert (told["kind"], told["outcome"]["failed"], told["of_a_quorum"]) == ("once", False, False)


@pytest.mark.parametrize("name", NAMES[:3])
async def test_a_lock_that_is_freed_wakes_a_waiter_on_its_server(
    name: str, calm: ClusterOf, ours: LockClient, theirs: LockClient, capsys: pytest.CaptureFixture[str]
) -> None:
    lease = await ours.lock(name).acquire()

    async def wait() -> None:
        async with theirs.lock(name):
            pass

    waits = asyncio.create_task(wait())
    await until(lambda: theirs.lock(name).statistics().subscriptions == 1)

    async def seen() -> bool:
        assert await run(calm.primaries[1].url, inspect, "inspect", name, "--json") == 0
        return bool(json.loads(capsys.readouterr().out)["waiting"] == 1)

    await until(seen)
    assert await run(calm.primaries[1].url, break_, "break", name, "--token", str(lease.token), "--yes") == 0
    await asyncio.wait_for(waits, 15)
    with pytest.raises(LeaseLostError, match="force"):
        await lease.release()


def test_a_command_runs_under_a_lock_of_a_cluster(calm: ClusterOf, tmp_path: Path) -> None:
    path = tmp_path / "pid"
    with running(calm.primaries[0], NAMES[0], "--lease", "1", *program(path)) as process:
        pid_in(path)
        owners = [server for server in calm.primaries if ask(server, "KEYS", NAMES[0])]
        assert len(owners) == 1
        wait_until(lambda: int(ask(owners[0], "HGET", NAMES[0], "aiolock:renewal") or 0) >= 2, "it is renewed")
        path.unlink()
        assert ended(process) == (0, "", "")
    assert not ask(owners[0], "EXISTS", NAMES[0])


async def test_a_database_is_no_url_of_a_cluster(calm: ClusterOf, cluster: RedisCluster) -> None:
    with pytest.raises(VerbError, match="no database"):
        await run(f"{calm.primaries[0].url}/3", ls, "ls")


async def test_a_user_with_the_permissions_of_the_page_can_look_at_a_cluster(
    calm: ClusterOf, ours: LockClient, capsys: pytest.CaptureFixture[str]
) -> None:
    for primary in calm.primaries:
        ask(primary, *shlex.split(LINE))
        ask(primary, "ACL", "LOG", "RESET")
    watcher = calm.primaries[0].url.replace("//", "//watcher:secret@")
    for name in NAMES:
        await ours.lock(name).acquire()
        assert await run(watcher, inspect, "inspect", name) == 0
    capsys.readouterr()
    assert await run(watcher, ls, "ls", "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["locks"]) == len(NAMES)
    assert [ask(primary, "ACL", "LOG") for primary in calm.primaries] == [[], [], []]


@pytest.mark.parametrize("preferred", ["unknown-endpoint", "hostname"])
async def test_a_cluster_is_listed_whose_servers_have_no_names(
    calm: ClusterOf, ours: LockClient, preferred: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in NAMES:
        await ours.lock(name).acquire()
    for primary in calm.primaries:
        ask(primary, "CONFIG", "SET", "cluster-preferred-endpoint-type", preferred)
    try:
        assert await run(calm.primaries[0].url, ls, "ls", "--json") == 0
    finally:
        for primary in calm.primaries:
            ask(primary, "CONFIG", "SET", "cluster-preferred-endpoint-type", "ip")
    assert len(json.loads(capsys.readouterr().out)["locks"]) == len(NAMES)


async def test_a_slot_without_an_owner_hides_no_name_of_another_slot(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    with reserved_port() as bus:
        options = ("--cluster-enabled", "yes", "--cluster-port", str(bus), "--cluster-require-full-coverage", "no")
        with Server(server._executable, options=options) as node:
            with pytest.raises(VerbError, match="no server has a slot"):
                await run(node.url, ls, "ls")
            ask(node, "CLUSTER", "ADDSLOTS", key_slot(b"orders"))
            wait_until(lambda: "cluster_state:ok" in str(ask(node, "CLUSTER", "INFO")), "it is up")
            async with LockClient(RedisCluster.from_url(node.url)) as locks, locks.lock("orders"):
                assert await run(node.url, inspect, "inspect", "orders") == 0
                assert await run(node.url, ls, "ls", "--json") == 0
            [found] = json.loads(capsys.readouterr().out.splitlines()[-1])["locks"]
            assert found["name"] == "orders"
            with pytest.raises(VerbError, match="no server of the cluster has the slot of 'prices'"):
                await run(node.url, inspect, "inspect", "prices")


def test_behind_sentinels_the_command_goes_on_when_the_primary_is_another(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "pid"
    with Replicated(server._executable, replicas=1, sentinels=3) as group:
        url = f"redis://{group.sentinels[0].host}:{group.sentinels[0].port}"
        arguments = ["--url", url, "--primary", NAME, *program(path)]
        with running(group.primary, "orders", *arguments) as process:
            pid_in(path)
            wait_until(lambda: bool(ask(group.replicas[0], "EXISTS", "orders")), "the replica has it")
            old = ask(group.primary, "HGET", "orders", "aiolock:renewal")
            # The URL names this Sentinel, from which the client has learned of the others.
            group.sentinels[0].kill()
            group.primary.kill()
            with Redis(host=group.sentinels[1].host, port=group.sentinels[1].port, decode_responses=True) as sentinel:
                wait_until(
                    lambda: (
                        sentinel.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)[1]
                        == str(group.replicas[0].port)
                    ),
                    "the replica is the primary",
                    within=50,
                )
            wait_until(
                lambda: int(ask(group.replicas[0], "HGET", "orders", "aiolock:renewal") or 0) > int(old or 0),
                "it is renewed there",
                within=50,
            )
            path.unlink()
            assert ended(process) == (0, "", "")


async def test_a_sentinel_leads_to_the_primary_that_it_names(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    with Replicated(server._executable, replicas=1, sentinels=1) as group:
        sentinel = group.sentinels[0]
        async with LockClient.from_url(group.primary.url) as locks:
            await locks.lock("orders").acquire()
            assert await run(sentinel.url, ls, "ls", "--json", "--primary", NAME) == 0
        assert json.loads(capsys.readouterr().out)["locks"][0]["name"] == "orders"
        with pytest.raises(VerbError, match="--primary NAME"):
            await run(sentinel.url, ls, "ls", "--primary", "nobody")
