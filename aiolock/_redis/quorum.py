"""
Several independent servers as one backend: what a majority of them says, counts (Redlock).

Each server has every script, with the same keys and arguments, on connections of its own, and what makes a script safe
to be sent twice or late holds for each of them. A server that breaks puts no hold in doubt: the others have it.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.sentinel import SentinelConnectionPool

from aiolock._backend import BackendStatistics, Call, Client, Notifier
from aiolock._config import LockConfig, Timing
from aiolock._errors import BackendError
from aiolock._redis.connector import Connector, check_borrowed
from aiolock._redis.election import Clock, Election
from aiolock._redis.fold import FOLDS
from aiolock._redis.poll import Poll, Question
from aiolock._redis.quorum_member import Member
from aiolock._redis.quorum_notifier import QuorumNotifier
from aiolock._scripts import BALLOTS
from aiolock._types import milliseconds

FEWEST_SERVERS = 3
_TWO = "may be two at a time, with a vote each; give the servers by their addresses, and no replicas"
_LINGER = 0.25  # Seconds for servers to be told what a majority has answered by then.


def quorum_of(
    redises: Iterable[Redis | RedisCluster], config: LockConfig, longest_lease: float
) -> Callable[[Client], "QuorumBackend"]:
    """
    What connects a client to the servers of *redises*, which are borrowed; no I/O happens here.

    Raises:
        TypeError, ValueError: they are none that can be a quorum; the message says why.
    """
    servers: list[Redis] = []
    for redis in redises:
        check_borrowed(redis)
        if isinstance(redis, RedisCluster):
            raise TypeError("a quorum consists of single servers: a RedisCluster keeps locks by itself, LockClient(it)")
        if isinstance(redis.connection_pool, SentinelConnectionPool):
            raise TypeError(f"a quorum consists of single servers: what Sentinels name {_TWO}")
        servers.append(redis)
    if len(servers) < FEWEST_SERVERS:
        raise ValueError(f"a quorum needs {FEWEST_SERVERS} servers at least, better 3 or 5, not {len(servers)}")
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
    """Which server it is, by its settings."""
    settings = redis.connection_pool.connection_kwargs
    return str(settings.get("path") or f"{settings.get('host', 'localhost')}:{settings.get('port', 6379)}")


class QuorumBackend:
    """The backend of a quorum of *members*; no lease is longer than *longest_lease* seconds."""

    apart = False

    def __init__(self, members: Sequence[Member], longest_lease: float) -> None:
        self._members = members
        self._longest = milliseconds(longest_lease)
        self._clock = Clock()
        self._polls: dict[Call, Poll] = {}  # Those without an outcome.
        self._settled = asyncio.Event()  # There was none, since somebody began to wait for that.
        self.notifier: Notifier = QuorumNotifier([member.notifier for member in members])

    def submit(self, call: Call) -> None:
        if call.script in BALLOTS:
            poll: Poll = Election(call, self._members, self._over, self._clock, self._longest)
        else:
            poll = Question(call, self._members, self._over, FOLDS[call.script.fold])
        self._polls[call] = poll
        poll.ask()

    def withdraw(self, call: Call) -> bool:
        poll = self._polls.get(call)
        return poll is not None and poll.withdraw()

    def statistics(self) -> BackendStatistics:
        each = [member.statistics() for member in self._members]
        return BackendStatistics(
            pending=len(self._polls),
            connections=sum(one.connections for one in each),
            commands=sum(one.commands for one in each),
            batches=sum(one.batches for one in each),
        )

    async def drained(self) -> None:
        while self._polls:
            self._settled.clear()
            await self._settled.wait()
        with suppress(TimeoutError, BackendError):  # What a minority is not told, ends there with its lease.
            async with asyncio.timeout(_LINGER):
                for member in self._members:
                    await member.drained()

    async def aclose(self) -> None:
        for member in self._members:
            await member.aclose()

    def _over(self, poll: Poll) -> None:
        del self._polls[poll.call]
        if not self._polls:
            self._settled.set()
