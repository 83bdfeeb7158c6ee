"""Behind Sentinels, a client at once leaves a server that is no primary any more, even if that does not let go."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest
from redis.asyncio.sentinel import Sentinel
from redis.exceptions import ReadOnlyError

from aiolock._redis.connector import Connector
from tests.support.certificates import Certificates
from tests.support.half_open import half_open_connections
from tests.support.observe import until
from tests.test_connection import Recorder

__all__ = ["half_open_connections"]

Address = tuple[str, int]


class Naming(Sentinel):
    """Sentinels that name a server of the test."""

    primary: Address

    async def discover_master(self, service_name: str) -> Address:
        return self.primary


@contextmanager
def demoted(context: ssl.SSLContext | None) -> Iterator[Address]:
    """A server that answers a write with READONLY, and from then on reads no more."""
    over = threading.Event()

    def serve(client: socket.socket) -> None:
        with (
            suppress(OSError),
            client if context is None else context.wrap_socket(client, server_side=True) as connection,
        ):
            while request := connection.recv(65536):
                if b"SET\r\n" not in request:
                    connection.sendall(b"+OK\r\n" * request.count(b"*"))
                else:
                    connection.sendall(b"-READONLY You can't write against a read only replica.\r\n")
                    over.wait()

    def accept() -> None:
        with ExitStack() as threads:
            while not over.is_set():
                thread = threading.Thread(target=serve, args=listener.accept()[:1])
                thread.start()
                threads.callback(thread.join)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield listener.getsockname()
        finally:
            over.set()
            socket.create_connection(listener.getsockname()).close()
            accepting.join()


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_a_server_that_is_read_only_and_then_frozen_does_not_hold_the_reader_up(
    certificates: Certificates, tls: bool
) -> None:
    """redis-py would close the connection by itself, and wait for the other side."""
    settings: dict[str, Any] = {}
    context = None
    if tls:
        settings = {"ssl": True, "ssl_ca_certs": certificates.authority}
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificates.server, certificates.server_key)
    sentinel = Naming([("127.0.0.1", 1)])  # type: ignore[no-untyped-call]
    redis = sentinel.master_for("orders", **settings)
    with demoted(context) as sentinel.primary:
        user = Recorder(Connector.of(redis, None, 5))
        try:
            assert await user.answer("PING") == b"OK"
            assert isinstance(await user.answer("SET", "a", "b"), ReadOnlyError)
            user.connection.fail()
            await until(lambda: len(user.opens) == 2)
            assert await user.answer("PING") == b"OK"
        finally:
            await user.connection.aclose()
            await redis.aclose()
