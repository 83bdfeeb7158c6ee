"""Every primary of a cluster, examined like a single server, and what that comes to for the whole."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit
from uuid import uuid4

from redis.asyncio import Redis, RedisCluster
from redis.crc import key_slot

from aiolock._config import LockConfig, Timing
from aiolock._doctor import server, timing, trials
from aiolock._doctor.check import Check
from aiolock._doctor.cluster import Address, Cluster
from aiolock._doctor.facts import gather
from aiolock._doctor.permissions import try_permissions
from aiolock._doctor.probe import Probe, SilentError, place
from aiolock._types import LockKeys

_WORST_FIRST = ("error", "warning", "unknown", "note", "ok")
_TRIES = 200_000  # Names; of one slot among all, one in 16,384 is in it.


@dataclass(frozen=True, slots=True)
class Primaries:
    """Those of the *cluster* that *url* leads to."""

    url: str
    client: RedisCluster
    cluster: Cluster
    config: LockConfig

    async def examine(self) -> list[Check]:
        """Every check, each once for all of them."""
        names = throw_away(self.cluster, self.config.prefix)
        found = await asyncio.gather(*(self._examine(each, names.get(each)) for each in self.cluster.slots))
        return merged(dict(zip(self.cluster.slots, found, strict=True)))

    async def _examine(self, address: Address, keys: LockKeys | None) -> list[Check]:
        """The checks of one, up to the one at which it falls silent, if it does."""
        checks: list[Check] = []
        settings = Timing.of(self.config)
        async with Redis.from_url(with_address(self.url, address)) as redis:
            try:
                async with Probe(redis) as probe:
                    await probe.greet()
                    checks += server.judge_primary(await gather(probe))
                    if keys is not None:
                        sharded = self.cluster.sharded
                        letter = "S" if sharded else ""
                        checks.append(await try_permissions(probe, keys, letter, in_a_cluster=True))
                        checks.append(await trials.try_lock(self.client, probe, keys, self.config.prefix))
                        checks.append(await trials.try_messages_of_a_cluster(redis, probe, keys, sharded=sharded))
                    samples = await timing.measure(probe)
                    checks.append(timing.judge_round_trip(samples, settings))
                    checks.append(timing.judge_clock(samples, settings))
            except SilentError as error:
                checks.append(Check("answering", "error", str(error), error.advice))
        return checks


def with_address(url: str, address: Address) -> str:
    """The same *url* for another server."""
    parts = urlsplit(url)
    user, at, _ = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user}{at}{place(*address)}").geturl()


def throw_away(cluster: Cluster, prefix: str) -> Mapping[Address, LockKeys]:
    """A lock that nobody else has, on each primary on which one with that *prefix* can be: a tag keeps all on one."""
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
    """Of each check the worst that any of the servers came to, with the server that did."""
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
