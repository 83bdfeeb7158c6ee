"""TLS: certificates of both sides are checked, and everything works as it does without."""

import asyncio
import gc
import ssl
import threading
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic, sleep
from typing import Any

import pytest
from redis.asyncio import Redis

from aiolock import BackendError, LockClient, LockConfig
from aiolock._backend import Call, Client
from aiolock._config import Timing
from aiolock._embedded_server import Server
from aiolock._redis import raw
from aiolock._redis.backend import OneServer
from aiolock._redis.connector import Connector
from tests.deployments.conftest import TlsServer
from tests.deployments.session import session
from tests.deployments.test_disturbances import rewritten
from tests.support.holding import lock_client
from tests.support.inside import connections_of_thread, ordinary_of, submit
from tests.support.observe import renewed, until
from tests.test_backend import ECHO

NAME = "orders:42"
TIMEOUT = 0.9


@asynccontextmanager
async def client_of(tls: TlsServer, *, timeout: float = 10, **settings: Any) -> AsyncIterator[LockClient]:
    config = LockConfig(command_timeout=timeout, release_timeout=timeout, lease=10)
    async with LockClient.from_url(tls.url, config=config, **settings) as client:
        yield client


async def test_a_client_with_a_certificate_is_served(tls: TlsServer) -> None:
    async with client_of(tls, **tls.settings) as client, client_of(tls, **tls.settings) as other:
        tokens = await session(client, other, NAME)
    assert tokens == sorted(set(tokens))


async def test_both_sides_of_the_server_are_one_server(tls: TlsServer) -> None:
    async with client_of(tls, **tls.settings) as client, lock_client(tls.plain.url) as other, client.lock(NAME):
        assert not await other.lock(NAME).try_lock()


async def test_certificates_are_read_beside_the_event_loop(tls: TlsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    readers: list[threading.Thread] = []
    read = ssl.create_default_context

    def noted(*args: Any, **kwargs: Any) -> ssl.SSLContext:
        readers.append(threading.current_thread())
        return read(*args, **kwargs)

    monkeypatch.setattr(ssl, "create_default_context", noted)
    async with client_of(tls, **tls.settings) as client, client.lock(NAME):
        assert readers
        assert threading.current_thread() not in readers


async def test_a_certificate_of_a_stranger_is_refused_at_once(tls: TlsServer) -> None:
    settings = tls.settings | {"ssl_ca_certs": tls.certificates.stranger}
    async with client_of(tls, timeout=30, **settings) as client:
        started = monotonic()
        with pytest.raises(BackendError, match="certificate verify failed") as raised:
            await client.lock(NAME).acquire()
        assert monotonic() - started < 15
    assert isinstance(raised.value.__cause__, ssl.SSLCertVerificationError)


async def test_a_file_that_is_missing_is_an_error(tls: TlsServer) -> None:
    async with client_of(tls, timeout=TIMEOUT, ssl_ca_certs="/nowhere/ca.pem") as client:
        with pytest.raises(BackendError, match=r"Error 2 .*; see ssl_ca_certs: /nowhere/ca\.pem cannot be read"):
            await client.lock(NAME).acquire()


async def test_a_certificate_for_another_host_is_refused(tls: TlsServer) -> None:
    config = LockConfig(command_timeout=30)
    url = f"rediss://localhost:{tls.port}"
    async with LockClient.from_url(url, config=config, ssl_check_hostname=True, **tls.settings) as client:
        with pytest.raises(BackendError, match=r"(?i)hostname mismatch"):
            await client.lock(NAME).acquire()


async def test_a_client_without_a_certificate_is_turned_away_with_words(tls: TlsServer) -> None:
    async with client_of(tls, timeout=4.5, ssl_ca_certs=tls.certificates.authority) as client:
        started = monotonic()
        with pytest.raises(BackendError, match=r"(?i)certificate required|reset by peer|closed|broken pipe"):
            await client.lock(NAME).acquire()
        assert monotonic() - started < 15


async def test_speaking_plainly_to_a_port_for_tls_is_an_error(tls: TlsServer) -> None:
    async with lock_client(tls.url.replace("rediss:", "redis:"), command_timeout=TIMEOUT) as client:
        async with asyncio.timeout(TIMEOUT + 5):
            with pytest.raises(BackendError, match=r"see whether the port wants TLS: rediss://"):
                await client.lock(NAME).acquire()


async def test_speaking_tls_to_a_plain_port_is_an_error(tls: TlsServer) -> None:
    config = LockConfig(command_timeout=TIMEOUT)
    url = tls.plain.url.replace("redis:", "rediss:")
    async with LockClient.from_url(url, config=config, **tls.settings) as client, asyncio.timeout(TIMEOUT + 5):
        with pytest.raises(
            BackendError,
            match=r"with TLS could be made in time; see .* that the port speaks TLS",
        ):
            await client.lock(NAME).acquire()


async def test_a_connection_that_the_server_closes_is_made_again(tls: TlsServer) -> None:
    async with client_of(tls, **tls.settings) as client, Redis.from_url(tls.plain.url) as admin:
        async with client.lock(NAME) as lease:
            for _ in range(3):
                await admin.client_kill_filter(_type="normal", skipme=True)
                await lease.renew()
                assert await client.lock(NAME).held()
        assert client.statistics().losses == 0


async def test_a_lock_is_kept_through_a_restart(tls: TlsServer) -> None:
    async with lock_client(tls.plain.url) as other:
        config = LockConfig(lease=6, command_timeout=10)
        async with LockClient.from_url(tls.url, config=config, **tls.settings) as client, client.lock(NAME) as lease:
            async with Redis.from_url(tls.plain.url) as admin:
                await admin.config_set("appendonly", "yes")
                await until(lambda: rewritten(admin), within=20)
            # The option counts at the next start.
            tls.plain._append_only = True
            tls.plain.kill()
            tls.plain.start()
            await renewed(client, 2, within=30)
            assert not await other.lock(NAME).try_lock()
            lease.check()


@pytest.mark.parametrize("plain", [False, True], ids=["tls", "unix"])
async def test_commands_that_the_connection_cannot_take_yet_wait_and_leave_whole(tls: TlsServer, plain: bool) -> None:
    """The server reads nothing for a while: what is written piles up, and is answered in its order afterwards."""
    user = Redis.from_url(tls.plain.unix_url) if plain else Redis.from_url(tls.url, **tls.settings)
    timing = Timing.of(LockConfig(command_timeout=30))
    backend = OneServer(Connector.of(user, None, 5), timing, Client())
    try:
        await submit(backend, ECHO, (), ("warm",))
        connection = ordinary_of(backend.only)
        tls.plain.pause()
        calls: list[Call] = []
        batches = -1
        while batches != backend.statistics().batches:
            batches = backend.statistics().batches
            calls.append(submit(backend, ECHO, (), (f"{len(calls)}" + "x" * 100_000,)))
            for _ in range(5):
                await asyncio.sleep(0)
        calls += [submit(backend, ECHO, (), (f"{number}",)) for number in range(len(calls), len(calls) + 100)]
        batches = backend.statistics().batches
        await asyncio.sleep(0.05)
        assert backend.statistics().batches == batches, "the client wrote to a choked connection"
        tls.plain.resume()
        async with asyncio.timeout(30):
            replies = [(await call)[0] for call in calls]
        assert [int(reply.rstrip(b"x")) for reply in replies] == list(range(len(calls)))
        assert ordinary_of(backend.only) is connection, "the client made another connection"
    finally:
        tls.plain.resume()
        await backend.aclose()
        await user.aclose()


async def test_unsent_data_of_a_closed_client_leave_no_warning(tls: TlsServer) -> None:
    config = LockConfig(command_timeout=1, release_timeout=1)
    async with LockClient.from_url(tls.url, config=config, **tls.settings) as client:
        await client.lock(NAME, owner="me").acquire()
        tls.plain.pause()
    tls.plain.resume()
    # An object that warns as it is collected does so now, and a warning fails the test.
    gc.collect()


async def test_closing_says_nothing_of_tls(tls: TlsServer, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        async with client_of(tls, **tls.settings) as client, client.lock(NAME):
            pass
    async with client_of(tls, timeout=4, **tls.settings) as client:
        await client.lock(NAME, owner="me").acquire(lease=60)
        tls.plain.kill()
    gc.collect()
    assert [record for record in caplog.records if record.name == "asyncio"] == []


def test_no_loop_ends_before_the_other_side_has_ended_tls(tls: TlsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the event loop nor the thread of `max_stall` leaves a socket open, though the server answers late."""
    monkeypatch.setattr(raw, "_LAST_WAIT", 30)
    resuming = threading.Timer(0.2, tls.plain.resume)

    async def stall_and_close() -> None:
        config = LockConfig(lease=1, renew_interval=0.1, max_stall=60)
        async with LockClient.from_url(tls.url, config=config, **tls.settings) as locks:
            async with locks.lock("a") as lease:
                sleep(1)
                lease.check()
                assert connections_of_thread(locks) > 0
            tls.plain.pause()
            resuming.start()

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", ResourceWarning)
        asyncio.run(stall_and_close())
        gc.collect()
    resuming.join()
    assert [warning for warning in told if "transport" in str(warning.message)] == []


def test_the_embedded_valkey_has_no_tls() -> None:
    """If this fails, let the tests above run on the embedded Valkey, too."""
    with pytest.raises(RuntimeError, match="tls"):
        Server(options=("--tls-port", "1")).start()


def test_a_client_is_closed_in_time_though_the_server_reads_no_more(tls: TlsServer) -> None:
    """
    The end of TLS waits for the other side for half a minute, and redis-py has nothing to cut it off with.

    The client does not wait so long. If the loop ends before, Python warns of the socket as it collects it.
    """

    async def close_half_open() -> None:
        locks = LockClient.from_url(tls.url, config=LockConfig(release_timeout=0.5), **tls.settings)
        await locks.lock("a").acquire()
        tls.plain.pause()
        async with asyncio.timeout(15):
            await locks.aclose()
        assert len(asyncio.all_tasks()) == 1

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            asyncio.run(close_half_open())
            gc.collect()
    finally:
        tls.plain.resume()
