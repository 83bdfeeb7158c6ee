"""The usual mistakes with TLS: a client and the doctor name the same probable cause."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

import pytest

from aiolock import BackendError
from tests.deployments.conftest import TlsServer, tls_server
from tests.support.certificates import Certificates
from tests.support.holding import lock_client
from tests.test_doctor import examine

TIMEOUT = 2.0


@dataclass(frozen=True)
class Mistake:
    """A client uses the server at *url* with *settings*; the *hint* names the mistake."""

    hint: str
    settings: Callable[[TlsServer], Mapping[str, str]] = lambda tls: tls.settings
    url: Callable[[TlsServer], str] = lambda tls: tls.url

    def of(self, tls: TlsServer) -> str:
        query = urlencode(self.settings(tls))
        return f"{self.url(tls)}?{query}" if query else self.url(tls)


MISTAKES = {
    "authority": Mistake(
        "see that ssl_ca_certs names the authority of the server's certificate",
        lambda tls: tls.settings | {"ssl_ca_certs": tls.certificates.stranger},
    ),
    "host": Mistake(
        "use a host name that the server's certificate has",
        lambda tls: tls.settings | {"ssl_check_hostname": "true"},
        lambda tls: tls.url.replace("127.0.0.1", "localhost"),
    ),
    "no authority": Mistake(
        "see ssl_ca_certs: /nowhere/ca.pem cannot be read",
        lambda tls: tls.settings | {"ssl_ca_certs": "/nowhere/ca.pem"},
    ),
    "no key": Mistake(
        "see ssl_keyfile: /nowhere/key.pem cannot be read",
        lambda tls: tls.settings | {"ssl_keyfile": "/nowhere/key.pem"},
    ),
    "no certificate": Mistake(
        "see ssl_certfile: /nowhere/client.pem cannot be read",
        lambda tls: tls.settings | {"ssl_certfile": "/nowhere/client.pem"},
    ),
    "other key": Mistake(
        "see that ssl_keyfile has the key of the certificate in ssl_certfile",
        lambda tls: tls.settings | {"ssl_keyfile": tls.certificates.server_key},
    ),
    "certificate not named": Mistake(
        "see whether the server wants a certificate of its clients: ssl_certfile, ssl_keyfile",
        lambda tls: {"ssl_ca_certs": tls.certificates.authority},
    ),
    "certificate of a stranger": Mistake(
        "see whether the server trusts the certificate in ssl_certfile",
        lambda tls: (
            tls.settings | {"ssl_certfile": tls.certificates.foreign, "ssl_keyfile": tls.certificates.foreign_key}
        ),
    ),
    "plain to tls": Mistake(
        "see whether the port wants TLS: rediss://, or ssl=True; or whether the server has as many clients as its "
        "setting maxclients allows",
        lambda tls: {},
        lambda tls: tls.url.replace("rediss:", "redis:"),
    ),
    "tls to plain": Mistake(
        "see that the server runs, and that the port speaks TLS",
        url=lambda tls: tls.plain.url.replace("redis:", "rediss:"),
    ),
}


@pytest.fixture(scope="module")
def tls(certificates: Certificates) -> Iterator[TlsServer]:
    """One server for all tests: no test here changes it."""
    with tls_server(certificates) as running:
        yield running


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
async def test_a_client_and_the_doctor_name_the_mistake(tls: TlsServer, mistake: Mistake) -> None:
    async with lock_client(mistake.of(tls), command_timeout=TIMEOUT) as client:
        with pytest.raises(BackendError) as raised:
            await client.lock("a").acquire()
    assert mistake.hint in str(raised.value)
    ended = await examine(mistake.of(tls))
    assert (ended.code, list(ended.checks)) == (1, ["reachable"])
    assert ended.checks["reachable"]["advice"] == f"{mistake.hint[0].upper()}{mistake.hint[1:]}."


async def test_a_good_address_passes(tls: TlsServer) -> None:
    assert (await examine(f"{tls.url}?{urlencode(tls.settings)}")).code == 0
