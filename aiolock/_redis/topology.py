"""The backend on redis.asyncio: sends each script to the server that has its keys."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence

from aiolock._backend import Call, Notifier
from aiolock._process import Lineage
from aiolock._redis.server import Server
from aiolock._redis.traffic import Traffic
from aiolock._types import ClientStatistics


class Topology(ABC):
    """A backend that knows the servers, and the server of each key."""

    apart: bool
    notifier: Notifier
    # The server, if there is only one.
    only: Server | None = None

    def __init__(self) -> None:
        self.traffic: Traffic = Traffic()
        self._forks = Lineage.forks

    @abstractmethod
    def server_of(self, keys: tuple[str, ...]) -> Server:
        """The server that has *keys*."""

    @abstractmethod
    def servers(self) -> Sequence[Server]:
        """Every server."""

    def submit(self, call: Call) -> None:
        # A forked child must not use its parent's connections.
        if Lineage.forks != self._forks:
            call.fail(RuntimeError("forked"), "this is not the process that connected")
            return
        server = self.only or self.server_of(call.keys)
        (server if call.script.urgent else server.ordinary).submit(call)

    def prepare(self, keys: tuple[str, ...]) -> None:
        if Lineage.forks == self._forks:
            self.server_of(keys).prepare()

    def withdraw(self, call: Call) -> bool:
        return self.server_of(call.keys).withdraw(call)

    def statistics(self) -> ClientStatistics:
        servers = self.servers()
        return ClientStatistics(
            pending=sum(server.pending for server in servers),
            connections=sum(server.connected for server in servers),
            commands=self.traffic.commands,
            batches=self.traffic.batches,
        )

    async def drained(self) -> None:
        while any(server.pending for server in self.servers()):
            for server in self.servers():
                await server.drained()

    async def aclose(self) -> None:
        await asyncio.gather(*(server.aclose() for server in self.servers()))
