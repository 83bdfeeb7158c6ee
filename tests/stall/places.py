"""The servers of a test, and clients of them: the test's own, and those of other processes."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.sentinel import Sentinel

from aiolock import LockClient, LockConfig
from tests.support.topologies import NAME as PRIMARY

LEASE = 0.8
LONGEST_LEASE = 5.0


@dataclass
class Place:
    """Servers of that kind at these addresses: those of a quorum, the Sentinels, or one of them."""

    kind: Literal["one", "sentinel", "cluster", "quorum"]
    addresses: Sequence[tuple[str, int]]
    settings: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, text: str) -> "Place":
        return cls(**json.loads(text))

    def written(self) -> str:
        return json.dumps(asdict(self))

    @asynccontextmanager
    async def client(self, **config: Any) -> AsyncIterator[LockClient]:
        settings = {"lease": LEASE, "renew_interval": LEASE / 8, "release_timeout": 10, **config}
        async with AsyncExitStack() as stack:
            locks = await self._client(LockConfig(**settings), stack)
            yield await stack.enter_async_context(locks)

    async def _client(self, config: LockConfig, stack: AsyncExitStack) -> LockClient:
        host, port = self.addresses[0]
        if self.kind == "cluster":
            cluster = RedisCluster(host=host, port=port, **self.settings)
            stack.push_async_callback(cluster.aclose)
            return LockClient(cluster, config=config)
        if self.kind == "sentinel":
            sentinel = Sentinel([tuple(each) for each in self.addresses], socket_timeout=1)  # type: ignore[no-untyped-call]
            return LockClient(sentinel.master_for(PRIMARY), config=config)
        redises = [Redis(host=host, port=port, **self.settings) for host, port in self.addresses]
        if self.kind == "quorum":
            return LockClient.redlock(redises, config=config, longest_lease=LONGEST_LEASE)
        return LockClient(redises[0], config=config)
