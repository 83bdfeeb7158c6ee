"""`run`: every check in its turn, the report, the exit code."""

import asyncio
import logging
import signal
import sys
from contextlib import suppress

from redis.asyncio import Redis, RedisCluster
from redis.exceptions import RedisClusterException, ResponseError

from aiolock._config import LockConfig, Timing
from aiolock._connector import Connector
from aiolock._doctor import cluster, permissions, sentinel, server, timing, trials
from aiolock._doctor.advice import on_refusal
from aiolock._doctor.check import Check
from aiolock._doctor.facts import Facts, gather
from aiolock._doctor.primaries import Primaries
from aiolock._doctor.probe import PATIENCE, Probe, SilentError, address, database
from aiolock._doctor.report import Report
from aiolock._output import ReaderGoneError, write
from aiolock._types import LockKeys


class _UsageError(Exception):
    """What was asked for cannot be done."""


def run(url: str, *, lease: float, prefix: str, as_json: bool) -> int:
    """Examine the server at *url* as a client with that *lease* and *prefix* would use it; the exit code."""
    # A shell that starts us in the background has SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    logging.getLogger("aiolock").addHandler(logging.NullHandler())  # What the trial lock's client logs, a check tells.
    try:
        report = asyncio.run(report_on(url, lease, prefix))
    except _UsageError as error:
        print(f"aiolock: {error}", file=sys.stderr)
        return 2
    with suppress(ReaderGoneError):  # Who saw enough may still ask for the verdict.
        write(report.json() if as_json else report.text())
    return 0 if report.fit else 1


async def report_on(url: str, lease: float, prefix: str) -> Report:
    try:
        config = LockConfig(lease=lease, prefix=prefix)
        keys = trials.throw_away(prefix)
    except ValueError as error:
        raise _UsageError(error) from error
    async with _client(url) as redis:
        return Report(address(redis), lease, await _examine(url, redis, keys, config))


def _client(url: str) -> "Redis":
    try:
        redis = Redis.from_url(url)
        Connector.of(redis, None, PATIENCE)
    except (TypeError, ValueError) as error:  # What it says may quote the password.
        raise _UsageError(
            "redis-py cannot use this URL. It begins with redis://, rediss:// or unix://, has only settings that "
            "redis-py knows, and special characters of a password are percent-encoded"
        ) from error
    return redis


async def _examine(url: str, redis: "Redis", keys: LockKeys, config: LockConfig) -> list[Check]:
    """The checks, up to the one at which the server falls silent, if it does."""
    checks: list[Check] = []
    try:
        async with Probe(redis) as probe:
            await probe.greet()
            checks.append(Check("reachable", "ok", "it answers"))
            facts = await gather(probe)
            if facts.mode == "sentinel":
                return [*checks, await sentinel.judge(probe)]
            if facts.mode == "cluster":
                return [*checks, *await _examine_cluster(url, redis, probe, facts, config)]
            checks.append(await trials.try_database(probe, database(redis)))
            if checks[-1].status != "ok":
                return checks
            checks += server.judge(facts)
            checks.append(await permissions.try_permissions(probe, keys))
            checks.append(await trials.try_lock(redis, probe, keys, config.prefix))
            checks.append(await trials.try_messages(redis, probe, keys))
            checks.append(await trials.try_sharded_messages(redis, probe, keys))
            checks += await _time(redis, probe, Timing.of(config))
    except SilentError as error:
        checks.append(Check("answering" if checks else "reachable", "error", str(error), error.advice))
    return checks


async def _examine_cluster(url: str, redis: "Redis", probe: Probe, facts: Facts, config: LockConfig) -> list[Check]:
    if number := database(redis):
        advice = "A cluster has only database 0 for its clients: leave the database out of the URL."
        return [Check("topology", "error", f"a cluster, and the URL names database {number}", advice)]
    try:
        client = RedisCluster.from_url(url)
    except (TypeError, RedisClusterException):
        advice = "Give host and port of a node, and no setting that a RedisCluster lacks: no unix socket."
        return [Check("topology", "error", "a cluster, and redis-py makes no RedisCluster of this URL", advice)]
    [seed] = client.nodes_manager.startup_nodes.values()
    try:
        found = await cluster.learn(probe, facts, (seed.host, int(seed.port)))
    except ResponseError as error:
        return [Check("topology", "error", f"a cluster that does not say who owns what: {error}", on_refusal(error))]
    checks = cluster.judge(found) + await Primaries(url, client, found, config).examine()
    settings = Timing.of(config)
    return [*checks, timing.judge_lease(settings), timing.judge_client(redis, settings)]


async def _time(redis: "Redis", probe: Probe, settings: Timing) -> list[Check]:
    samples = await timing.measure(probe)
    return [
        timing.judge_round_trip(samples, settings),
        timing.judge_clock(samples, settings),
        timing.judge_lease(settings),
        timing.judge_client(redis, settings),
    ]
