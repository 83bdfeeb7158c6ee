"""
valkey-glide has no lock: this is the one that many write by hand, with `SET NX PX` and a script that deletes.

It polls every 0.1 s, as redis-py's Lock does, is not renewed, and has no fencing token.
"""

import asyncio
import uuid
from urllib.parse import urlsplit

from glide import (
    ConditionalChange,
    ExpirySet,
    ExpiryType,
    GlideClient,
    GlideClientConfiguration,
    NodeAddress,
    Script,
)

from benchmarks.peers.adapter import Lock, Peer

_POLL = 0.1
_RELEASE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
"""


class ValkeyGlide(Peer):
    """One client with its defaults, which sends all commands over one connection."""

    poll = _POLL

    async def open(self) -> None:
        place = urlsplit(self.url)
        address = NodeAddress(place.hostname or "127.0.0.1", place.port or 6379)
        self.client = await GlideClient.create(GlideClientConfiguration([address]))
        self.script = Script(_RELEASE)
        self.expiry = ExpirySet(ExpiryType.MILLSEC, round(self.lease * 1000))

    async def close(self) -> None:
        await self.client.close()

    def lock(self, name: str) -> Lock:
        return _Section(self, name)


class _Section(Lock):
    def __init__(self, peer: ValkeyGlide, name: str) -> None:
        self._peer = peer
        self._name = name

    async def __aenter__(self) -> None:
        self._token = uuid.uuid4().hex
        while True:
            if await self._set():
                return
            await asyncio.sleep(_POLL)

    async def __aexit__(self, *_: object) -> None:
        if not await self._peer.client.invoke_script(self._peer.script, [self._name], [self._token]):
            raise RuntimeError("the lock was lost")

    async def _set(self) -> object:
        absent, expiry = ConditionalChange.ONLY_IF_DOES_NOT_EXIST, self._peer.expiry
        return await self._peer.client.set(self._name, self._token, absent, expiry)
