"""Several servers of one quorum: checks of each server, and of their independence."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations
from time import monotonic

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from aiolock._cli.doctor.check import Check
from aiolock._cli.doctor.examination import Examination
from aiolock._cli.doctor.facts import Facts, answering
from aiolock._cli.probe import SilentError
from aiolock._config import LockConfig, Timing
from aiolock._core.hold import margin
from aiolock._redis.address import address
from aiolock._redis.quorum.backend import FEWEST_SERVERS


@dataclass(frozen=True, slots=True)
class Member:
    """A server, its facts, and the seconds by which its clock is ahead of the monotonic clock, if it says."""

    address: str
    facts: Facts
    clock: float | None

    @property
    def life(self) -> str | None:
        """The id of the server's run, which no other server has."""
        return self.facts.info.get("run_id")

    @property
    def primary(self) -> str | None:
        """The address of the primary that it replicates."""
        host, port = self.facts.info.get("master_host"), self.facts.info.get("master_port")
        return None if host is None else f"{host}:{port}"


async def examine(servers: Sequence[tuple[str, "Redis"]], config: LockConfig) -> list[Check]:
    """The checks of all *servers*, each with its URL."""
    each = await asyncio.gather(*(Examination(url, redis, config, of_a_quorum=True).run() for url, redis in servers))
    checks = [check for (_, redis), found in zip(servers, each, strict=True) for check in _in_short(redis, found)]
    members = [member for url, _ in servers if (member := await _asked(url)) is not None]
    return [*checks, *judge(members, len(servers), Timing.of(config))]


def _in_short(redis: "Redis", checks: Sequence[Check]) -> list[Check]:
    """One line for a server without problems, or a line for each problem."""
    wrong = [
        Check(check.name, check.status, f"{address(redis)}: {check.found}", check.advice)
        for check in checks
        if check.status in ("error", "warning")
    ]
    ok = Check("server", "ok", f"{address(redis)}: {len(checks)} checks, nothing is wrong")
    return wrong or [ok]


async def _asked(url: str) -> Member | None:
    with suppress(SilentError):
        async with answering(url) as server:
            sent, clock = monotonic(), None
            with suppress(ResponseError):
                clock = await server.probe.time() - (sent + monotonic()) / 2
            return Member(address(server.redis), server.facts, clock)
    # The examination of this server reports it.
    return None


def judge(members: Sequence[Member], number: int, timing: Timing) -> list[Check]:
    """Whether *number* servers, of which the *members* answer, are a good quorum."""
    return [_size(number), _independence(members, number), _clocks(members, number, timing), _restarts(members)]


def _size(number: int) -> Check:
    if number < FEWEST_SERVERS:
        return Check("quorum", "error", f"{number} servers", "Use three, or five.")
    if number % 2 == 0:
        found = f"{number} servers, of which {(number - 1) // 2} may fail"
        return Check("quorum", "note", found, "One fewer is as good: use an odd number.")
    return Check("quorum", "ok", f"{number} servers, of which {(number - 1) // 2} may fail")


def _independence(members: Sequence[Member], number: int) -> Check:
    name = "independence"
    for one, another in combinations(members, 2):
        if one.life is not None and one.life == another.life:
            found = f"{one.address} and {another.address} are the same server"
            return Check(name, "error", found, "Give each server once.")
    replicas = [f"{member.address} replicates {member.primary}" for member in members if member.primary is not None]
    if replicas:
        return Check(name, "error", "; ".join(replicas), "Each must be a primary of its own: REPLICAOF NO ONE.")
    if sum(member.life is not None for member in members) < number:
        advice = "See that each answers and allows INFO, and that no two are the same."
        return Check(name, "unknown", "not all of them say their run id", advice)
    return Check(name, "ok", "all are different, and none replicates another")


def _clocks(members: Sequence[Member], number: int, timing: Timing) -> Check:
    clocks = [member.clock for member in members if member.clock is not None]
    if len(clocks) < number:
        return Check("clocks", "unknown", "not all of them say their time", "See that each answers, and allow TIME.")
    apart, allowed = max(clocks) - min(clocks), margin(timing.lease, timing)
    found = f"{apart:.3g} s apart"
    if apart > timing.lease:
        return Check("clocks", "error", found, "Tokens could fall behind when a server crashes: synchronize them.")
    if apart > allowed:
        return Check("clocks", "warning", found, f"More than the margin of {allowed:.3g} s: synchronize them.")
    return Check("clocks", "ok", found)


def _restarts(members: Sequence[Member]) -> Check:
    kept = sum(member.facts.append_only == "yes" for member in members)
    found = f"{kept} of {len(members)} keep an append-only file; none has a vote at first after a restart"
    return Check("restarts", "ok", found)
