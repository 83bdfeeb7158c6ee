"""The checks of a URL's target: a single server, a cluster, or a Sentinel."""

from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from redis.asyncio import Redis, RedisCluster
from redis.exceptions import RedisClusterException, ResponseError

from aiolock._cli.advice import on_refusal
from aiolock._cli.doctor import cluster, sentinel, server, timing, trials
from aiolock._cli.doctor.check import Check
from aiolock._cli.doctor.facts import Answering, Facts, answering, gather
from aiolock._cli.doctor.primaries import Primaries, Primary
from aiolock._cli.doctor.sentinel import Watched
from aiolock._cli.probe import Probe, SilentError, with_address
from aiolock._cli.way_in import entered
from aiolock._config import LockConfig, Timing
from aiolock._redis.address import database

_NOT_SINGLE = {"sentinel": "a Sentinel, which keeps no locks", "cluster": "a node of a cluster"}


@dataclass(slots=True)
class Examination:
    """
    The checks of *url* and of *redis*, made from it.

    *primary* is the name of a primary that a Sentinel watches. A server *of_a_quorum* has to be a single one.
    """

    url: str
    redis: Redis
    config: LockConfig
    primary: str | None = None
    of_a_quorum: bool = False
    checks: list[Check] = field(default_factory=list)

    async def run(self) -> list[Check]:
        """The checks, up to the one at which the server stops answering, if it does."""
        try:
            async with AsyncExitStack() as stack:
                await self._examine((await entered(stack, self.url, self.redis)).probe)
        except SilentError as error:
            name = "answering" if self.checks else "reachable"
            self.checks.append(Check(name, "error", str(error), error.advice))
        return self.checks

    async def _examine(self, probe: Probe) -> None:
        self.checks.append(Check("reachable", "ok", "it answers"))
        facts = await gather(probe)
        if self.of_a_quorum and facts.mode in _NOT_SINGLE:
            self._fail(_NOT_SINGLE[facts.mode], "A quorum consists of single servers: give the address of one.")
        elif facts.mode == "sentinel":
            await self._examine_what_it_watches(probe)
        elif self.primary is not None:
            self._fail(sentinel.NONE, "Leave --primary out, or give the URL of a Sentinel.")
        elif facts.mode == "cluster":
            await self._examine_cluster(probe, facts)
        else:
            await self._examine_one(Answering(self.url, self.redis, probe, facts))

    async def _examine_what_it_watches(self, probe: Probe) -> None:
        try:
            watched = await sentinel.learn(probe)
        except ResponseError as error:
            self.checks.append(sentinel.refused(error))
            return
        chosen = sentinel.chosen(watched, self.primary)
        if chosen is None:
            self.checks.append(sentinel.undecided(watched, self.primary))
            return
        self.checks.append(sentinel.judge(chosen))
        async with answering(with_address(self.url, chosen.address)) as primary:
            await self._examine_one(primary, chosen)

    async def _examine_one(self, single: Answering, watched: Watched | None = None) -> None:
        """Examine a single server, or the primary that a Sentinel has *watched*."""
        self.checks.append(await trials.try_database(single.probe, database(single.redis)))
        if self.checks[-1].status != "ok":
            return
        # The check of a Sentinel has reported the topology, unless the server behind it is not single as expected.
        told = ("topology", "ok") if watched is not None else None
        self.checks += [check for check in server.judge(single.facts) if (check.name, check.status) != told]
        primary = Primary(
            answers=single,
            client=single.redis,
            config=self.config,
            keys=trials.throw_away(self.config.prefix),
            named=watched.replicas if watched is not None else frozenset(),
        )
        await primary.examine(self.checks)
        self._judge_settings(single.redis)

    async def _examine_cluster(self, probe: Probe, facts: Facts) -> None:
        if number := database(self.redis):
            advice = "A cluster has only database 0 for its clients: leave the database out of the URL."
            self._fail(f"a cluster, and the URL names database {number}", advice)
            return
        try:
            client = RedisCluster.from_url(self.url)
        except (TypeError, RedisClusterException):
            advice = "Give host and port of a node, and no setting that a RedisCluster lacks: no unix socket."
            self._fail("a cluster, and redis-py cannot use this URL for one", advice)
            return
        [seed] = client.nodes_manager.startup_nodes.values()
        try:
            found = await cluster.learn(probe, (seed.host, int(seed.port)))
        except ResponseError as error:
            self._fail(f"a cluster that does not list the owners of slots: {error}", on_refusal(error))
            return
        self.checks += await cluster.judge(probe, found, facts)
        self.checks += await Primaries(self.url, client, found, self.config).examine()
        self._judge_settings(self.redis)

    def _judge_settings(self, redis: Redis) -> None:
        settings = Timing.of(self.config)
        self.checks += [timing.judge_lease(settings), timing.judge_client(redis, settings)]

    def _fail(self, found: str, advice: str) -> None:
        self.checks.append(Check("topology", "error", found, advice))
