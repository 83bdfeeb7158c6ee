"""Faults of the lock in redis-py, shown by redis-py itself: it runs unchanged over the simulated connections."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from redis.asyncio import Redis
from redis.asyncio.lock import Lock
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError, TimeoutError

from tests.simulation.record import ours
from tests.simulation.record.scenario import Scenario
from tests.simulation.record.stage import NAME, Belief, Block, Party, Stage


def _block(timeout: float | None = None, *, one_object: bool = False) -> Block:
    """``async with`` redis-py's lock; *one_object* is used by all tasks of a process."""

    @asynccontextmanager
    async def block(party: Party) -> AsyncIterator[Belief]:
        def make() -> Lock:
            return Lock(party.redis, NAME, timeout)

        lock = party.once("lock", make) if one_object else make()
        party.kept["renew"] = lock.reacquire
        async with lock:
            loop = asyncio.get_running_loop()
            ends = loop.time() + timeout if timeout else float("inf")
            yield lambda: loop.time() < ends

    return block


def _cancel_soon() -> None:
    """The task is cancelled while its release is on the way to the server."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().call_later(0.0005, task.cancel)


def _cancelled_release(stage: Stage) -> None:
    first, second = stage.party("A"), stage.party("B")
    first.begin(0.0, first.holds(1.0, last=_cancel_soon))
    second.begin(0.5, second.holds(1.0))
    stage.play(20.0)


def _shared_object(stage: Stage) -> None:
    first, other = stage.party("A"), stage.party("C")
    second = stage.party("B", beside=first)
    first.begin(0.0, first.holds(1.5))
    second.begin(0.5, second.holds(0.9))
    other.begin(1.2, other.holds(0.9))
    stage.play(8.0)


async def _renews(party: Party) -> None:
    party.tells(f"renews its lock: {await party.kept['renew']()}")


def _renewed(stage: Stage) -> None:
    first, second = stage.party("A"), stage.party("B")
    first.begin(0.0, first.holds(2.0))
    first.begin(1.0, _renews(first))
    second.begin(0.5, second.holds(1.0))
    stage.play(8.0)


def _own_key(stage: Stage) -> None:
    party = stage.party("A")
    # The retries that redis-py has by default since its version 6.
    retry, errors = Retry(NoBackoff(), 3), [ConnectionError, TimeoutError]
    party.kept["redis"] = Redis(host=stage.server.name, retry=retry, retry_on_error=errors)
    party.begin(0.0, ours.connect(party))
    stage.at(0.9995, stage.lose_reply, party)
    party.begin(1.0, party.holds(1.0))
    stage.play(20.0)


SCENARIOS = (
    Scenario(
        "redis-py-cancelled-release",
        "redis-py",
        "redis/redis-py#3847",
        "P4",
        "A task is cancelled while it releases the lock, which stays.",
        "stuck",
        _cancelled_release,
        _block(),
        ours.lock(),
        is_library=True,
    ),
    Scenario(
        "redis-py-shared-object",
        "redis-py, aredis",
        "NoneGG/aredis#119",
        "P2",
        "Two tasks use one lock object. One task releases what the other one has.",
        "exclusion",
        _shared_object,
        _block(1.0, one_object=True),
        ours.lock(lease=1.0),
        is_library=True,
    ),
    Scenario(
        "redis-py-renewed-away",
        "redis-py",
        "redis/redis-py#4279",
        "P1",
        "A renewal of a lock without an end deletes its key.",
        "exclusion",
        _renewed,
        _block(0.0),
        ours.renewed_lock,
        is_library=True,
    ),
    Scenario(
        "redis-py-own-key",
        "redis-py, node-redlock",
        "mike-marcacci/node-redlock#369",
        "P5",
        "The answer to SET NX is lost, and the client waits for its own key.",
        "stuck",
        _own_key,
        _block(),
        ours.lock(),
        is_library=True,
    ),
)
