"""Keys that must not be left on the servers when the workers rest, and when the longest lease is over."""

from collections.abc import Iterator, Sequence

from redis import Redis

from aiolock._embedded_server import Server
from aiolock._keys import OWN_KEYS
from tests.support.topologies import ask, wait_until

_PATIENCE = 5.0
# Sentinels have a channel of their own on every server.
_OURS = "redisson_lock__channel:*"


def subscriptions(servers: Sequence[Server]) -> Iterator[str]:
    """Channels that still have a subscriber, though nobody waits."""
    for server in servers:
        if found := _channels(server):
            yield f"left: subscriptions on port {server.port}, {found}"


def keys(primaries: Sequence[Server], longest: float) -> Iterator[str]:
    """Keys that no lease explains; *longest* is the longest lease."""
    try:
        wait_until(lambda: not any(map(_locks, primaries)), "every lock is free", longest + _PATIENCE)
    except AssertionError:
        yield f"left: locks, {[key for primary in primaries for key in _locks(primary)]}"
    for primary in primaries:
        with Redis.from_url(primary.url, decode_responses=True) as client:
            for key in client.scan_iter():
                if client.ttl(key) == -1:
                    yield f"left: a key without a time to live, {key!r}"


def _channels(server: Server) -> list[str]:
    return [channel for kind in ("CHANNELS", "SHARDCHANNELS") for channel in ask(server, "PUBSUB", kind, _OURS)]


def _locks(server: Server) -> list[str]:
    with Redis.from_url(server.url, decode_responses=True) as client:
        return [key for key in client.scan_iter() if not key.startswith(OWN_KEYS) and client.exists(key)]
