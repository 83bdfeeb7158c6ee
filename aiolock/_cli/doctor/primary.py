"""One primary, examined: a single server, the one that a Sentinel names, or one of a cluster."""

from dataclasses import dataclass

from redis.asyncio import Redis, RedisCluster

from aiolock._cli.doctor import replication, timing, trials
from aiolock._cli.doctor.check import Check
from aiolock._cli.doctor.facts import Answering
from aiolock._cli.doctor.permissions import try_permissions
from aiolock._cli.doctor.probe import Address
from aiolock._config import LockConfig, Timing
from aiolock._keys import LockKeys


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
