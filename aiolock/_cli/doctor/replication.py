"""Replicas: whether they follow their primary, and whether each one could replace it."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from redis.exceptions import ResponseError

from aiolock._cli.doctor.check import Check, Status
from aiolock._cli.doctor.facts import Facts, answering
from aiolock._cli.doctor.permissions import try_permissions
from aiolock._cli.doctor.server import link
from aiolock._cli.probe import Address, Probe, SilentError, with_address
from aiolock._keys import LockKeys
from aiolock._redis.address import place

# After a longer silence Redis, by default, counts a replica as out of step.
_MOST_LAG = 10
_ACKNOWLEDGED = 1.0
_FORGETS = "A failover may forget the last grants: check tokens where you write."
_ADVICE: dict[Status, str] = {
    "error": "Two servers may grant the same lock: see which of them is the primary, and demote the other.",
    "warning": "After a failover it would be the primary: set it up as the primary is now.",
    "unknown": "See that it is set up as the primary is, and that clients reach it there.",
}


@dataclass(frozen=True, slots=True)
class Replica:
    """A replica as its primary sees it; *lag* is the seconds since the primary last heard of it."""

    address: Address
    state: str
    lag: int

    @property
    def trouble(self) -> str:
        """The reason why it is not in step; empty if it is."""
        if self.state != "online":
            return f"{place(*self.address)} is not in step: {self.state}"
        return f"{place(*self.address)} was not heard of for {self.lag} s" if self.lag > _MOST_LAG else ""


@dataclass(frozen=True, slots=True)
class Replicas:
    """
    The replicas of one primary.

    *connected* are the replicas that the primary reports, ``None`` if it does not; *named*, the addresses that a
    cluster or a Sentinel reports; *acknowledged*, the number of replicas that had a test write in time, ``None`` if
    that could not be tried.
    """

    connected: Sequence[Replica] | None
    named: frozenset[Address] = frozenset()
    acknowledged: int | None = None

    @property
    def addresses(self) -> list[Address]:
        """The addresses of all replicas."""
        return sorted(self.named or {replica.address for replica in self.connected or ()})


async def learn(probe: Probe, facts: Facts, keys: LockKeys | None, named: frozenset[Address]) -> Replicas:
    """Ask the primary, and see whether a test write arrives at its replicas, if it has any."""
    connected = _connected(facts)
    if not connected or keys is None:
        return Replicas(connected, named)
    return Replicas(connected, named, await _acknowledged(probe, keys.tokens, len(connected)))


def _connected(facts: Facts) -> list[Replica] | None:
    count = facts.number("connected_slaves")
    if count is None:
        return None
    lines = [facts.info.get(f"slave{number}", "") for number in range(count)]
    known = [dict(part.split("=", 1) for part in line.split(",") if "=" in part) for line in lines]
    return [
        Replica(
            address=(each.get("ip", "?"), int(each.get("port", "0"))),
            state=each.get("state", "online"),
            lag=int(each.get("lag", "0")),
        )
        for each in known
    ]


async def _acknowledged(probe: Probe, tokens: str, count: int) -> int | None:
    try:
        await probe.ask("ZADD", tokens, "0", "doctor")
        await probe.ask("PEXPIRE", tokens, "10000")
        heard = await probe.ask("WAIT", str(count), str(round(_ACKNOWLEDGED * 1000)))
        await probe.ask("ZREM", tokens, "doctor")
    except ResponseError:
        return None
    return int(heard)


def judge(replicas: Replicas, facts: Facts, *, in_a_cluster: bool) -> Check:
    """Whether the replicas follow their primary."""
    named, connected = len(replicas.named), replicas.connected
    if in_a_cluster and not named and not connected:
        return Check("replicas", "warning", "none", "If it dies, its names cannot be locked until it is back.")
    if connected is None:
        found = f"{named} by name; whether they follow is {facts.not_known}" if named else facts.not_known
        return Check("replicas", "unknown", found, "A failover to a replica may forget locks.")
    if not named and not connected:
        return Check("replicas", "ok", "none")
    heard = replicas.acknowledged
    troubles = [replica.trouble for replica in connected if replica.trouble]
    if named > len(connected):
        troubles.insert(0, f"there should be {named}")
    if heard is not None and heard < len(connected):
        troubles.append(f"{heard} acknowledged a write within {_ACKNOWLEDGED:g} s")
    found = f"{len(connected)} connected"
    if troubles:
        return Check("replicas", "warning", "; ".join([found, *troubles]), "See why: a failover may forget every lock.")
    return Check("replicas", "note", f"{found} and in step; they follow with a delay", _FORGETS)


@dataclass(frozen=True, slots=True)
class Successors:
    """The replicas as possible primaries; *url*, for its user and settings, and *keys* are those of the primary."""

    url: str
    facts: Facts
    keys: LockKeys
    in_a_cluster: bool
    sharded: bool

    async def judge(self, replicas: Replicas) -> Check:
        """Whether each replica could replace the primary."""
        addresses = replicas.addresses
        if replicas.connected is None and not addresses:
            return Check("failover", "unknown", self.facts.not_known, _ADVICE["unknown"])
        if not addresses:
            return Check("failover", "ok", "no replica to fail over to")
        found = await asyncio.gather(*map(self._examine, addresses))
        failed = [(place(*at), *each) for at, each in zip(addresses, found, strict=True) if each[0] != "ok"]
        for status, advice in _ADVICE.items():
            for where, came_to, said in failed:
                if came_to == status:
                    more = f"; {len(failed) - 1} more could not either" if len(failed) > 1 else ""
                    return Check("failover", status, f"{where} {said}{more}", advice)
        return Check("failover", "ok", "each replica lets the user in, and is set up as the primary is")

    async def _examine(self, address: Address) -> tuple[Status, str]:
        try:
            async with answering(with_address(self.url, address)) as replica:
                facts = replica.facts
                asked = try_permissions(replica.probe, self.keys, in_a_cluster=self.in_a_cluster, sharded=self.sharded)
                allowed = await asked
        except SilentError as error:
            return ("warning", f"refuses the user: {error}") if error.refused else ("unknown", f"is silent: {error}")
        if facts.info.get("role") == "master":
            return "error", "reports that it is a primary"
        troubles = [*self._differences(facts), *([allowed.found] if allowed.status == "error" else [])]
        if facts.info.get("master_link_status", "up") != "up":
            troubles.append(link(facts))
        return ("warning", f"differs: {', '.join(troubles)}") if troubles else ("ok", "")

    def _differences(self, facts: Facts) -> list[str]:
        """The settings that differ from the primary's."""
        pairs = {
            "maxmemory-policy": (facts.policy, self.facts.policy),
            "appendonly": (facts.append_only, self.facts.append_only),
        }
        known = {name: (theirs, ours) for name, (theirs, ours) in pairs.items() if theirs and ours}
        return [f"{name} {theirs} (the primary: {ours})" for name, (theirs, ours) in known.items() if theirs != ours]
