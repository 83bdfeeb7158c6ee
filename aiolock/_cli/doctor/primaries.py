"""Every primary of a cluster, examined like a single server, and the merged result for the cluster."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import uuid4

from redis.asyncio import RedisCluster
from redis.crc import key_slot

from aiolock._cli.doctor import server
from aiolock._cli.doctor.check import Check
from aiolock._cli.doctor.cluster import Cluster, compare, find_migrations
from aiolock._cli.doctor.facts import answering
from aiolock._cli.doctor.primary import Primary
from aiolock._cli.doctor.probe import Address, SilentError, with_address
from aiolock._config import LockConfig
from aiolock._keys import LockKeys
from aiolock._redis.address import place

_WORST_FIRST = ("error", "warning", "unknown", "note", "ok")
_TRIES = 200_000  # Names; one in 16,384 is in a given slot.


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
    for address, checks in sorted(found.items(), key=lambda one: len(one[1]), reverse=True):  # For the order of names.
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
