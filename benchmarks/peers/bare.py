"""Baseline: the same scripts by `Redis.evalsha`, pooled, one after the other, and nothing around them."""

from benchmarks.by_hand import ByHand, check, load
from benchmarks.peers.adapter import Lock, RedisPeer


class Bare(RedisPeer):
    """Cannot wait: for names that only one task uses."""

    async def open(self) -> None:
        await load(self.redis)

    def lock(self, name: str) -> Lock:
        return _Section(self, ByHand(name))


class _Section(Lock):
    def __init__(self, peer: Bare, calls: ByHand) -> None:
        self._evalsha = peer.redis.evalsha
        self._calls = calls

    async def __aenter__(self) -> None:
        check(await self._evalsha(*self._calls.acquire()), "acquire")

    async def __aexit__(self, *_: object) -> None:
        check(await self._evalsha(*self._calls.release()), "release")
