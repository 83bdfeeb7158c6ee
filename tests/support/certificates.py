"""Certificates made for one run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import trustme


@dataclass
class Certificates:
    """The paths of PEM files: an authority, a server and a client with certificates of it, and a stranger without."""

    authority: str
    stranger: str
    server: str
    server_key: str
    client: str
    client_key: str
    foreign: str
    foreign_key: str

    @classmethod
    def written_to(cls, directory: Path) -> Self:
        """Make new certificates, in files of this directory."""

        def written(name: str, blob: trustme.Blob) -> str:
            path = Path(directory, name)
            blob.write_to_path(path)
            return str(path)

        authority, stranger = trustme.CA(), trustme.CA()
        server, client = authority.issue_cert("127.0.0.1"), authority.issue_cert("client.test")
        foreign = stranger.issue_cert("client.test")
        return cls(
            authority=written("authority.pem", authority.cert_pem),
            stranger=written("stranger.pem", stranger.cert_pem),
            server=written("server.pem", server.cert_chain_pems[0]),
            server_key=written("server.key", server.private_key_pem),
            client=written("client.pem", client.cert_chain_pems[0]),
            client_key=written("client.key", client.private_key_pem),
            foreign=written("foreign.pem", foreign.cert_chain_pems[0]),
            foreign_key=written("foreign.key", foreign.private_key_pem),
        )

    @property
    def settings(self) -> dict[str, Any]:
        """The settings for redis-py: the trusted authority, and the client's own certificate."""
        return {"ssl_ca_certs": self.authority, "ssl_certfile": self.client, "ssl_keyfile": self.client_key}

    def options(self, port: int) -> list[str]:
        """The options of a server that speaks TLS on *port*, and asks its clients for a certificate."""
        options = {
            "--tls-port": str(port),
            "--tls-ca-cert-file": self.authority,
            "--tls-cert-file": self.server,
            "--tls-key-file": self.server_key,
            "--tls-auth-clients": "yes",
        }
        return [word for option in options.items() for word in option]
