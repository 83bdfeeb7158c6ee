"""What the machines share: an event loop, a server, and two clients."""

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, run_state_machine_as_test
from redis.asyncio import Redis

from aiolock import LockClient

T = TypeVar("T")
CLIENTS = (0, 1)
clients = st.sampled_from(CLIENTS)
few = st.integers(1, 3)


def settings_of(examples: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=40,
        deadline=None,
        database=None,
        derandomize=True,  # A failure that comes by chance helps nobody; more examples are a matter of one line.
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )


class Machine(RuleBasedStateMachine):
    """Each rule does one thing to the server and to the model, and compares what came of it."""

    clients: list[LockClient]
    redis: Redis

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self.runner = asyncio.Runner()
        self.started = False

    def run(self, coroutine: Awaitable[T]) -> T:
        return self.runner.run(asyncio.wait_for(coroutine, 20))

    @initialize()
    def start(self) -> None:
        self.run(self._start())
        self.started = True

    async def _start(self) -> None:
        self.redis = Redis.from_url(self._url)
        self.clients = [LockClient.from_url(self._url) for _ in CLIENTS]
        await self.redis.flushall()

    async def restart_client(self, number: int) -> None:
        await self.clients[number].aclose()
        self.clients[number] = LockClient.from_url(self._url)

    async def _end(self) -> None:
        for client in self.clients:
            await client.aclose()
        await self.redis.aclose()

    def teardown(self) -> None:
        if self.started:
            self.run(self._end())
        self.runner.close()


def agrees(machine: Any, url: str, examples: int = 60) -> None:
    """Random histories of this kind do what their model says."""
    run_state_machine_as_test(lambda: machine(url), settings=settings_of(examples))  # type: ignore[arg-type]
