"""Baseline of the hand-off: the release script with its PUBLISH, a subscriber, the acquire script; nothing else.

The subscription exists from the start, and nothing else waits in this process: no hand-off can do with less.
"""

from redis.asyncio.client import PubSub

from benchmarks.by_hand import GRANTED, ByHand, channel, check, load
from benchmarks.peers.adapter import Lock, RedisPeer


class Chain(RedisPeer):
    """One task of a process at a time."""

    async def open(self) -> None:
        await load(self.redis)

    def lock(self, name: str) -> Lock:
        return _Section(self, name)


class _Section(Lock):
    def __init__(self, peer: Chain, name: str) -> None:
        self._redis = peer.redis
        self._calls = ByHand(name)
        self._channel = channel(name)
        self._messages: PubSub | None = None

    async def __aenter__(self) -> None:
        if self._messages is None:
            self._messages = self._redis.pubsub()
            await self._messages.subscribe(self._channel)
            await self._messages.get_message(timeout=None)
        reply = await self._redis.evalsha(*self._calls.acquire())
        while reply[0] != GRANTED:
            await self._messages.get_message(timeout=None)
            reply = await self._redis.evalsha(*self._calls.again())

    async def __aexit__(self, *_: object) -> None:
        check(await self._redis.evalsha(*self._calls.release()), "release")
