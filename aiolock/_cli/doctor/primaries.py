"""One primary, examined by itself, and all primaries of a cluster, whose results are merged."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import uuid4

from redis.asyncio import Redis, RedisCluster
from redis.crc import key_slot

from aiolock._cli.doctor import replication, server, timing, trials
from aiolock._cli.doctor.check import Check
from aiolock._cli.doctor.cluster import Cluster, compare, find_migrations
from aiolock._cli.doctor.facts import Answering, answering
from aiolock._cli.doctor.permissions import try_permissions
from aiolock._cli.probe import Address, SilentError, with_address
from aiolock._config import LockConfig, Timing
from aiolock._keys import LockKeys
from aiolock._redis.address import place

_WORST_FIRST = ("error", "warning", "unknown", "note", "ok")
# One name in 16,384 is in a given slot.
_TRIES = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Primary:
    """
    The primary that *answers*; locks are taken with *client*.

    *keys* are those of a throw-away lock, ``None`` if this primary can have none. *named* are the replicas that a
    cluster or a Sentinel names. In a *sharded* cluster, messages stay on the server of their slot.
    """

    answers: Answering
    client: Redis | RedisCluster
    config: LockConfig
    keys: LockKeys | None
    named: frozenset[Address]
    in_a_cluster: bool = False
    sharded: bool = False

    async def examine(self, checks: list[Check]) -> None:
        """Add every check of it to *checks*, up to the one at which the server stops answering."""
        if self.keys is not None:
            await self._try(checks, self.keys)
        probe, facts = self.answers.probe, self.answers.facts
        replicas = await replication.learn(probe, facts, self.keys, self.named)
        checks.append(replication.judge(replicas, facts, in_a_cluster=self.in_a_cluster))
        if self.keys is not None:
            successors = replication.Successors(self.answers.url, facts, self.keys, self.in_a_cluster, self.sharded)
            checks.append(await successors.judge(replicas))
        samples, settings = await timing.measure(probe), Timing.of(self.config)
        checks += [timing.judge_round_trip(samples, settings), timing.judge_clock(samples, settings)]

    async def _try(self, checks: list[Check], keys: LockKeys) -> None:
        probe = self.answers.probe
        allowed = try_permissions(probe, keys, in_a_cluster=self.in_a_cluster, sharded=self.sharded)
        checks.append(await allowed)
        checks.append(await trials.try_lock(self.client, probe, keys, self.config.prefix))
        for kind in trials.messages(in_a_cluster=self.in_a_cluster, sharded=self.sharded):
            checks.append(await kind.attempt(self.answers.redis, probe, keys.channel))


@dataclass(frozen=True, slots=True)
class Primaries:
    """The primaries of the *cluster* behind *url*."""

    url: str
    client: RedisCluster
    cluster: Cluster
    config: LockConfig

    async def examine(self) -> list[Check]:
        """Every check, merged over all primaries."""
        names = throw_away(self.cluster, self.config.prefix)
        found = await asyncio.gather(*(self._examine(each, names.get(each)) for each in self.cluster.slots))
        return merged(dict(zip(self.cluster.slots, found, strict=True)))

    async def _examine(self, address: Address, keys: LockKeys | None) -> list[Check]:
        """The checks of one primary, up to the one at which it stops answering, if it does."""
        checks: list[Check] = []
        try:
            async with answering(with_address(self.url, address)) as primary:
                checks += server.judge_primary(primary.facts)
                checks += [await compare(primary.probe, self.cluster), await find_migrations(primary.probe)]
                examined = Primary(
                    answers=primary,
                    client=self.client,
                    config=self.config,
                    keys=keys,
                    named=frozenset(self.cluster.replicas[address]),
                    in_a_cluster=True,
                    sharded=self.cluster.sharded,
                )
                await examined.examine(checks)
        except SilentError as error:
            checks.append(Check("answering", "error", str(error), error.advice))
        return checks


def throw_away(cluster: Cluster, prefix: str) -> Mapping[Address, LockKeys]:
    """A throw-away lock on each primary that can have locks with that *prefix*; a hash tag keeps its keys on one."""
    owners = {slot: address for address, slots in cluster.slots.items() for slot in slots}
    name = f"aiolock-doctor:{uuid4()}"
    found: dict[Address, LockKeys] = {}
    for number in range(_TRIES):
        owner = owners.get(key_slot(f"{prefix}{name}:{number}".encode()))
        if owner is not None and owner not in found:
            found[owner] = LockKeys.of(f"{name}:{number}", prefix)
            if len(found) == len(cluster.slots):
                break
    return found


def merged(found: Mapping[Address, Sequence[Check]]) -> list[Check]:
    """The worst result of each check over all servers, with the address of the server that had it."""
    by_name: dict[str, list[tuple[Address, Check]]] = {}
    # The server with the most checks comes first, and gives the order of their names.
    for address, checks in sorted(found.items(), key=lambda one: len(one[1]), reverse=True):
        for check in checks:
            by_name.setdefault(check.name, []).append((address, check))
    return [_worst(each, len(found)) for each in by_name.values()]


def _worst(each: Sequence[tuple[Address, Check]], primaries: int) -> Check:
    address, worst = min(each, key=lambda one: _WORST_FIRST.index(one[1].status))
    alike = sum(check.status == worst.status for _, check in each)
    if alike == len(each) > 1 and len({check.found for _, check in each}) == 1:
        where, others = f"all {alike} primaries" if alike == primaries else f"{alike} of {primaries} primaries", ""
    else:
        where, others = place(*address), f"; {alike - 1} more like it" if alike > 1 else ""
    return Check(worst.name, worst.status, f"{where}: {worst.found}{others}", worst.advice)
