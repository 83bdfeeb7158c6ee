"""A single server, or the primary that a Sentinel names."""

from dataclasses import dataclass

from redis.asyncio import Redis

from aiolock._cli.doctor import replication, server, timing, trials
from aiolock._cli.doctor.check import Check
from aiolock._cli.doctor.facts import Facts
from aiolock._cli.doctor.permissions import try_permissions
from aiolock._cli.doctor.probe import Address, Probe, database
from aiolock._config import LockConfig, Timing


@dataclass(frozen=True, slots=True)
class Single:
    """The one at *url*, which *redis* is for; *named* are the replicas that it should have, if a Sentinel says so."""

    url: str
    redis: Redis
    config: LockConfig
    named: frozenset[Address] | None = None

    async def examine(self, checks: list[Check], probe: Probe, facts: Facts) -> None:
        """Add every check to *checks*, up to that at which the server falls silent."""
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
        """The Sentinel is the topology then, unless what it names is no single server."""
        return self.named is not None and (check.name, check.status) == ("topology", "ok")


async def _time(redis: "Redis", probe: Probe, settings: Timing) -> list[Check]:
    samples = await timing.measure(probe)
    return [
        timing.judge_round_trip(samples, settings),
        timing.judge_clock(samples, settings),
        timing.judge_lease(settings),
        timing.judge_client(redis, settings),
    ]
