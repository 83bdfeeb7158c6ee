"""A server that speaks TLS, with certificates made for one run."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from aiolock._embedded_server import Server
from tests.support.certificates import Certificates
from tests.support.half_open import half_open_connections
from tests.support.ports import reserved_port

__all__ = ["half_open_connections"]


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
    with tls_server(certificates) as running:
        yield running


@contextmanager
def tls_server(certificates: Certificates) -> Iterator[TlsServer]:
    """Always the `redis-server` on the path: the embedded Valkey is built without TLS."""
    executable = shutil.which("redis-server")
    if executable is None:
        pytest.skip("no redis-server on the path")
    with reserved_port() as port, Server(executable, options=certificates.options(port)) as server:
        yield TlsServer(server, port, certificates)
