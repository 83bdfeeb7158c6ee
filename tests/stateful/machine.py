"""The common part of the machines: an event loop, a server, two clients, and their tasks, which are owners."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, run_state_machine_as_test
from redis.asyncio import Redis

from aiolock import Lease, LeaseLostError, LockClient
from tests.stateful.model import Actor
from tests.support.observe import answered, until

T = TypeVar("T")
CLIENTS = (0, 1)
TASKS = ("task 1", "task 2")
ACTORS = [Actor(client, owner) for client in CLIENTS for owner in (*TASKS, "a name")]
clients = st.sampled_from(CLIENTS)
actors = st.sampled_from(ACTORS)
few = st.integers(1, 3)
SHORT = 0.05


def settings_of(examples: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=40,
        deadline=None,
        database=None,
        # A run by chance would fail by chance. To try more examples, change this line.
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )


class Worker:
    """A task that lives long and does what it is told, so that it can be the owner in several steps."""

    def __init__(self) -> None:
        self._jobs: asyncio.Queue[tuple[Callable[[], Awaitable[Any]], asyncio.Future[Any]]] = asyncio.Queue()
        self._task = asyncio.create_task(self._work())

    async def do(self, job: Callable[[], Awaitable[T]]) -> T:
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.put_nowait((job, done))
        return await done

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _work(self) -> None:
        while True:
            job, done = await self._jobs.get()
            try:
                done.set_result(await job())
            except Exception as error:
                done.set_exception(error)


class Machine(RuleBasedStateMachine):
    """Each rule does one thing to the server and to the model, and compares what came of it."""

    clients: list[LockClient]
    redis: Redis

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self.runner = asyncio.Runner()
        self.started = False
        self._workers: dict[Actor, Worker] = {}

    def run(self, coroutine: Awaitable[T]) -> T:
        return self.runner.run(asyncio.wait_for(coroutine, 20))

    def let(self, actor: Actor, job: Callable[[], Awaitable[T]]) -> T:
        """*actor* does the job; afterwards its client waits for no answer."""
        return self.run(self._let(actor, job))

    async def _let(self, actor: Actor, job: Callable[[], Awaitable[T]]) -> T:
        try:
            return await self.do(actor, job)
        finally:
            await answered(self.clients[actor.client])

    async def do(self, actor: Actor, job: Callable[[], Awaitable[T]]) -> T:
        """*actor* does the job, in its own task if it is a task."""
        if actor.owner not in TASKS:
            return await job()
        if actor not in self._workers:
            self._workers[actor] = Worker()
        return await self._workers[actor].do(job)

    def expires(
        self, actor: Actor, take: Callable[[], Awaitable[Lease | None]], has: Callable[[], Awaitable[bool]]
    ) -> bool:
        """
        *actor* takes a free lock for a short time, and has it until the server says otherwise; then its client knows.
        Returns whether the lock was granted: on a busy machine the grant may come too late.
        """
        try:
            lease = self.let(actor, take)
        except LeaseLostError:
            return False
        if lease is not None:
            self.run(self._until_over(actor, lease, has))
        return lease is not None

    async def _until_over(self, actor: Actor, lease: Lease, has: Callable[[], Awaitable[bool]]) -> None:
        async def is_over() -> bool:
            return not await self.do(actor, has)

        await until(is_over)
        assert lease.lost.is_set()
        assert await asyncio.wait_for(lease.lost, 10) == "expired"
        await answered(self.clients[actor.client])

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
        for worker in self._workers.values():
            await worker.stop()
        await self.redis.aclose()

    def teardown(self) -> None:
        if self.started:
            self.run(self._end())
        self.runner.close()


def agrees(machine: Any, url: str, examples: int) -> None:
    """Random histories of this kind do what their model says."""
    run_state_machine_as_test(lambda: machine(url), settings=settings_of(examples))  # type: ignore[arg-type]
