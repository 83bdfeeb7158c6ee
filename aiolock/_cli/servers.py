"""The servers behind a URL: a single one, the primary that a Sentinel names, or every primary of a cluster."""

import asyncio
import signal
from argparse import Namespace
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from redis.asyncio import Redis, RedisCluster, Sentinel
from redis.asyncio.connection import SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.exceptions import RedisClusterException

from aiolock._cli.doctor import cluster, sentinel
from aiolock._cli.failure import told_in_words
from aiolock._cli.options import url_of
from aiolock._cli.probe import PATIENCE, Address, Probe, with_address, without_settings
from aiolock._cli.verb import UNREACHABLE, USAGE, VerbError
from aiolock._cli.way_in import WayIn, client_of, entered
from aiolock._redis.address import address, place

_TIMEOUT = 5.0
# These settings of a URL would change the form of answers.
_OURS = ("protocol", "decode_responses")
_OF_A_PLACE = ("connection_class", "host", "path", "port")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Servers:
    """The client that locks are taken with, and a client for each primary, by its address."""

    client: Redis | RedisCluster
    primaries: Mapping[str, Redis]
    sharded: bool
    """Whether unlock messages are sharded: they stay on the server of their slot."""
    slots: Mapping[str, Container[int]] = field(default_factory=dict)
    """The slots of each primary of a cluster."""

    def address_of(self, key: str) -> str:
        """The address of the primary that has *key*."""
        if not isinstance(self.client, RedisCluster):
            [only] = self.primaries
            return only
        slot = key_slot(key.encode())
        for primary, slots in self.slots.items():
            if slot in slots:
                return primary
        raise VerbError(f"no server of the cluster has the slot of {key!r}", UNREACHABLE)


def asked(parsed: Namespace, verb: Callable[[Namespace, Servers], Awaitable[int]]) -> int:
    """Run *verb* with the *parsed* arguments and the servers that they name; returns its exit code."""

    async def ask() -> int:
        async with connected(url_of(parsed), parsed.primary) as servers:
            return await verb(parsed, servers)

    return finished(ask())


def finished(work: Coroutine[Any, Any, T]) -> T:
    """The result of *work*, which Ctrl-C interrupts."""
    # A shell that starts us in the background has it ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with told_in_words():
        return asyncio.run(work)


@asynccontextmanager
async def connected(url: str, primary: str | None) -> AsyncIterator[Servers]:
    """The servers; *primary* names one, where a Sentinel watches several."""
    url = without_settings(url, *_OURS)
    async with AsyncExitStack() as stack:
        redis = await stack.enter_async_context(_client_of(url))
        async with AsyncExitStack() as until_known:
            way_in = await entered(until_known, url, redis)
            if primary is not None and way_in.mode != "sentinel":
                raise VerbError(f"{sentinel.NONE}. Leave --primary out, or give the URL of a Sentinel", USAGE)
            if way_in.mode == "sentinel":
                servers = await _behind_sentinels(stack, url, way_in, primary)
            elif way_in.mode == "cluster":
                servers = await _of_a_cluster(stack, url, way_in.probe)
            else:
                servers = Servers(redis, {address(redis): redis}, sharded=False)
        yield servers


def _client_of(url: str) -> Redis:
    """A client that waits for answers only so long."""
    bounds = {"socket_timeout": _TIMEOUT, "socket_connect_timeout": PATIENCE}
    return client_of(url, **bounds, retry=Retry(NoBackoff(), 1), protocol=2)


async def _behind_sentinels(stack: AsyncExitStack, url: str, way_in: WayIn, primary: str | None) -> Servers:
    watched = await sentinel.learn(way_in.probe)
    chosen = sentinel.chosen(watched, primary)
    if chosen is None:
        check = sentinel.undecided(watched, primary)
        raise VerbError(f"{check.found}. Say which is meant: --primary NAME", USAGE)
    settings = parse_url(way_in.url)
    here = (settings.get("host", "localhost"), settings.get("port", 6379))
    sentinels = [here, *await sentinel.others(way_in.probe, chosen)]
    client = _client_behind(sentinels, url, way_in.url, chosen.name)
    stack.push_async_callback(client.aclose)
    only = await stack.enter_async_context(_client_of(with_address(url, chosen.address)))
    return Servers(client, {place(*chosen.address): only}, sharded=False)


def _client_behind(sentinels: list[Address], url: str, way_in: str, name: str) -> Redis:
    """A client of the primary that these *sentinels* name, also after a failover, when the URL's Sentinel is gone."""
    each = {name: value for name, value in _settings(way_in).items() if name != "db"}
    bounds = {"socket_timeout": PATIENCE, "socket_connect_timeout": PATIENCE}
    settings = _settings(url)
    manager = Sentinel(sentinels, sentinel_kwargs=bounds | each, **settings)  # type: ignore[no-untyped-call]
    return cast("Redis", manager.master_for(name))


def _settings(url: str) -> dict[str, Any]:
    """The settings in the URL, without the address."""
    said: dict[str, Any] = {**parse_url(url)}
    secure = said.get("connection_class") is SSLConnection
    return {name: value for name, value in said.items() if name not in _OF_A_PLACE} | ({"ssl": True} if secure else {})


async def _of_a_cluster(stack: AsyncExitStack, url: str, probe: Probe) -> Servers:
    try:
        client = RedisCluster.from_url(url)
    except (TypeError, RedisClusterException) as error:
        words = "a cluster, and redis-py cannot use this URL for one: give host and port of a node, and no database"
        raise VerbError(words, USAGE) from error
    stack.push_async_callback(client.aclose)
    # redis-py would ask for more commands than a user needs, and refuse a cluster in which a slot has no owner.
    [seed] = client.nodes_manager.startup_nodes.values()
    found = await cluster.learn(probe, (seed.host, int(seed.port)))
    if not found.slots:
        raise VerbError("a cluster where no server has a slot, so that none can keep locks", UNREACHABLE)
    primaries = {
        place(*each): await stack.enter_async_context(_client_of(with_address(url, each))) for each in found.slots
    }
    slots = {place(*each): slots for each, slots in found.slots.items()}
    return Servers(client, primaries, found.sharded, slots)
