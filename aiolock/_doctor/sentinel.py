"""What a Sentinel says of the primaries that it watches; it keeps no locks itself."""

from redis.exceptions import ResponseError

from aiolock._doctor.check import Check
from aiolock._doctor.probe import Probe, place

_ADVICE = "Check the primary, by its own address. Give LockClient what sentinel.master_for(name) makes."


async def judge(probe: Probe) -> Check:
    """The one check of a Sentinel."""
    found = "a Sentinel, which keeps no locks"
    try:
        watched = [_described(primary) for primary in await probe.ask("SENTINEL", "MASTERS")]
    except ResponseError:
        return Check("topology", "error", found, _ADVICE)
    return Check("topology", "error", f"{found}; it watches {', '.join(watched) or 'nothing'}", _ADVICE)


def _described(primary: list[bytes]) -> str:
    known = dict(zip(primary[::2], primary[1::2], strict=False))
    return f"{known[b'name'].decode()} at {place(known[b'ip'].decode(), int(known[b'port']))}"
