"""The cost of the benchmarks' workloads in commands, writes and connections, in small; no time is measured."""

import asyncio
from dataclasses import dataclass

import pytest
from redis.asyncio import Redis

from aiolock import LockClient, LockConfig
from aiolock._embedded_server import Server
from tests.support.observe import commandstats, connected, until
from tests.support.waiters import Waiters

CONNECTIONS = 8


@dataclass
class Work:
    """Counts since `start`, by the client and by the server."""

    locks: LockClient
    redis: Redis
    commands: int = 0
    batches: int = 0
    sent: int = 0
    others: int = 0
    """Connections that were there before."""
    alone: bool = True
    """No other client sends scripts."""
    bundled: bool = False
    """Several calls go to the server as one."""
    handed_off: bool = False
    """A release and the acquire behind it go as one."""

    async def start(self) -> None:
        self.others = await connected(self.redis)
        # Only a first use sends the scripts.
        async with self.locks.lock("first"):
            pass
        await self.mark()

    async def mark(self) -> None:
        now = self.locks.statistics()
        self.commands, self.batches, self.sent = now.commands, now.batches, await self._sent()

    async def done(self) -> tuple[int, int]:
        """Commands and batches; the client counts as many commands as the server has seen."""
        now = self.locks.statistics()
        commands, sent = now.commands - self.commands, await self._sent() - self.sent
        batches = now.batches - self.batches
        if self.bundled:
            assert sent <= commands / 16
        elif self.handed_off:
            assert sent <= 1.2 * batches
        elif self.alone:
            assert sent == commands
        return commands, batches

    async def _sent(self) -> int:
        stats = await commandstats(self.redis)
        return stats.get("eval", 0) + stats.get("evalsha", 0)


@pytest.fixture
async def work(locks: LockClient, redis: Redis) -> Work:
    work = Work(locks, redis)
    await work.start()
    return work


async def enter(locks: LockClient, name: str, times: int) -> None:
    for _ in range(times):
        async with locks.lock(name):
            pass


async def test_one_task_sends_two_commands_for_a_section(work: Work) -> None:
    await enter(work.locks, "orders", 20)
    assert await work.done() == (40, 40)
    assert work.locks.statistics().connections == 1


@pytest.mark.parametrize(("tasks", "times"), [(100, 5), (1000, 2)])
async def test_tasks_with_locks_of_their_own_share_writes(work: Work, tasks: int, times: int) -> None:
    work.bundled = True
    await asyncio.gather(*(enter(work.locks, f"own:{number}", times) for number in range(tasks)))
    commands, batches = await work.done()
    assert commands == 2 * tasks * times, "nothing is sent twice, and nothing beside the two calls"
    # The reader lets others send after 128 answers, or when there are no more yet.
    assert batches <= commands / 16
    assert await connected(work.redis) - work.others <= CONNECTIONS
    assert work.locks.statistics().connections <= CONNECTIONS


async def test_tasks_that_pass_a_lock_around_send_one_command_in_one_write(work: Work) -> None:
    work.handed_off = True
    tasks, times = 50, 10
    await asyncio.gather(*(enter(work.locks, "shared", times) for _ in range(tasks)))
    commands, batches = await work.done()
    sections = tasks * times
    # The tasks that come at the same time ask once each; from then on only the first in the queue does.
    assert 2 * sections <= commands <= 2 * sections + tasks
    assert batches <= 1.2 * sections, "a release takes the acquire of the next along"


async def test_clients_that_share_a_name_send_few_commands_for_a_section(server: Server, redis: Redis) -> None:
    clients, tasks, times = 4, 4, 5
    await redis.config_resetstat()
    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(_crowd(server.url, tasks, times))
    stats = await commandstats(redis)
    assert stats["eval"] + stats["evalsha"] <= (2 + clients) * clients * tasks * times


async def _crowd(url: str, tasks: int, times: int) -> None:
    async with LockClient.from_url(url) as locks:
        await asyncio.gather(*(enter(locks, "shared", times) for _ in range(tasks)))


async def test_a_hand_off_to_another_client_costs_its_waiters_one_command(work: Work, server: Server) -> None:
    async with LockClient.from_url(server.url) as elsewhere, Waiters(elsewhere, "shared") as waiters:
        await enter(elsewhere, "first", 1)
        work.alone = False
        async with work.locks.lock("shared"):
            await waiters.park(20)
            before = elsewhere.statistics().commands
        await waiters.granted(1)
        assert elsewhere.statistics().commands - before == 1
        assert await work.done() == (2, 2), "the holder sends its own two and nothing else"


async def test_a_thousand_waiters_send_nothing_while_idle(work: Work, redis: Redis, server: Server) -> None:
    async with LockClient.from_url(server.url) as holder, holder.lock("shared"), Waiters(work.locks, "shared") as many:
        await many.park(1000)
        quiet = await commandstats(redis)
        await asyncio.sleep(0.5)
        later = await commandstats(redis)
        assert {name for name in later if later[name] != quiet[name]} == {"info"}
        assert work.locks.statistics().subscriptions == 1
        assert await connected(redis) - work.others - holder.statistics().connections <= CONNECTIONS
        assert work.locks.statistics().parked == 1000


async def test_renewals_of_many_locks_share_writes(redis: Redis) -> None:
    count = 200
    async with LockClient(redis, config=LockConfig(lease=2, renew_interval=0.3)) as quick:
        work = Work(quick, redis)
        held = [quick.lock(f"held:{number}", owner="keeper") for number in range(count)]
        await asyncio.gather(*(lock.acquire() for lock in held))
        await work.mark()
        before = quick.statistics().renewals
        await until(lambda: quick.statistics().renewals - before >= 2 * count, within=20)
        assert quick.statistics().batches - work.batches <= count / 5, "two hundred renewals are a few writes"
        assert quick.statistics().losses == 0
        await asyncio.gather(*(lock.release() for lock in held))
