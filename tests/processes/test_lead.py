"""Processes that are killed while they lead, keep a lock, or run a body that runs once."""

import asyncio
from contextlib import AbstractContextManager
from time import monotonic

from redis.asyncio import Redis

from aiolock import LockClient
from aiolock._embedded_server import Server
from tests.processes.lead import AT_LEAST, LEASE, NAME
from tests.support.observe import until
from tests.support.programs import Program, python, said

SLACK = 5.0


def process(server: Server, act: str) -> AbstractContextManager[Program]:
    return python("-m", "tests.processes.lead", server.url, act)


async def words(worker: Program) -> list[str]:
    """The next line of the process, in words."""
    return (await asyncio.to_thread(said, worker)).split()


async def test_a_leader_that_is_killed_is_followed_after_one_lease_and_never_before(
    server: Server, redis: Redis
) -> None:
    with process(server, "lead") as first:
        _, token, _ = await words(first)
        with process(server, "lead") as second:
            await until_waited_for(redis)
            first.kill()
            killed = monotonic()
            left = await redis.pttl(NAME) / 1000
            _, next_token, at = await words(second)
            assert int(next_token) > int(token)
            assert left - 0.1 <= float(at) - killed < LEASE + SLACK


async def until_waited_for(redis: Redis) -> None:
    async def waited_for() -> bool:
        return bool(await redis.pubsub_channels(f"*{NAME}*"))

    await until(waited_for, within=30)


async def test_a_lock_is_kept_though_its_process_was_killed(server: Server, redis: Redis, locks: LockClient) -> None:
    with process(server, "keep") as holder:
        _, held = await words(holder)
        holder.kill()
        holder.wait()
        async with locks.lock(NAME).hold():
            assert AT_LEAST - 0.5 < monotonic() - float(held) < AT_LEAST + SLACK


async def test_a_remembered_body_is_not_run_again_though_its_process_was_killed(
    server: Server, redis: Redis, locks: LockClient
) -> None:
    async def work() -> None:
        ran.append(monotonic())

    ran: list[float] = []
    with process(server, "once") as runner:
        _, began = await words(runner)
        runner.kill()
        runner.wait()
        await locks.once(NAME, keep=AT_LEAST, wait=0).run(work)
        assert ran == []
        await locks.once(NAME, keep=AT_LEAST).run(work)
    assert AT_LEAST - 0.5 < ran[0] - float(began) < AT_LEAST + SLACK
