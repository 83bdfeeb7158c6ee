"""B16: the processor time that a critical section costs the server, which is one core that a whole fleet shares."""

import asyncio
import time

from redis.asyncio import Redis

from benchmarks import peers
from benchmarks.commands import SECTIONS, send
from benchmarks.observer import Observer
from benchmarks.run import Outcome, Run
from benchmarks.sections import Sections, growth_between
from benchmarks.witness import Witness

TASKS = 100


async def run(run: Run, observer: Observer) -> Outcome:
    """Parameter *sharing*: the number of tasks that share a name."""
    sharing = run.number("sharing")
    async with peers.make(run.peer, run.url, TASKS, 30) as peer:
        begin = time.monotonic() + run.warm_up
        end = begin + run.seconds
        working = asyncio.create_task(growth_between(observer.processor_time, begin, end))
        with Witness(TASKS) as witness:
            sections = Sections(peer, _names(sharing), witness, shared=sharing > 1)
            tally = await sections.count(begin, end)
        work = await working
    measures = tally.measures()
    if tally.sections:
        measures["server_time_per_section"] = work / tally.sections
    return Outcome(measures, problem=tally.problem)


async def by_hand(run: Run, observer: Observer) -> Outcome:
    """
    The same commands without a library.

    One loop puts the commands that leave all sections, and those that enter them again, into one pipeline.
    """
    kind = SECTIONS[run.peer.removeprefix(peers.OLDER)]
    names = list(dict.fromkeys(_names(run.number("sharing"))))
    async with Redis.from_url(run.url, single_connection_client=True) as redis:
        await kind.load(redis)
        rooms = [kind(name) for name in names]
        await send(redis, [command for room in rooms for command in (*room.prepare(), *room.enter())])
        work = await observer.processor_time()
        sections, started = 0, time.monotonic()
        begin, warm = started + run.warm_up, False
        while (now := time.monotonic()) < begin + run.seconds:
            if now >= begin and not warm:
                work, sections, started, warm = await observer.processor_time(), 0, now, True
            left = [command for room in rooms for command in room.leave()]
            await send(redis, [*left, *(command for room in rooms for command in room.enter())])
            sections += len(rooms)
        work, seconds = await observer.processor_time() - work, time.monotonic() - started
    rates = {"sections_per_second": sections / seconds, "seconds_per_section": seconds / sections}
    return Outcome({**rates, "server_time_per_section": work / sections})


def _names(sharing: int) -> list[str]:
    return [f"work:{task // sharing}" for task in range(TASKS)]
