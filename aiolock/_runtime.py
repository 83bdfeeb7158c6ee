"""The life of a client's core: started when it is first used, anew after a fork, closed once."""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from types import FrameType
from uuid import uuid4

import anyio
from redis.asyncio import Redis, RedisCluster

from aiolock._backend import Topology
from aiolock._blocks import nothing_to_give_back
from aiolock._cluster import Cluster
from aiolock._config import LockConfig, Timing
from aiolock._connector import Connector
from aiolock._core import Core
from aiolock._discovery import Address
from aiolock._one_server import OneServer
from aiolock._types import ClientStatistics, LockKeys, LockStatistics


class Runtime:
    """What a `LockClient` and its locks share."""

    def __init__(self, redis: Redis | RedisCluster, config: LockConfig) -> None:
        self._topology = _cluster(redis, config) if isinstance(redis, RedisCluster) else _one_server(redis, config)
        self._config = config
        self._core: Core | None = None
        self._closing: asyncio.Task[None] | None = None
        self._inherited: list[Core] = []  # What a fork left here belongs to the parent: kept, never used.

    @property
    def state(self) -> str:
        """For people to read."""
        if self._core is None:
            return "not started"
        return "closed" if self._core.usage.closed else self._core.client

    def core(self) -> Core:
        """The core, started if it is not; raises `ClientClosedError` in another loop or process than its own."""
        if self._core is None:
            self._core = self._start()
        self._core.usage.check_place()
        return self._core

    def open_core(self) -> Core:
        """The core, as `core`; raises `ClientClosedError` also when it is closed."""
        core = self.core()
        core.usage.check_open()
        return core

    def core_to_leave(self, error: BaseException | None) -> Core | None:
        """The core, for a client that is left by *error*; ``None`` where `Usage.can_leave` says so."""
        if self._core is None:
            self._core = self._start()
        return self._core if self._core.usage.can_leave(error) else None

    def leave(
        self, frame: FrameType, keys: LockKeys, named: str | None, error: BaseException | None
    ) -> Coroutine[object, object, None]:
        """A block is left by *frame*, for *error*; anywhere, as Python may destroy it at any moment."""
        core = self._core
        scope = None if core is None else core.blocks.at(frame, keys, named)
        if core is not None and scope is not None:
            return core.blocks.leave(scope, error)
        if error is not None or (core is not None and not core.usage.can_leave(error)):
            return nothing_to_give_back()
        raise RuntimeError(f"lock {keys.name!r}: this `async with` was not entered, or was left before")

    def statistics(self) -> ClientStatistics:
        """What `LockClient.statistics` says."""
        return ClientStatistics() if self._core is None else self._core.statistics()

    def statistics_of(self, keys: LockKeys) -> LockStatistics:
        """What `AsyncRLock.statistics` says."""
        return LockStatistics() if self._core is None else self._core.lock_statistics(keys)

    def start_after_fork(self) -> None:
        """In a forked child: leave what is the parent's alone, so that the next use starts a core of the child's."""
        if self._core is not None and self._core.usage.forked:
            self._inherited.append(self._core)
            self._core = self._closing = None

    async def aclose(self) -> None:
        """Close the core; goes on by itself when cancelled. The caller is not told of it by a cancellation."""
        core = self.core()
        core.blocks.let_go()
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(core.aclose(), context=Context())
        with anyio.CancelScope(shield=True):
            await asyncio.wait([self._closing])
        if not self._closing.cancelled():  # By the end of the loop: then it was cut short, and is over all the same.
            self._closing.result()

    def _start(self) -> Core:
        anyio.CancelScope()  # Loads anyio's backend now, not when a body has failed and its lock waits for release.
        return Core(str(uuid4()), self._topology(), self._config)


def _one_server(redis: Redis, config: LockConfig) -> Callable[[], Topology]:
    timing = Timing.of(config)
    connect = Connector.of(redis, config.client_name, timing.patience)
    return lambda: OneServer(connect, timing, connect.sentinels)


def _cluster(cluster: RedisCluster, config: LockConfig) -> Callable[[], Topology]:
    def connect_to(address: Address) -> Connector:
        return Connector.of_node(cluster, *address, config.client_name)

    def known() -> list[Address]:
        """Where *cluster* looks for the others, and whom it knows by now."""
        nodes = [*cluster.nodes_manager.startup_nodes.values(), *cluster.get_nodes()]
        return [(node.host, int(node.port)) for node in nodes]

    seeds = known()
    connect_to(seeds[0])  # Checks the settings.
    return lambda: Cluster(
        lambda: [*seeds, *known()], connect_to, cluster.nodes_manager.remap_host_port, Timing.of(config)
    )
