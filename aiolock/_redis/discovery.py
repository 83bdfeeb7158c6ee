"""
Who owns which slot of a cluster: asked of every server that was ever named, until one answers.

Rules:
1. Whoever was named can be asked: replicas, too, which take the places of primaries that are gone.
2. A server that is dead or hangs costs the others little: the next are asked meanwhile, twice as many each time.
3. An address that another cluster has taken over is not believed, unless it is one that the user gave.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

from redis.asyncio.connection import AbstractConnection

from aiolock._redis.connection import connect, discard

Address = tuple[str, int]

_NEXT = 0.2  # Seconds without an answer after which further servers are asked.
_REMEMBERED = 100  # Addresses that were named once, and were not the last time.
_NO_NAME = b"?"  # The host of a server that is to be named by its host name, and has none.


@dataclass(frozen=True, slots=True)
class Slots:
    """What the server at the address *by* said: the owner of each range of slots."""

    by: Address
    ranges: list[tuple[range, Address]]


class Discovery:
    """
    Knows the addresses of a cluster, and asks for its slots.

    It begins with the *seeds*, where the user's client looks for the cluster; *remap* makes an address that a server
    gave one that we can reach; *patience* is how long one server may take, in seconds.
    """

    def __init__(
        self,
        seeds: Callable[[], list[Address]],
        connect_to: Callable[[Address], Callable[[], AbstractConnection]],
        remap: Callable[[str, int], Address],
        patience: float,
    ) -> None:
        self._seeds = seeds
        self._connect_to = connect_to
        self._remap = remap
        self._patience = patience
        self._named: dict[Address, None] = {}  # Ordered: those of the last answer first, then those of earlier ones.
        self._ids: set[bytes] = set()  # Of the servers that the last answer named.

    def addresses(self) -> list[Address]:
        """Where to ask."""
        return [*self._named, *self._seeds()]

    async def ask(self, addresses: Iterable[Address]) -> Slots | None:
        """What the first of *addresses* says that answers."""
        places, most = iter(addresses), 1
        asked: list[asyncio.Task[Slots | None]] = []
        try:
            while (new := list(islice(places, most))) or asked:
                asked += [asyncio.create_task(self._ask_one(address)) for address in new]
                within = _NEXT if new else None
                done, _ = await asyncio.wait(asked, timeout=within, return_when=asyncio.FIRST_COMPLETED)
                answers = [task.result() for task in asked if task in done]
                if (slots := next(filter(None, answers), None)) is not None:
                    return slots
                asked = [task for task in asked if task not in done]
                most *= 2
            return None
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)

    async def _ask_one(self, address: Address) -> Slots | None:
        """Ask on a connection of its own, which queues behind nothing."""
        connection = self._connect_to(address)()
        # Beside its own errors redis-py lets others out when a connection dies; and what answers may be anything.
        with suppress(Exception):
            try:
                async with asyncio.timeout(self._patience):
                    await connect(connection)
                    await connection.send_command("CLUSTER", "SLOTS")
                    answer = await connection.read_response()
            finally:
                await discard(connection)
            if answer:  # Who knows of no slots is in no cluster yet.
                return self._learn(answer, address)
        return None

    def _learn(self, answer: Any, by: Address) -> Slots | None:
        servers = [server for _, _, *servers in answer for server in servers]
        ids = {identity for _, _, identity, *_ in servers}
        if self._ids and self._ids.isdisjoint(ids) and by not in self._seeds():
            return None
        self._ids = ids
        named = dict.fromkeys(self._reached(server, by) for server in servers)
        self._named = dict.fromkeys(islice(named | self._named, len(named) + _REMEMBERED))
        return Slots(by, [(range(first, last + 1), self._reached(owner, by)) for first, last, owner, *_ in answer])

    def _reached(self, server: Any, by: Address) -> Address:
        """Where *server* is reached, by the words of the one at *by*."""
        host, port, _, *facts = server
        if host == _NO_NAME:
            host = dict(zip(facts[0][::2], facts[0][1::2], strict=True)).get(b"ip") if facts else None
        # Without a name of its own a server is where the other was asked.
        return self._remap(host.decode() if host else by[0], port)
