"""The first mistakes: no server there, no password given, something else that listens. Errors say so, and soon."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

import pytest
from redis.asyncio import Redis

from aiolock import BackendError, LockClient, LockConfig
from aiolock._cli.failure import told_in_words
from aiolock._cli.verb import VerbError
from aiolock._embedded_server import Server
from tests.support.holding import lock_client
from tests.support.proxy import Proxy
from tests.support.resp import Frames

TIMEOUT = 0.6


@asynccontextmanager
async def answering(ok: bytes) -> AsyncIterator[str]:
    """The address of something that answers every command with *ok*."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = Frames()
        while chunk := await reader.read(65536):
            writer.write(ok * len(list(frames.feed(chunk))))
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1") as listener:
        yield f"redis://127.0.0.1:{listener.sockets[0].getsockname()[1]}"


async def test_an_acquire_that_no_server_ever_saw_leaves_nothing_to_wait_for(caplog: pytest.LogCaptureFixture) -> None:
    config = LockConfig(command_timeout=TIMEOUT, release_timeout=10)
    async with Proxy("127.0.0.1", 1) as nowhere, LockClient.from_url(nowhere.url, config=config) as client:
        await nowhere.refuse()
        started = monotonic()
        with pytest.raises(BackendError, match=r"connecting to|Connect call failed"):
            await client.lock("a").acquire()
        assert TIMEOUT * 0.9 < monotonic() - started < TIMEOUT + 2
        assert client.statistics().pending == 0, "there is nothing to give up"
        closing = monotonic()
        await client.aclose()
        assert monotonic() - closing < 2
    assert caplog.records == []


@pytest.mark.parametrize("settings", [{}, {"client_name": "web"}], ids=["plain", "named"])
@pytest.mark.parametrize("path", ["", "/1"])
async def test_a_missing_password_is_reported_at_once(own: Server, path: str, settings: dict[str, str]) -> None:
    async with Redis.from_url(own.url) as admin:
        await admin.config_set("requirepass", "secret")
    async with lock_client(own.url + path, command_timeout=10, **settings) as client, asyncio.timeout(5):
        with pytest.raises(BackendError, match=r"NOAUTH .*the server wants a password"):
            await client.lock("a").acquire()


async def test_a_wrong_password_is_reported_with_the_code_word(own: Server) -> None:
    url = own.url.replace("//", "//somebody:secret@")
    async with lock_client(url, command_timeout=10) as client, asyncio.timeout(5):
        with pytest.raises(BackendError, match="acquire of 'a' failed: WRONGPASS "):
            await client.lock("a").acquire()


async def test_a_missing_permission_is_reported_with_the_code_word(own: Server) -> None:
    async with Redis.from_url(own.url) as admin:
        rules = ("on", "nopass", "~*", "&*", "+@all", "-eval")
        await admin.execute_command("ACL", "SETUSER", "somebody", *rules)  # type: ignore[no-untyped-call]
    url = own.url.replace("//", "//somebody:secret@")
    async with lock_client(url, command_timeout=10) as client, asyncio.timeout(5):
        with pytest.raises(BackendError, match="acquire of 'a' failed: NOPERM "):
            await client.lock("a").acquire()


async def test_a_server_without_scripts_is_reported_without_the_script(server: Server) -> None:
    with Server(server._executable, config='rename-command EVAL ""\n') as without:
        async with lock_client(without.url, command_timeout=10) as client, asyncio.timeout(5):
            with pytest.raises(BackendError) as raised:
                await client.lock("a").acquire()
    assert re.fullmatch(
        r"acquire of 'a' failed: unknown command .EVAL.; locks need .*: EVAL, EVALSHA", str(raised.value)
    )


@pytest.mark.parametrize("answer", [b"-ERR %s\r\n", b"+%s\r\n"], ids=["an error", "no error"])
async def test_a_message_quotes_a_server_within_bounds(answer: bytes) -> None:
    words = answer % (b"no " * 10_000)
    async with answering(words) as url, lock_client(url, command_timeout=TIMEOUT) as client, asyncio.timeout(5):
        with pytest.raises(BackendError) as raised:
            await client.lock("a").acquire()
    assert len(str(raised.value)) < 500


@pytest.mark.parametrize("ok", [b"+OK\r\n", b"+OK\r\n" * 3], ids=["one for one", "too many"])
async def test_a_peer_that_answers_ok_to_everything_is_no_server(ok: bytes) -> None:
    async with answering(ok) as url, lock_client(url, command_timeout=TIMEOUT) as client, asyncio.timeout(5):
        with pytest.raises(BackendError):
            await client.lock("a").acquire()


@pytest.mark.parametrize("settings", [{"lease": 10}, {"prefix": "app:"}, {"timeout": 1}])
def test_a_setting_of_ours_among_those_of_redis_is_a_type_error(settings: dict[str, Any]) -> None:
    [name] = settings
    with pytest.raises(TypeError, match=rf"'{name}'.*config=LockConfig\("):
        LockClient.from_url("redis://127.0.0.1:1", **settings)


async def test_a_database_that_does_not_exist_is_reported_at_once(server: Server) -> None:
    async with lock_client(f"{server.url}/99", command_timeout=10) as client, asyncio.timeout(5):
        with pytest.raises(BackendError, match=r"out of range; see the server's setting databases") as refused:
            await client.lock("a").acquire()
    with pytest.raises(VerbError) as told, told_in_words():
        raise refused.value
    assert str(told.value).count("see the server's setting databases") == 1


async def test_the_error_of_a_server_that_is_full_names_the_setting(own: Server) -> None:
    async with Redis.from_url(own.url) as admin:
        await admin.config_set("maxclients", 1)
        async with lock_client(own.url, command_timeout=TIMEOUT) as client:
            with pytest.raises(BackendError, match=r"max number of clients reached|setting maxclients"):
                await client.lock("a").acquire()
        await admin.config_set("maxclients", 100)


async def test_a_sentinel_is_no_server_for_locks(server: Server) -> None:
    watching = "sentinel monitor primary 127.0.0.1 1 1\n"
    with Server(server._executable, options=("--sentinel",), config=watching) as sentinel:
        async with lock_client(sentinel.url, command_timeout=10) as client, asyncio.timeout(5):
            with pytest.raises(BackendError, match=r"this is a Sentinel.*sentinel\.master_for\(name\)"):
                await client.lock("a").acquire()


async def test_a_replica_is_no_server_for_locks(own: Server, server: Server) -> None:
    with Server(server._executable, options=("--replicaof", f"{own.host} {own.port}")) as replica:
        async with lock_client(replica.url, command_timeout=TIMEOUT, release_timeout=1) as client, asyncio.timeout(5):
            with pytest.raises(BackendError, match="READONLY: this server is a read only replica; locks need"):
                await client.lock("a").acquire()
