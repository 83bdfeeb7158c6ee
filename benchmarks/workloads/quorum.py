"""B15: every task of one process has a lock of its own, kept by three servers; beside one server."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from redis.asyncio import Redis

from aiolock._embedded_server import Server
from aiolock._keys import QUORUM_KEY
from benchmarks import peers, redisson
from benchmarks.observer import Observer
from benchmarks.run import Outcome, Run
from benchmarks.sections import Sections
from benchmarks.witness import Witness

_OTHERS = 2


async def run(run: Run, observer: Observer) -> Outcome:
    """Parameter *tasks*: the number of tasks. The other servers also run for peers that use one only."""
    tasks = run.number("tasks")
    names = [f"own:{number}" for number in range(tasks)]
    with _with_others(run.url) as urls:
        for url in urls:
            await _let_vote(url)
        async with peers.make(run.peer, ",".join(urls) if "quorum" in run.peer else run.url, tasks, 30) as peer:
            begin = time.monotonic() + run.warm_up
            with Witness(tasks) as witness:
                tally = await Sections(peer, names, witness, shared=False).count(begin, begin + run.seconds)
    return Outcome(tally.measures(), problem=tally.problem)


async def by_redisson(run: Run, observer: Observer) -> Outcome:
    """The same with threads, or chains of asynchronous calls, for tasks."""
    with _with_others(run.url) as urls:
        return await redisson.on_servers(urls, run, observer)


@contextmanager
def _with_others(url: str) -> Iterator[list[str]]:
    with ExitStack() as stack:
        yield [url, *(stack.enter_context(Server()).url for _ in range(_OTHERS))]


async def _let_vote(url: str) -> None:
    """A new server has no vote at first; give this one its vote, because it has forgotten nothing."""
    async with Redis.from_url(url) as redis:
        await redis.set(QUORUM_KEY, f"{(await redis.info('server'))['run_id']} 0")
