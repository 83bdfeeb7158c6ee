"""What a Sentinel says of the primaries that it watches; it keeps no locks itself."""

from collections.abc import Sequence
from dataclasses import dataclass

from redis.exceptions import ResponseError

from aiolock._cli.doctor.check import Check
from aiolock._cli.doctor.probe import Address, Probe, place

NONE = "--primary says which primary of a Sentinel is meant, and the URL leads to no Sentinel"
_GIVE = "Give LockClient what sentinel.master_for(name) makes."
_DOWN = ("s_down", "o_down", "failover_in_progress")


@dataclass(frozen=True, slots=True)
class Watched:
    """A primary that the Sentinel watches, and its replicas; *flags* are what it holds for wrong with it."""

    name: str
    address: Address
    flags: Sequence[str]
    sentinels: int
    replicas: frozenset[Address]
    astray: Sequence[Address]
    """Replicas that say that they are primaries: they were, and are not demoted yet."""


async def learn(probe: Probe) -> list[Watched]:
    """Everything that it watches, by name; `ResponseError` if it does not say."""
    primaries = map(_fields, await probe.ask("SENTINEL", "MASTERS"))
    return [await _watched(probe, each) for each in sorted(primaries, key=lambda known: known["name"])]


async def _watched(probe: Probe, known: dict[str, str]) -> Watched:
    replicas = [_fields(each) for each in await probe.ask("SENTINEL", "REPLICAS", known["name"])]
    flags = set(known.get("flags", "").split(","))
    return Watched(
        known["name"],
        _address(known),
        [flag for flag in _DOWN if flag in flags],
        1 + int(known.get("num-other-sentinels", "0")),
        frozenset(map(_address, replicas)),
        [_address(each) for each in replicas if each.get("role-reported") == "master"],
    )


def _fields(reply: Sequence[bytes]) -> dict[str, str]:
    words = [word.decode(errors="replace") for word in reply]
    return dict(zip(words[::2], words[1::2], strict=False))


def _address(known: dict[str, str]) -> Address:
    return known["ip"], int(known["port"])


def refused(error: ResponseError) -> Check:
    """It does not say what it watches."""
    found = f"a Sentinel, which keeps no locks, and does not say what it watches: {error}"
    return Check("topology", "error", found, f"Check the primary, by its own address. {_GIVE}")


def chosen(watched: Sequence[Watched], name: str | None) -> Watched | None:
    """The one called *name*; the only one if none is named."""
    wanted = [each for each in watched if name in (None, each.name)]
    return wanted[0] if len(wanted) == 1 else None


def undecided(watched: Sequence[Watched], name: str | None) -> Check:
    """None is `chosen`."""
    listed = ", ".join(f"{each.name} at {place(*each.address)}" for each in watched) or "nothing"
    which = f", and no {name}" if name is not None else ""
    found = f"a Sentinel, which keeps no locks; it watches {listed}{which}"
    return Check("topology", "error", found, f"Say which is to be checked: --primary NAME. {_GIVE}")


def judge(primary: Watched) -> Check:
    """What it says of the primary that is checked."""
    found = (
        f"a Sentinel of {primary.sentinels}; its {primary.name} is {place(*primary.address)}, "
        f"with replicas {len(primary.replicas)}"
    )
    if primary.astray:
        said = ", ".join(place(*each) for each in primary.astray)
        advice = "It was the primary and is not demoted yet: two may grant the same lock. Check again in some seconds."
        return Check("topology", "error", f"{found}; {said} takes itself for a primary, too", advice)
    if primary.flags:
        advice = "It is down, or being replaced: check again in some seconds."
        return Check("topology", "error", f"{found}; flags {', '.join(primary.flags)}", advice)
    return Check("topology", "ok", found)
