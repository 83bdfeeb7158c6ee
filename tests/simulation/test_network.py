"""A simulated connection delivers all data in their order, as TCP does."""

import asyncio

import pytest

from tests.simulation.network import Link, Network
from tests.simulation.process import Process
from tests.simulation.server import Server
from tests.simulation.transport import Transport
from tests.simulation.world import World


class Received(asyncio.Protocol):
    """What a process has received on its connection."""

    def __init__(self) -> None:
        self.all: list[object] = []

    def data_received(self, data: bytes) -> None:
        self.all.append(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.all.append(type(error))


@pytest.mark.parametrize("seed", range(20))
def test_no_reply_arrives_after_a_reply_that_was_lost(seed: int) -> None:
    world = World(seed)
    process = Process(Network(world, (0.001, 0.05)), "p1")
    link = Link(process.network, process, Server(world, "s1"), process.network.path("p1", "s1"))
    transport = Transport(process, link)
    transport.protocol = received = Received()
    link.reply(b"1")
    link.replies_left = 0
    link.reply(b"2")
    # A second fault of this kind meets the broken connection.
    link.replies_left = 1
    link.reply(b"3")
    world.run_until(1.0)
    process.close()
    World.here = None
    assert received.all == [b"1", ConnectionResetError]
