"""The primaries that a Sentinel watches, as it reports them; it keeps no locks itself."""

from collections.abc import Sequence
from dataclasses import dataclass

from redis.exceptions import ResponseError

from aiolock._cli.doctor.check import Check
from aiolock._cli.probe import Address, Probe, pairs
from aiolock._redis.address import place

NONE = "--primary says which primary of a Sentinel is meant, and the URL leads to no Sentinel"
_GIVE = "Give LockClient the result of sentinel.master_for(name)."
_DOWN = ("s_down", "o_down", "failover_in_progress")


@dataclass(frozen=True, slots=True)
class Watched:
    """A primary that the Sentinel watches, and its replicas; *flags* are the problems that the Sentinel sees."""

    name: str
    address: Address
    flags: Sequence[str]
    sentinels: int
    replicas: frozenset[Address]
    astray: Sequence[Address]
    """Replicas that report the role of a primary: they had it before a failover, and are not demoted yet."""


async def learn(probe: Probe) -> list[Watched]:
    """Every primary that it watches, ordered by name; `ResponseError` if it refuses the question."""
    primaries = map(pairs, await probe.ask("SENTINEL", "MASTERS"))
    return [await _watched(probe, each) for each in sorted(primaries, key=lambda known: known["name"])]


async def _watched(probe: Probe, known: dict[str, str]) -> Watched:
    replicas = [pairs(each) for each in await probe.ask("SENTINEL", "REPLICAS", known["name"])]
    flags = set(known.get("flags", "").split(","))
    return Watched(
        known["name"],
        _address(known),
        [flag for flag in _DOWN if flag in flags],
        1 + int(known.get("num-other-sentinels", "0")),
        frozenset(map(_address, replicas)),
        [_address(each) for each in replicas if each.get("role-reported") == "master"],
    )


def _address(known: dict[str, str]) -> Address:
    return known["ip"], int(known["port"])


async def others(probe: Probe, primary: Watched) -> list[Address]:
    """The other Sentinels that watch the *primary*."""
    return [_address(pairs(each)) for each in await probe.ask("SENTINEL", "SENTINELS", primary.name)]


def refused(error: ResponseError) -> Check:
    """The result if the Sentinel refuses to list its primaries."""
    found = f"a Sentinel, which keeps no locks, and does not list its primaries: {error}"
    return Check("topology", "error", found, f"Check the primary, by its own address. {_GIVE}")


def chosen(watched: Sequence[Watched], name: str | None) -> Watched | None:
    """The primary called *name*, or the only one if *name* is ``None``."""
    wanted = [each for each in watched if name in (None, each.name)]
    return wanted[0] if len(wanted) == 1 else None


def undecided(watched: Sequence[Watched], name: str | None) -> Check:
    """The result if no primary is `chosen`."""
    listed = ", ".join(f"{each.name} at {place(*each.address)}" for each in watched) or "nothing"
    which = f", and no {name}" if name is not None else ""
    found = f"a Sentinel, which keeps no locks; it watches {listed}{which}"
    return Check("topology", "error", found, f"Say which is to be checked: --primary NAME. {_GIVE}")


def judge(primary: Watched) -> Check:
    """The result for the chosen primary, as the Sentinel reports it."""
    found = (
        f"a Sentinel ({primary.sentinels} in all); it says that the primary {primary.name!r} is "
        f"{place(*primary.address)}, with {len(primary.replicas)} replica{'' if len(primary.replicas) == 1 else 's'}"
    )
    if primary.astray:
        said = ", ".join(place(*each) for each in primary.astray)
        advice = "It was the primary and is not demoted yet: both may grant the same lock. Check again in some seconds."
        return Check("topology", "error", f"{found}; {said} reports that it is a primary, too", advice)
    if primary.flags:
        advice = "It is down, or being replaced: check again in some seconds."
        return Check("topology", "error", f"{found}; flags {', '.join(primary.flags)}", advice)
    return Check("topology", "ok", found)
