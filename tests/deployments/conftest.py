"""A server that speaks TLS, with certificates made for one run."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

import pytest

from aiolock._server import Server, _free_port, _PortTakenError
from tests.support.certificates import Certificates


@dataclass
class TlsServer:
    """A server that asks its clients for a certificate, also reachable without TLS: `plain`."""

    plain: Server
    port: int
    certificates: Certificates

    @property
    def url(self) -> str:
        return f"rediss://{self.plain.host}:{self.port}"

    @property
    def settings(self) -> dict[str, Any]:
        return self.certificates.settings


@pytest.fixture
def tls(certificates: Certificates) -> Iterator[TlsServer]:
    """Always the `redis-server` on the path: the embedded Valkey is built without TLS."""
    executable = shutil.which("redis-server")
    if executable is None:
        pytest.skip("no redis-server on the path")
    server, port = started_with_tls(executable, certificates)
    with ExitStack() as stack:
        stack.push(server)
        yield TlsServer(server, port, certificates)


def started_with_tls(executable: str, certificates: Certificates) -> tuple[Server, int]:
    """Another process may take the port before the server does, so try again."""
    for _ in range(5):
        port = _free_port()
        server = Server(executable, options=certificates.options(port))
        with suppress(_PortTakenError):
            server.start()
            return server, port
    pytest.fail("no free port")
