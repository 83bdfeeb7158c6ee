"""A single server, or the primary that a Sentinel names."""

from dataclasses import dataclass

from redis.asyncio import Redis

from aiolock._cli.doctor import replication, server, timing, trials
from aiolock._cli.doctor.check import Check
from aiolock._cli.doctor.facts import Facts
from aiolock._cli.doctor.permissions import try_permissions
from aiolock._cli.doctor.probe import Address, Probe
from aiolock._config import LockConfig, Timing
from aiolock._redis.address import database


@dataclass(frozen=True, slots=True)
class Single:
    """The server at *url*, with its client *redis*; *named* are the replicas that a Sentinel names, if there is one."""

    url: str
    redis: Redis
    config: LockConfig
    named: frozenset[Address] | None = None

    async def examine(self, checks: list[Check], probe: Probe, facts: Facts) -> None:
        """Add every check to *checks*, up to the one at which the server stops answering."""
        checks.append(await trials.try_database(probe, database(self.redis)))
        if checks[-1].status != "ok":
            return
        keys = trials.throw_away(self.config.prefix)
        checks += [check for check in server.judge(facts) if not self._told(check)]
        checks.append(await try_permissions(probe, keys))
        checks.append(await trials.try_lock(self.redis, probe, keys, self.config.prefix))
        checks.append(await trials.try_messages(self.redis, probe, keys))
        checks.append(await trials.try_sharded_messages(self.redis, probe, keys))
        known = await replication.learn(probe, facts, keys, self.named or frozenset())
        checks.append(replication.judge(known, facts, in_a_cluster=False))
        checks.append(await replication.Successors(self.url, facts, keys).judge(known))
        checks += await _time(self.redis, probe, Timing.of(self.config))

    def _told(self, check: Check) -> bool:
        """Whether the check of a Sentinel has reported the topology, and the server behind it is single as expected."""
        return self.named is not None and (check.name, check.status) == ("topology", "ok")


async def _time(redis: "Redis", probe: Probe, settings: Timing) -> list[Check]:
    samples = await timing.measure(probe)
    return [
        timing.judge_round_trip(samples, settings),
        timing.judge_clock(samples, settings),
        timing.judge_lease(settings),
        timing.judge_client(redis, settings),
    ]
