"""
Several independent servers as one backend: the answer of a majority counts (Redlock).

Each server gets every script, with the same keys and arguments, on its own connections, and its copy of a script may be
sent twice or arrive late. If one server fails, no hold is in doubt, because the others have it.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.sentinel import SentinelConnectionPool

from aiolock._backend import Call, Client, Notifier
from aiolock._config import LockConfig, Timing
from aiolock._errors import BackendError
from aiolock._redis.connector import Connector, check_borrowed
from aiolock._redis.quorum.election import Clock, Election, Longest
from aiolock._redis.quorum.fold import FOLDS
from aiolock._redis.quorum.member import Member
from aiolock._redis.quorum.notifier import QuorumNotifier
from aiolock._redis.quorum.poll import Poll, Question
from aiolock._scripts import LOCK
from aiolock._types import ClientStatistics

FEWEST_SERVERS = 3
_TWO = "may be two servers at a time, with a vote each; give the address of each server, and no replicas"
_SEVERAL = "[Redis.from_url(url), ...] with the URL of each server"
# Seconds in which the other servers get the calls that a majority has answered.
_LINGER = 0.25


def servers_of(redises: object) -> tuple[Redis, ...]:
    """
    The clients that a user gave for a quorum.

    Raises:
        TypeError, ValueError: *redises* cannot be a quorum; the message says why, and what to pass.
    """
    if isinstance(redises, str | bytes | Redis | RedisCluster) or not isinstance(redises, Iterable):
        raise TypeError(f"redlock needs several clients, {_SEVERAL}, and not one {type(redises).__name__}")
    servers = tuple(redises)
    for redis in servers:
        if isinstance(redis, str | bytes):
            raise TypeError(f"redlock needs clients, {_SEVERAL}, and not URLs")
        check_borrowed(redis)
        if isinstance(redis, RedisCluster):
            raise TypeError("a quorum consists of single servers: a RedisCluster keeps locks by itself, LockClient(it)")
        if isinstance(redis.connection_pool, SentinelConnectionPool):
            raise TypeError(f"a quorum consists of single servers: a primary behind Sentinels {_TWO}")
    if len(servers) < FEWEST_SERVERS:
        need = f"a quorum needs {FEWEST_SERVERS} servers at least, better 3 or 5, not {len(servers)}"
        raise ValueError(need + ("; one server is for LockClient(redis)" if len(servers) == 1 else ""))
    return servers


def quorum_of(
    servers: Sequence[Redis], config: LockConfig, longest_lease: float
) -> Callable[[Client], "QuorumBackend"]:
    """
    A function that connects a client to the *servers*, which still belong to the user; no I/O happens here.

    Raises:
        TypeError, ValueError: a server is given twice, or a setting is not possible with a quorum; the message says
        why.
    """
    addresses = [_address(redis) for redis in servers]
    if twice := {address for address in addresses if addresses.count(address) > 1}:
        raise ValueError(f"the servers of a quorum must be independent, but {', '.join(sorted(twice))} is there twice")
    if config.replicas is not None:
        raise ValueError("replicas must be None for a quorum: its servers are independent, and a majority has a grant")
    timing = Timing.of(config)
    connectors = [Connector.of(redis, config.client_name, timing.patience) for redis in servers]

    def connect(client: Client) -> QuorumBackend:
        members = [Member(*each, timing, client) for each in zip(addresses, connectors, strict=True)]
        return QuorumBackend(members, longest_lease)

    return connect


def _address(redis: Redis) -> str:
    """The server's address, from its settings."""
    settings = redis.connection_pool.connection_kwargs
    return str(settings.get("path") or f"{settings.get('host', 'localhost')}:{settings.get('port', 6379)}")


class QuorumBackend:
    """The backend of a quorum of *members*; no lease is longer than *longest_lease* seconds."""

    apart = False

    def __init__(self, members: Sequence[Member], longest_lease: float) -> None:
        self._members = members
        self._longest = Longest(longest_lease)
        self._clock = Clock()
        # Polls without an outcome.
        self._polls: dict[Call, Poll] = {}
        # Set when the last poll has an outcome.
        self._settled = asyncio.Event()
        self.notifier: Notifier = QuorumNotifier([member.notifier for member in members])

    def submit(self, call: Call) -> None:
        if call.script is LOCK.acquire:
            poll: Poll = Election(call, self._members, self._over, self._clock, self._longest)
        else:
            poll = Question(call, self._members, self._over, FOLDS[call.script.fold])
        self._polls[call] = poll
        poll.ask()

    def prepare(self, keys: tuple[str, ...]) -> None:
        for member in self._members:
            member.prepare(keys)

    def withdraw(self, call: Call) -> bool:
        poll = self._polls.get(call)
        return poll is not None and poll.withdraw()

    def statistics(self) -> ClientStatistics:
        each = [member.statistics() for member in self._members]
        return ClientStatistics(
            pending=len(self._polls),
            connections=sum(one.connections for one in each),
            commands=sum(one.commands for one in each),
            batches=sum(one.batches for one in each),
        )

    async def drained(self) -> None:
        while self._polls:
            self._settled.clear()
            await self._settled.wait()
        # A server that does not get a release frees the lock at the end of the lease.
        with suppress(TimeoutError, BackendError):
            async with asyncio.timeout(_LINGER):
                for member in self._members:
                    await member.drained()

    async def aclose(self) -> None:
        await asyncio.gather(*(member.aclose() for member in self._members))

    def _over(self, poll: Poll) -> None:
        del self._polls[poll.call]
        if not self._polls:
            self._settled.set()
