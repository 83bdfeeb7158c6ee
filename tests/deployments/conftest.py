"""A server that speaks TLS, with certificates made for one run."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trustme

from aiolock._server import Server, _free_port, _PortTakenError


@dataclass
class Certificates:
    """Paths of PEM files: an authority, a server and a client that it vouches for, and an authority of others."""

    authority: str
    stranger: str
    server: str
    server_key: str
    client: str
    client_key: str


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
        """What redis-py needs to be told: whom to trust, and who we are."""
        given = self.certificates
        return {
            "ssl_ca_certs": given.authority,
            "ssl_certfile": given.client,
            "ssl_keyfile": given.client_key,
        }


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    directory = tmp_path_factory.mktemp("certificates")

    def written(name: str, blob: trustme.Blob) -> str:
        path = Path(directory, name)
        blob.write_to_path(path)
        return str(path)

    authority, stranger = trustme.CA(), trustme.CA()
    server, client = authority.issue_cert("127.0.0.1"), authority.issue_cert("client.test")
    return Certificates(
        authority=written("authority.pem", authority.cert_pem),
        stranger=written("stranger.pem", stranger.cert_pem),
        server=written("server.pem", server.cert_chain_pems[0]),
        server_key=written("server.key", server.private_key_pem),
        client=written("client.pem", client.cert_chain_pems[0]),
        client_key=written("client.key", client.private_key_pem),
    )


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
        options = {
            "--tls-port": str(port),
            "--tls-ca-cert-file": certificates.authority,
            "--tls-cert-file": certificates.server,
            "--tls-key-file": certificates.server_key,
            "--tls-auth-clients": "yes",
        }
        server = Server(executable, options=[word for option in options.items() for word in option])
        with suppress(_PortTakenError):
            server.start()
            return server, port
    pytest.fail("no free port")
