"""
Finds the owners of a cluster's slots: asks the known servers until one answers.

Rules:
1. Every server that was ever named may be asked, replicas included: they replace primaries that are gone.
2. A dead or hanging server costs little time: meanwhile the next servers are asked, twice as many each time.
3. An answer from another cluster, which has taken over an address, is ignored, unless the user gave that address.
"""

import asyncio
import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import AskError

from aiolock._redis.raw import connect, discard

Address = tuple[str, int]

# Seconds without an answer after which further servers are asked.
_NEXT = 0.2
# Remembered addresses from earlier answers that are not in the last one.
_REMEMBERED = 100
# The host of a server that should be named by its host name, but has none that is known.
_NO_NAME = b"?"


def address_in(server: Any, by: Address) -> Address:
    """The address of *server* in the answer to CLUSTER SLOTS of the server at *by*."""
    host, port, _, *facts = server
    if host == _NO_NAME:
        host = dict(zip(facts[0][::2], facts[0][1::2], strict=True)).get(b"ip") if facts else None
    # A server without a host has the host of the server that was asked.
    return (host.decode() if host else by[0], port)


@dataclass(frozen=True, slots=True)
class Slots:
    """The answer of the server at the address *by*: the owner of each range of slots."""

    by: Address
    ranges: list[tuple[range, Address]]


class Discovery:
    """
    Knows the addresses of a cluster, and asks for its slots.

    It begins with the *seeds*, the nodes of the user's client. *remap* turns an address from a server into one that is
    reachable from here. *patience* is the time limit for one server, in seconds.
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
        # In order: the addresses of the last answer, then those of earlier answers.
        self._named: dict[Address, None] = {}
        # The ids of the servers in the last answer.
        self._ids: set[bytes] = set()
        # The owners of slots in the last answer that have no name, by their port there.
        self._unnamed: dict[int, set[Address]] = {}

    def addresses(self) -> list[Address]:
        """All addresses to ask."""
        return [*self._named, *self._seeds()]

    def named_in(self, redirection: AskError, by: Address) -> Address | None:
        """
        The address in a *redirection* by the server at *by*; ``None`` if it has no name and is not known yet.

        Servers without a name may have the same port: then it is one of them, and the wrong one redirects once more.
        """
        if redirection.host != _NO_NAME.decode():
            return self._remap(redirection.host or by[0], redirection.port)
        others = self._unnamed.get(redirection.port, set()) - {by}
        return random.choice(sorted(others)) if others else None

    async def ask(self, addresses: Iterable[Address]) -> Slots | None:
        """The first answer of *addresses*."""
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
        """Ask on a connection of its own, with nothing queued before the question."""
        connection = self._connect_to(address)()
        # redis-py raises other errors than its own when a connection dies, and an answer may be anything.
        with suppress(Exception):
            try:
                async with asyncio.timeout(self._patience):
                    await connect(connection)
                    await connection.send_command("CLUSTER", "SLOTS")
                    answer = await connection.read_response()
            finally:
                await discard(connection)
            # A server without slots is in no cluster yet.
            if answer:
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
        self._unnamed = {}
        for _, _, owner, *_ in answer:
            if owner[0] == _NO_NAME:
                self._unnamed.setdefault(owner[1], set()).add(self._reached(owner, by))
        return Slots(by, [(range(first, last + 1), self._reached(owner, by)) for first, last, owner, *_ in answer])

    def _reached(self, server: Any, by: Address) -> Address:
        """The reachable address of *server*, which the server at *by* has named."""
        return self._remap(*address_in(server, by))
