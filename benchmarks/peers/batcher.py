"""Baseline: the same scripts, those of one turn of the loop in one `pipeline(transaction=False)`.

What a user could build around redis-py's public interface in an afternoon: tasks wait for futures, and one command
that is alone is sent directly.
"""

import asyncio

from benchmarks.by_hand import Arguments, ByHand, check, load
from benchmarks.peers.adapter import Lock, RedisPeer


class Batcher(RedisPeer):
    """Cannot wait: for names that only one task uses."""

    def __init__(self, url: str, tasks: int, lease: float) -> None:
        super().__init__(url, tasks, lease)
        self._waiting: list[tuple[Arguments, asyncio.Future[object]]] = []
        self._wake = asyncio.Event()
        self._sending: asyncio.Task[None] | None = None

    async def open(self) -> None:
        await load(self.redis)
        self._sending = asyncio.create_task(self._send())

    async def close(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
        await super().close()

    def lock(self, name: str) -> Lock:
        return _Section(self, ByHand(name))

    def call(self, arguments: Arguments) -> "asyncio.Future[object]":
        """Send a script with the next batch."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((arguments, future))
        self._wake.set()
        return future

    async def _send(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            batch, self._waiting = self._waiting, []
            if not batch:
                continue
            for (_, future), reply in zip(batch, await self._replies([call for call, _ in batch]), strict=True):
                future.set_result(reply)

    async def _replies(self, calls: list[Arguments]) -> list[object]:
        if len(calls) == 1:
            return [await self.redis.evalsha(*calls[0])]
        pipeline = self.redis.pipeline(transaction=False)
        for call in calls:
            _ = pipeline.evalsha(*call)
        return list(await pipeline.execute(raise_on_error=False))


class _Section(Lock):
    def __init__(self, peer: Batcher, calls: ByHand) -> None:
        self._call = peer.call
        self._calls = calls

    async def __aenter__(self) -> None:
        check(await self._call(self._calls.acquire()), "acquire")

    async def __aexit__(self, *_: object) -> None:
        check(await self._call(self._calls.release()), "release")
