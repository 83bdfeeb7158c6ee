"""A proxy and a network that end as clients connect leave none of these connections open."""

import asyncio
import socket
from contextlib import suppress

import pytest

from aiolock._embedded_server import Server
from tests.support.network import Network
from tests.support.proxy import Proxy

CLIENTS = 8


def connected(port: int) -> list[socket.socket]:
    return [socket.create_connection(("127.0.0.1", port)) for _ in range(CLIENTS)]


def see_the_end(clients: list[socket.socket]) -> None:
    for client in clients:
        client.settimeout(10)
        with client, suppress(ConnectionError):
            assert client.recv(1) == b""


@pytest.mark.parametrize("turns", range(5))
@pytest.mark.parametrize("ends", [True, False], ids=["it ends", "it cuts off"])
async def test_a_proxy_closes_connections_that_were_just_accepted(server: Server, ends: bool, turns: int) -> None:
    async with Proxy(server.host, server.port) as proxy:
        clients = connected(proxy.port)
        for _ in range(turns):
            await asyncio.sleep(0)
        if not ends:
            await proxy.cut_off()
            await asyncio.to_thread(see_the_end, clients)
    if ends:
        see_the_end(clients)


@pytest.mark.parametrize("_", range(5))
def test_a_network_closes_connections_that_were_just_accepted(server: Server, _: int) -> None:
    with Network() as network:
        relay = network.relay(network.new_address())
        relay.target = server.port
        clients = connected(relay.port)
    see_the_end(clients)
