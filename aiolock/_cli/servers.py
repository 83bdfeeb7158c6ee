"""The servers behind a URL: a single one, the primary that a Sentinel names, or every primary of a cluster."""

import argparse
import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

from redis.asyncio import Redis, RedisCluster, Sentinel
from redis.asyncio.connection import SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisClusterException, ResponseError

from aiolock._cli.doctor import sentinel
from aiolock._cli.doctor.probe import PATIENCE, Address, Probe, SilentError, with_address, without_user
from aiolock._cli.exit_codes import UNREACHABLE, USAGE, VerbError
from aiolock._cli.failure import told_in_words
from aiolock._cli.options import url_of
from aiolock._redis.address import address, place
from aiolock._redis.connector import Connector

_TIMEOUT = 5.0  # Seconds for an answer; a page of a scan takes some milliseconds.
_OURS = ("protocol", "decode_responses")  # Settings of a URL that would change the form of answers.
_OF_A_PLACE = ("connection_class", "host", "path", "port")


@dataclass(frozen=True, slots=True)
class Servers:
    """The client that locks are taken with, and a client for each primary, by its address."""

    client: Redis | RedisCluster
    primaries: Mapping[str, Redis]
    sharded: bool
    """Whether unlock messages are sharded: they stay on the server of their slot."""

    def of(self, key: str) -> tuple[str, Redis]:
        """The primary that has *key*, with its address."""
        if isinstance(self.client, RedisCluster):
            node = self.client.get_node_from_key(key)
            where = place(node.host, int(node.port)) if node is not None else ""
            if where not in self.primaries:
                raise VerbError(f"no server of the cluster has the slot of {key!r}", UNREACHABLE)
            return where, self.primaries[where]
        [only] = self.primaries.items()
        return only


def asked(parsed: argparse.Namespace, verb: Callable[[argparse.Namespace, Servers], Awaitable[int]]) -> int:
    """Run *verb* with the *parsed* arguments and the servers that they name; returns its exit code."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell that starts us in the background has it ignored.

    async def ask() -> int:
        async with connected(url_of(parsed), parsed.primary) as servers:
            return await verb(parsed, servers)

    with told_in_words():
        return asyncio.run(ask())


@asynccontextmanager
async def connected(url: str, primary: str | None) -> AsyncIterator[Servers]:
    """The servers; *primary* names one, where a Sentinel watches several."""
    url = _without_shapes(url)
    async with AsyncExitStack() as stack:
        redis = await stack.enter_async_context(client_of(url))
        way_in, mode = await _recognized(url)
        if primary is not None and mode != "sentinel":
            raise VerbError(sentinel.NONE, USAGE)
        if mode == "sentinel":
            servers = await _behind_sentinels(stack, url, way_in, primary)
        elif mode == "cluster":
            servers = await _of_a_cluster(stack, url)
        else:
            servers = Servers(redis, {address(redis): redis}, sharded=False)
        yield servers


def client_of(url: str) -> Redis:
    """A client for *url*, which does no I/O yet; `VerbError` if redis-py does not accept the URL."""
    try:
        redis = Redis.from_url(
            url, socket_timeout=_TIMEOUT, socket_connect_timeout=PATIENCE, retry=Retry(NoBackoff(), 1), protocol=2
        )
        Connector.of(redis, None, PATIENCE)
    except (TypeError, ValueError) as error:  # The text of the error may contain the password.
        raise VerbError(
            "redis-py cannot use this URL. It begins with redis://, rediss:// or unix://, has only settings that "
            "redis-py knows, and special characters of a password are percent-encoded",
            USAGE,
        ) from error
    return redis


def _without_shapes(url: str) -> str:
    parts = urlsplit(url)
    query = "&".join(each for each in parts.query.split("&") if each.split("=")[0] not in _OURS)
    return parts._replace(query=query).geturl() if query != parts.query else url


async def _recognized(url: str) -> tuple[str, str]:
    """The URL, without its user if the server refuses that (Sentinels often have no users), and the server's mode."""
    try:
        return url, await _mode(url)
    except SilentError as refusal:
        nobody = without_user(url)
        if not refusal.refused or nobody == url:
            raise
        try:
            mode = await _mode(nobody)
        except SilentError:
            raise refusal from None
        if mode != "sentinel":
            raise
        return nobody, mode


async def _mode(url: str) -> str:
    async with client_of(url) as redis, Probe(redis) as probe:
        await probe.greet()
        try:
            reply = await probe.ask("HELLO", "2")
        except ResponseError:
            return "standalone"  # A proxy, which stands for one server.
        said = dict(zip(reply[::2], reply[1::2], strict=False))
        return bytes(said.get(b"mode", b"standalone")).decode()


async def _behind_sentinels(stack: AsyncExitStack, url: str, way_in: str, primary: str | None) -> Servers:
    async with client_of(way_in) as redis, Probe(redis) as probe:
        watched = await sentinel.learn(probe)
        chosen = sentinel.chosen(watched, primary)
        if chosen is None:
            check = sentinel.undecided(watched, primary)
            raise VerbError(f"{check.found}. Say which is meant: --primary NAME", USAGE)
        others = [_address(each) for each in await probe.ask("SENTINEL", "SENTINELS", chosen.name)]
    settings = redis.connection_pool.connection_kwargs
    here = (settings.get("host", "localhost"), int(settings.get("port", 6379)))
    client = _client_behind([here, *others], url, way_in, chosen.name)
    stack.push_async_callback(client.aclose)
    only = await stack.enter_async_context(client_of(with_address(url, chosen.address)))
    return Servers(client, {place(*chosen.address): only}, sharded=False)


def _address(known: list[bytes]) -> Address:
    said = {name.decode(): value.decode() for name, value in zip(known[::2], known[1::2], strict=False)}
    return said["ip"], int(said["port"])


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


async def _of_a_cluster(stack: AsyncExitStack, url: str) -> Servers:
    try:
        client = RedisCluster.from_url(url)
    except (TypeError, RedisClusterException) as error:
        words = (
            "a cluster, and redis-py makes no RedisCluster of this URL: give host and port of a node, and no database"
        )
        raise VerbError(words, USAGE) from error
    stack.push_async_callback(client.aclose)
    _ = await client.initialize()
    primaries: dict[str, Redis] = {}
    for node in client.get_primaries():
        redis = client_of(with_address(url, (node.host, int(node.port))))
        primaries[place(node.host, int(node.port))] = await stack.enter_async_context(redis)
    return Servers(client, primaries, await _are_sharded(primaries))


async def _are_sharded(primaries: Mapping[str, Redis]) -> bool:
    try:
        await next(iter(primaries.values())).execute_command("PUBSUB SHARDNUMSUB")  # type: ignore[no-untyped-call]
    except ResponseError:
        return False
    return True
